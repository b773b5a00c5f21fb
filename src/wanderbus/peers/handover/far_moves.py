"""Sessions that leave for another domain: its servers, third domains, and the ends of their logs (SPEC L-05; 0165).

::

    offered ──MoveReady──▶ ends of the logs in other domains ──▶ ends of the logs here ──▶ fenced

Every server whose events come here and go to the next owner's domain is asked for the end of its log: all before it is
here, and all behind it comes to the next owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import msgspec

from wanderbus.broker.sessions.handover_messages import Head, HeadWanted, ResumePublishes
from wanderbus.broker.state.rows import session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.interest.messages import NumberedFilter
from wanderbus.event import EventId
from wanderbus.peers.far_servers import AskServers, FarDomains, ServersFound
from wanderbus.peers.handover.messages import HeadAsked, Message, Move, WantedOf, encode
from wanderbus.peers.messages import ConnectServer, DisconnectServer, SendOnServerLink
from wanderbus.peers.open_links import OpenLinks

FarMovesOutput = SendOnServerLink | ConnectServer | DisconnectServer | AskServers | HeadWanted | ResumePublishes


class FarLeaving(Protocol):
    """A session that is about to leave."""

    move: Move
    target: str


class _Far:
    """Progress of a session that leaves for another domain."""

    def __init__(self, leaving: FarLeaving) -> None:
        self.leaving = leaving
        self.request = 0
        self.wanted: Mapping[str, tuple[NumberedFilter, ...]] = {}
        """Filters that the next owner's domain has for the session, by the domains whose events they are for."""
        self.unknown: set[str] = set()
        """Domains whose servers are not known yet."""
        self.heads: dict[str, Head | None] = {}
        """Ends of the logs of servers in other domains, None for those that have not answered."""


class FarMoves:
    """The moves to other domains; ``emit`` takes its outputs.

    :param new_request: returns the number of a further question for the ends of logs
    """

    def __init__(
        self,
        state: BrokerState,
        domains: FarDomains,
        links: OpenLinks,
        new_request: Callable[[], int],
        emit: Callable[[FarMovesOutput], None],
    ) -> None:
        self.domains = domains
        self.links = links
        self._state = state
        self._new_request = new_request
        self._emit = emit
        self._moves: dict[tuple[str, str], _Far] = {}
        self._connected: set[str] = set()
        self._unmet = {
            each.next_owner for each in state.sessions.values() if domains.foreign and "/" in each.next_owner
        }
        """Next owners in other domains whose contacts are not known in this life."""

    def obstacle(self, target: str) -> str:
        """Return why no session moves to a server of another domain, or to that domain; "" if one may."""
        name = target.partition("/")[0]
        if (domain := self.domains.of(target)) is None:
            return f"{name} is no domain that this one knows"
        return "" if domain.gives_sessions else f"{self.domains.own} gives no sessions to {name}; see federation.toml"

    def begin(self, leaving: FarLeaving) -> None:
        """Find the server to which a session is to move."""
        self._moves[leaving.move.key] = _Far(leaving)
        if "/" not in leaving.target:
            self._emit(AskServers(leaving.target, leaving.move.user))

    def end(self, move: Move) -> None:
        """Forget a move that has ended."""
        self._moves.pop(move.key, None)
        self._emit(ResumePublishes(move.user, move.session))

    def __contains__(self, move: Move) -> bool:
        """Return whether a move leads to another domain."""
        return move.key in self._moves

    def met(self, server: str) -> None:
        """Note that the contacts of a server are known."""
        self._unmet.discard(server)

    def found(self, found: ServersFound) -> Iterator[FarLeaving]:
        """Take the servers of a domain; yield the sessions whose target is known now, or whose questions are asked."""
        for far in list(self._moves.values()):
            if far.leaving.target == found.domain and far.leaving.move.user == found.user and found.chosen:
                far.leaving.target = f"{found.domain}/{found.chosen}"
                yield far.leaving
            if found.domain in far.unknown and not found.user:
                far.unknown.discard(found.domain)
                far.heads |= dict.fromkeys([f"{found.domain}/{each}" for each in found.servers])
                self._ask(far, far.heads)

    def ready(self, leaving: FarLeaving, wanted: Iterable[WantedOf]) -> None:
        """Ask the domains whose events the session gets here, and may get there."""
        far = self._moves[leaving.move.key]
        far.request, far.heads = self._new_request(), {}
        far.wanted = {each.domain: each.filters for each in wanted}
        target = leaving.target.partition("/")[0]
        far.unknown = {
            name
            for name, each in self.domains.foreign.items()
            if each.receives and (name == target or self._shares(name, far))
        }
        for name in sorted(far.unknown):
            self._emit(AskServers(name))

    def _shares(self, domain: str, far: _Far) -> bool:
        """Return whether events of a third domain come here, and to the next owner, for a session."""
        types = self.domains.foreign[domain].receives
        return any(each.subject in types for each in far.wanted.get(domain, ()))

    def heads(self, leaving: FarLeaving) -> tuple[Head, ...] | None:
        """Return the ends of all logs in other domains; None while one is missing."""
        far = self._moves[leaving.move.key]
        found = [each for each in far.heads.values() if each is not None]
        is_complete = far.request and not far.unknown and len(found) == len(far.heads)
        return tuple(found) if is_complete else None

    def missing(self, leaving: FarLeaving) -> set[str]:
        """Return the domains and servers that have not answered."""
        far = self._moves[leaving.move.key]
        return far.unknown | {each for each, head in far.heads.items() if head is None}

    def answered(self, server: str, request: int, head: Head) -> FarLeaving | None:
        """Take the end of a log; return the session for which it was asked."""
        for far in self._moves.values():
            if far.request == request and server in far.heads and "/" not in head.end.origin:
                # Alone in its domain, a server has a name of its own in the ids of its events.
                name = f"{server.partition('/')[0]}/{head.end.origin}"
                end = EventId(name, head.end.incarnation, head.end.number)
                far.heads[server] = Head(end)
                return far.leaving
        return None

    def question(self, leaving: FarLeaving, request: int) -> HeadAsked:
        """Return the question to a server of this domain, also for what it has answered to the session's publishes."""
        far, move = self._moves[leaving.move.key], leaving.move
        session = self._state.sessions.get(session_key(*move.key))
        devices = () if session is None else tuple(session.devices)
        asked = self._question(far, request, self.domains.own)
        return msgspec.structs.replace(asked, user=move.user, devices=devices)

    def _question(self, far: _Far, request: int, domain: str) -> HeadAsked:
        target = far.leaving.target.partition("/")[0]
        return HeadAsked(request, None, target, far.wanted.get(domain, ()))

    def link_opened(self, server: str) -> None:
        """Repeat the questions that a link may have lost."""
        for far in self._moves.values():
            self._ask(far, [server])

    def _ask(self, far: _Far, servers: Iterable[str]) -> None:
        for server in servers:
            if server in far.heads and far.heads[server] is None and self.links.newest(server) is not None:
                self.send(server, self._question(far, far.request, server.partition("/")[0]))

    def asked(self, server: str, asked: HeadAsked) -> None:
        """Ask the broker for the end of this log, of which ``server`` wants to know.

        One of another domain learns nothing of the publishes of a user.
        """
        wanted = self._wanted_here(server, asked)
        if not wanted.taken_by:
            wanted = msgspec.structs.replace(wanted, user=asked.user, devices=asked.devices)
        self._emit(wanted)

    def pause(self, leaving: FarLeaving, request: int) -> None:
        """Ask the broker for the end of this log; from now on what the session publishes waits."""
        asked, move = self._question(self._moves[leaving.move.key], request, self.domains.own), leaving.move
        wanted = self._wanted_here(self._state.server, asked)
        self._emit(msgspec.structs.replace(wanted, user=move.user, pauses=move.session))

    def _wanted_here(self, server: str, asked: HeadAsked) -> HeadWanted:
        """Return a question to the broker, which waits for filters of such types alone as are sent to the domain."""
        there = self.domains.foreign.get(asked.wanted_by)
        sends = frozenset() if there is None else there.sends
        wanted = tuple([each for each in asked.wanted if each.subject in sends])
        domain, is_far, _ = server.partition("/")
        return HeadWanted(server, asked.request, asked.wanted_by, wanted, domain if is_far else "")

    def send(self, server: str, message: Message) -> None:
        """Send a message to a server of another domain, if there is a link."""
        self.links.send(server, encode(message), self._emit)

    def settle(self, further: Iterable[str] = ()) -> None:
        """Open the links that are needed now, those to ``further`` servers too, and close the others."""
        if not self.domains.foreign:
            return
        state = self._state
        needed = {
            *self._unmet,
            *further,
            *(each.leaving.target for each in self._moves.values()),
            *(server for each in self._moves.values() for server in each.heads),
            *(each.target for each in state.exports.values()),
            *(each.target for each in state.rests.values()),
            *(each.source for each in state.awaited.values()),
        }
        needed = {each for each in needed if "/" in each and self.domains.of(each) is not None}
        for each in sorted(needed - self._connected):
            self._emit(ConnectServer(each))
        for each in sorted(self._connected - needed):
            self._emit(DisconnectServer(each))
        self._connected = needed
