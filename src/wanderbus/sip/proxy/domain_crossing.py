"""Requests to other domains: authorization, routing and asserted identity.

A request crosses to another domain if its next hop is a domain name, or a server of a static route. Its sender must
authenticate as a user of ours, so that the proxy is no open relay. An ACK cannot be challenged, so it must belong to a
dialog that was routed through here. Requests wait here during the lookup of a domain's servers.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.hosts import is_ip_address
from wanderbus.machine import CancelTimer, SetTimer
from wanderbus.sip.message.message import Request
from wanderbus.sip.message.targets import Target, target_of
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy.asserted_identity import SenderAuthentication, without_private
from wanderbus.sip.proxy.decisions import Aim, Passage, RequestArrived, Targets, Unproved, WaitingAck
from wanderbus.sip.proxy.domain_routes import LOOKUP_S_MAX, LOOKUPS_MAX, WAITING_MAX, DomainRoutes, Name
from wanderbus.sip.proxy.domain_servers import DomainLookedUp, FindDomain, NotFound
from wanderbus.sip.proxy.proxy_signals import Command
from wanderbus.sip.proxy.visit_proofs import with_visit
from wanderbus.sip.transaction.transaction_signals import AckReceived

TIMER: Final = "domain"
"""First part of the keys of our timers; domain and port follow."""

_BUSY: Final = NotFound(503, "Too Many Lookups")


Waiting = Passage | WaitingAck


class DomainCrossing:
    """The requests of one proxy to other domains; calls there are proved with ``visit_key`` unless it is empty."""

    def __init__(self, routes: DomainRoutes, authentication: SenderAuthentication, visit_key: bytes = b"") -> None:
        self._routes = routes
        self._visit_key = visit_key
        self._authentication = authentication
        self._waiting: dict[Name, list[Waiting]] = {}
        self._wall_us = 0
        """Wall clock of the present batch, 0 while it is not known."""

    def __len__(self) -> int:
        """Return the number of requests that wait for the resolver."""
        return sum(map(len, self._waiting.values()))

    def clock_read(self, wall_us: int) -> None:
        """Note the wall clock, for proofs of calls to other domains."""
        self._wall_us = wall_us

    def leads_away(self, uri: SIPUri) -> bool:
        """Return whether ``uri`` is a domain, or the address of a server of another one: its servers name each other.

        Only a server whose certificate is known to need the name of its domain counts.
        """
        if not self._routes.enabled or not uri.is_sip:
            return False
        return not is_ip_address(uri.host) or bool(self._routes.known_at(target_of(uri)).sip_domain)

    def prepared(self, passage: Passage, now: float) -> Passage | Unproved | NotFound | list[Command]:
        """Return ``passage`` with the servers of other domains as destinations, or the commands to run instead.

        A list of commands means that the request waits here.

        Raises:
            SIPParseError: a hop or From cannot be read.
        """
        if not self._routes.enabled:
            return passage
        request = passage.came.request
        names = {aim: self._other_domain(request, aim) for aim in passage.targets.aims}
        if not any(names.values()):
            return passage
        if not passage.sender:
            proved = self._authentication.proved(passage.received.request, now)
            if isinstance(proved, Unproved):
                return proved
            passage = msgspec.structs.replace(passage, sender=proved)
        aims: list[Aim] = []
        for aim, name in names.items():
            found = aim if name is None else self._aimed(request, aim, name, now)
            if isinstance(found, NotFound):
                return found
            if found is None:
                assert name is not None
                return self._wait(name, passage, now)
            aims.append(found)
        targets = msgspec.structs.replace(passage.targets, aims=tuple(aims))
        return msgspec.structs.replace(passage, targets=targets)

    def acknowledged(
        self, received: AckReceived, came: RequestArrived, chosen: Targets, now: float
    ) -> Targets | list[Command]:
        """Return the destination of an ACK; a list of commands if it waits or must be discarded.

        Raises:
            SIPParseError: a hop cannot be read.
        """
        aims: list[Aim] = []
        for aim in chosen.aims:
            name = self._other_domain(came.request, aim) if self._routes.enabled else None
            found = aim if name is None else self._aimed(came.request, aim, name, now)
            if name is not None and not came.on_path:
                continue
            if found is None and name is not None:
                waiting = self._wait(name, WaitingAck(received), now)
                return [] if isinstance(waiting, NotFound) else waiting
            if isinstance(found, Aim):
                aims.append(found)
        return msgspec.structs.replace(chosen, aims=tuple(aims))

    def take(self, transaction: str) -> Passage | None:
        """Remove and return the request that waits under ``transaction``; None if there is none."""
        for waiting in self._waiting.values():
            for each in waiting:
                if isinstance(each, Passage) and each.transaction == transaction:
                    waiting.remove(each)
                    return each
        return None

    def looked_up(self, answer: DomainLookedUp, now: float) -> tuple[list[Waiting], list[Command]]:
        """Process the resolver's answer; return the requests that can continue."""
        name = answer.domain, answer.port
        if name not in self._waiting:
            return [], []
        self._routes.learn(answer, now)
        return self._waiting.pop(name), [CancelTimer((TIMER, *name))]

    def signed(self, sent: Request, aim: Aim, sender: str) -> Request:
        """Return a request as it is sent to ``aim``: with the identity of its sender only if the domain is trusted.

        An ACK has no ``sender``.
        """
        if aim.domain is None:
            return without_private(sent)
        servers = (aim.destination, *aim.alternatives)
        proved = all(server is not None and server.sip_domain == aim.domain for server in servers)
        trusted = bool(sender) and proved and self._routes.trusts(aim.domain)
        sent = self._authentication.leaving(sent, sender, trusted=trusted)
        if trusted and self._wall_us and self._visit_key:
            sent = with_visit(sent, self._visit_key, sender, aim.domain, self._wall_us // 1_000_000)
        return sent

    def avoid(self, target: Target, now: float) -> None:
        """Try ``target`` after the other servers of its domain for a while, because it did not respond."""
        if self._routes.enabled:
            self._routes.avoid(target, now)

    def _other_domain(self, request: Request, aim: Aim) -> Name | None:
        """Return the other domain of ``aim``; None if it is ours, or an address without a route."""
        if aim.destination is not None or aim.connection is not None:
            return (aim.domain, None) if aim.domain else None
        hop = hop_of(request, aim)
        if not hop.is_sip:
            return None
        if not is_ip_address(hop.host):
            return hop.host.lower(), hop.port
        server = self._routes.known_at(target_of(hop))
        return (server.sip_domain, None) if server.sip_domain else None

    def _aimed(self, request: Request, aim: Aim, name: Name, now: float) -> Aim | NotFound | None:
        """Return ``aim`` with the servers of ``name``; None if a lookup is needed."""
        hop = hop_of(request, aim)
        servers: tuple[Target, ...] | NotFound | None
        if is_ip_address(hop.host):
            servers = (self._routes.known_at(target_of(hop)),)
        else:
            servers = self._routes.targets(name, request.call_id, now)
        if not isinstance(servers, tuple):
            return servers
        if "sips" in (hop.scheme, aim.uri.scheme):
            servers = tuple(server for server in servers if server.transport == "TLS")
        if not servers:
            return NotFound(502, "No Server Over TLS")
        return msgspec.structs.replace(aim, destination=servers[0], alternatives=servers[1:], domain=name[0])

    def _wait(self, name: Name, waiting: Waiting, now: float) -> NotFound | list[Command]:
        """Queue a request until the lookup of ``name`` ends; there is one lookup of a domain at a time."""
        asked = name in self._waiting
        if len(self) >= WAITING_MAX or (not asked and len(self._waiting) >= LOOKUPS_MAX):
            return _BUSY
        self._waiting.setdefault(name, []).append(waiting)
        return [] if asked else [FindDomain(*name), SetTimer((TIMER, *name), now + LOOKUP_S_MAX)]


def hop_of(request: Request, aim: Aim) -> SIPUri:
    """Return the next hop of ``request`` on its way to ``aim`` (RFC 3261 16.6 item 7)."""
    routes = request.routes
    return routes[0].uri if routes else aim.uri
