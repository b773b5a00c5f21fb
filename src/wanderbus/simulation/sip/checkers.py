"""Checks of a repaired SIP world: registrations match addresses, both sides are connected, no state is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wanderbus.simulation.node import Node
from wanderbus.simulation.sip.party import SIP_PORT, SIPParty
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy.sip_server import SIPServer


def check_mended(servers: Mapping[str, SIPServer], parties: Sequence[SIPParty], now: float) -> list[str]:
    """Return one line for every broken promise in a repaired world at rest; ``servers`` are by domain."""
    by_uri = {party.uri: party for party in parties}
    problems: list[str] = []
    for party in parties:
        found = [
            *party.problems,
            *_registration(servers[party.home.domain], party, now),
            *_wanted(party, by_uri),
            *_one_sided(party, by_uri),
        ]
        problems += [f"{party.name}: {problem}" for problem in found]
    return problems


def check_left_over(nodes: Sequence[Node], servers: Mapping[str, SIPServer], parties: Sequence[SIPParty]) -> list[str]:
    """Return one line for all state that remains after every party retired and all timers expired."""
    problems = [f"{node.name}: timer {key!r} is left" for node in nodes for key in node.timers.keys]
    counts = {party.name: party.machine.transaction_count for party in parties}
    counts |= {f"registrar of {domain}": server.transaction_count for domain, server in servers.items()}
    problems += [f"{name}: {count} transactions are left" for name, count in counts.items() if count]
    problems += [f"{party.name}: session {id} is left" for party in parties for id in party.sessions]
    problems += [f"registrar: {aor} is still registered" for server in servers.values() for aor in server.location]
    return problems


def _registration(server: SIPServer, party: SIPParty, now: float) -> Iterator[str]:
    contacts = [SIPUri.parse(contact) for contact in server.location.contacts(party.uri, now)]
    places = [(contact.host, contact.port or SIP_PORT) for contact in contacts]
    if places != [party.contact]:
        yield f"is registered at {places} and is at {party.contact}"


def _wanted(party: SIPParty, by_uri: Mapping[str, SIPParty]) -> Iterator[str]:
    for uri, id in party.wanted.items():
        peer = by_uri[uri]
        if id is None or id not in party.sessions:
            yield f"wants a session with {peer.name} and has none"
        elif not party.talks_to(peer, id):
            yield f"{_shown(party, id)}, but {peer.name} is at {peer.ip}"
        elif not peer.talks_to(party, id):
            yield f"is at {party.ip}, but for {peer.name} {_shown(peer, id)}"


def _one_sided(party: SIPParty, by_uri: Mapping[str, SIPParty]) -> Iterator[str]:
    for id, session in party.sessions.items():
        if session.created_here and party.wanted.get(session.remote_uri) != id:
            yield f"has session {id}, which nobody wants"
        if id not in by_uri[session.remote_uri].sessions:
            yield f"{_shown(party, id)}, but {by_uri[session.remote_uri].name} has no such session"


def _shown(party: SIPParty, id: str) -> str:
    session = party.sessions.get(id)
    if session is None:
        return f"session {id} is not there"
    place = session.remote_media.address if session.remote_media is not None else None
    return f"session {id} is {session.communication.value} and leads to {place}"
