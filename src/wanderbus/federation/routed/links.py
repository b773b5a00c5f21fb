"""Links to domains with which the own one has none: other domains pass the messages on along a tree (SPEC M-04).

::

    gateway ──requests──▶ ┌─────────────┐ ──requests──▶ links of the own gateways to other domains
            ◀──reports─── │ RoutedLinks │ ◀──reports───
                          └─────────────┘

To the gateway a routed link is as any other. Each message names all domains on its path, so it never goes round, and
those between the ends keep nothing of the link. The messages of a link have numbers: its ends notice what is lost, and
close it. The domain with the lower name opens links, and another one once the tree has another path.
"""

from __future__ import annotations

from itertools import count
from typing import Final

from wanderbus.errors import RemoteProtocolError
from wanderbus.federation.gateway_choice import domain_of_link, epoch_of, link_name
from wanderbus.federation.messages import ForeignLinkReport
from wanderbus.federation.named_servers import shown
from wanderbus.federation.routed.link import FINISHED_EACH, RoutedEnd
from wanderbus.federation.routed.messages import (
    ROUTED_PREFIX,
    EndMessage,
    HopMessage,
    LinkId,
    Passed,
    PassedTaken,
    RoutedAnswered,
    RoutedCalled,
    RoutedCarried,
    RoutedEnded,
    RoutedProbed,
    StateAnnounced,
    decode_end,
    decode_hop,
    encode_end,
    encode_hop,
)
from wanderbus.federation.routed.outputs import ForSharedLinks, RoutedOutput, TreePath
from wanderbus.federation.routed.passing import PassedOn
from wanderbus.federation.routed.tree_paths import TreePaths
from wanderbus.federation.routing_messages import RoutingOutput, RoutingSettings, SendToDomain
from wanderbus.federation.shared_links import PASSED_BYTES_MAX
from wanderbus.federation.shared_outputs import AtGateway, LinksRequest
from wanderbus.machine import SetTimer
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    ConsumedOnServerLink,
    DisconnectServer,
    KnowServers,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)

FIRST_ROUTED: Final = 2**50
"""Number of the first routed link; no other link to a domain has so high a number."""

ROUTED: Final = "(routed)"
"""Stands for the gateway at the other end, which the own domain does not know; no gateway can have this name."""

TURN_S: Final = 0.5
"""Pause between two probes of a link, and two calls."""

SILENT_S: Final = 5.0
"""Time without a message after which a link is closed."""

TIMER: Final = "routed"
"""Key of the timer."""

OTHER_PATH: Final = "the tree has another path"
"""Reason for which a link is closed when the tree changes."""


class RoutedLinks:
    """The routed links of a gateway, and the messages of others that it passes on.

    :param settings: the own domain and its neighbours, with the methods of all types
    :param life: identifies this life of the gateway; it rises with each
    :param place: place of the gateway among those of its domain
    """

    def __init__(self, settings: RoutingSettings, life: int, place: int) -> None:
        self._own = settings.name
        self._settings = settings
        self._epoch = epoch_of(life, place)
        self._paths = TreePaths(settings, life, place)
        self._direct: dict[str, int] = {}
        """The link of the own gateways to each other domain."""
        self._passed = PassedOn()
        self._untaken: dict[str, int] = {}
        """Messages of each neighbour that are finished here, and not acknowledged to it."""
        self._ends: dict[int, RoutedEnd] = {}
        self._of_domain: dict[str, RoutedEnd] = {}
        self._new_number = count(FIRST_ROUTED).__next__
        self._turn_at: float | None = None
        self._timer_at: float | None = None
        self._is_wanting = False
        """True if a link to some domain can be opened, and has to be tried again."""
        self._outputs: list[RoutedOutput] = []

    def clock_read(self, wall_us: int) -> None:
        """Note the wall clock."""
        self._paths.clock_read(wall_us)

    def through(self, domain: str) -> tuple[str, ...]:
        """Return the domains between the own one and another one on the link to it; none if that is direct."""
        end = self._of_domain.get(domain)
        return end.path.domains[1:-1] if end is not None and end.is_open else ()

    def at_links(self, report: ForeignLinkReport, now: float) -> list[RoutedOutput]:
        """Take a report of the links to other domains."""
        domain = domain_of_link(report.server)
        match report:
            case _ if domain not in self._settings.neighbours:
                self._outputs.append(AtGateway(report))  # of a gateway here that has another file
            case ServerMessageReceived(link=link, payload=payload) if payload.startswith(ROUTED_PREFIX):
                self._outputs.append(ForSharedLinks(ConsumedOnServerLink(link, 1)))
                if self._direct.get(domain) == link:
                    self._on_hop(domain, link, payload, now)
            case ServerLinkOpened(link=link):
                if domain in self._direct:
                    self._unlinked(domain, now)
                self._direct[domain] = link
                self._outputs.append(AtGateway(report))
                self._announce(self._paths.link_up(domain, now))
            case ServerLinkClosed(link=link):
                if self._direct.get(domain) == link:
                    del self._direct[domain]
                    self._unlinked(domain, now)
                    self._is_wanting = True
                self._outputs.append(AtGateway(report))
            case _:
                self._outputs.append(AtGateway(report))
        return self._take(now)

    def requested(self, request: LinksRequest) -> list[RoutedOutput]:
        """Take a request of the gateway, which is for a routed link or for another one."""
        if isinstance(request, ConnectServer | DisconnectServer | KnowServers) or request.link < FIRST_ROUTED:
            return [ForSharedLinks(request)]
        if (end := self._ends.get(request.link)) is not None:
            match request:
                case SendOnServerLink(payload=payload):
                    self._carry(end, end.send(payload))
                case ConsumedOnServerLink(messages=messages):
                    if (said := end.finished(messages)) is not None:
                        self._send(end, said)
                case CloseServerLink(reason=reason):
                    self._end(end, reason, is_told=True)
        outputs, self._outputs = self._outputs, []
        return outputs

    def timer_fired(self, now: float) -> list[RoutedOutput]:
        """Take the timer."""
        self._timer_at = None
        states, has_changed = self._paths.go_on(now)
        self._announce(states)
        if has_changed:
            for each in list(self._ends.values()):
                if self._paths.path_by(each.path.type, each.domain) != each.path:
                    self._end(each, OTHER_PATH, is_told=True)
            self._call_missing(now)
        if self._turn_at is not None and self._turn_at <= now:
            self._take_turn(now)
        return self._take(now)

    # Between two gateways -----------------------------------------------------------------------------------------

    def _on_hop(self, domain: str, link: int, payload: bytes, now: float) -> None:
        try:
            message = decode_hop(payload[len(ROUTED_PREFIX) :])
            match message:
                case StateAnnounced(payload=state):
                    self._announce(self._paths.announced(domain, state, now))
                case PassedTaken(count=number):
                    self._passed.taken(domain, number)
                case Passed():
                    self._on_passed(domain, message, now)
        except RemoteProtocolError as error:
            self._outputs.append(ForSharedLinks(CloseServerLink(link, shown(f"{domain}: {error}"))))

    def _on_passed(self, domain: str, message: Passed, now: float) -> None:
        """Take a message at its end, or pass it on; :class:`RemoteProtocolError` if its path cannot be."""
        path, place = message.path, message.place
        is_here = place < len(path) and path[place] == self._own and path[place - 1] == domain
        if not is_here or len(set(path)) < len(path):
            raise RemoteProtocolError("a message has a path on which it cannot have come", None)
        self._untaken[domain] = self._untaken.get(domain, 0) + 1
        if self._untaken[domain] >= FINISHED_EACH:
            self._say_taken(domain)
        if place + 1 == len(path):
            self._on_end(message, now)
        elif self._may_pass(message, domain, path[place + 1]):
            self._to_neighbour(path[place + 1], Passed(message.type, path, place + 1, message.payload))

    def _may_pass(self, message: Passed, source: str, target: str) -> bool:
        """Return whether a message goes on: both neighbours share its type here, and not too many wait."""
        if message.type not in self._paths.types or target not in self._direct:
            return False
        neighbours = self._settings.neighbours
        if any(message.type not in neighbours[each].shared for each in (source, target)):
            return False
        return self._passed.may_pass(source, target, len(message.payload))

    def _say_taken(self, domain: str) -> None:
        self._to_neighbour(domain, PassedTaken(self._untaken.pop(domain)))

    def _unlinked(self, domain: str, now: float) -> None:
        self._untaken.pop(domain, None)
        self._passed.link_down(domain)
        self._paths.link_down(domain, now)

    def _announce(self, outputs: list[RoutingOutput]) -> None:
        for each in outputs:
            if isinstance(each, SendToDomain):
                self._to_neighbour(each.domain, StateAnnounced(each.payload))

    def _to_neighbour(self, domain: str, message: HopMessage) -> None:
        payload = encode_hop(message)
        if (link := self._direct.get(domain)) is not None and len(payload) <= PASSED_BYTES_MAX:
            self._outputs.append(ForSharedLinks(SendOnServerLink(link, payload)))

    # Between both ends --------------------------------------------------------------------------------------------

    def _on_end(self, message: Passed, now: float) -> None:
        """Take a message of another end; those between have not seen what is in it."""
        domain, path = message.path[0], TreePath(message.type, message.path[::-1])
        end = self._of_domain.get(domain)
        try:
            inner = decode_end(message.payload)
        except RemoteProtocolError as error:
            if end is not None and end.path == path:
                self._end(end, str(error), is_told=True)
            return
        if end is None or end.id != inner.id or end.path != path:
            if isinstance(inner, RoutedCalled):
                self._on_called(domain, path, inner.id, now)
            elif not isinstance(inner, RoutedEnded):
                self._send_by(path, RoutedEnded(inner.id, "the link is unknown here"))
            return
        end.heard = now
        try:
            match inner:
                case RoutedCalled():
                    self._send(end, RoutedAnswered(end.id))
                case RoutedAnswered() if not end.is_open:
                    end.is_open = True
                    self._report(ServerLinkOpened(end.link, link_name(domain, ROUTED), is_ours=True))
                case RoutedCarried() if end.is_open:
                    payload = end.received(inner)
                    self._report(ServerMessageReceived(end.link, link_name(domain, ROUTED), payload))
                case RoutedProbed() if end.is_open:
                    self._carry(end, end.probed(inner))
                case RoutedEnded(reason=reason):
                    self._end(end, reason, is_told=False)
        except RemoteProtocolError as error:
            self._end(end, str(error), is_told=True)

    def _on_called(self, domain: str, path: TreePath, identity: LinkId, now: float) -> None:
        """Take a new link of a domain that has none here, on the path that the tree has here, too."""
        is_expected = domain < self._own and domain not in self._direct
        if not is_expected or self._paths.path_by(path.type, domain) != path:
            self._send_by(path, RoutedEnded(identity, "no such link is expected here"))
            return
        if (former := self._of_domain.get(domain)) is not None:
            self._end(former, "another link replaces it", is_told=False)
        end = RoutedEnd(self._new_number(), domain, path, identity, now, is_ours=False)
        self._ends[end.link] = self._of_domain[domain] = end
        self._send(end, RoutedAnswered(identity))
        self._report(ServerLinkOpened(end.link, link_name(domain, ROUTED), is_ours=False))

    def _call_missing(self, now: float) -> None:
        """Open links to the domains that have none, and to which there is a path."""
        self._is_wanting = False
        for domain in self._settings.neighbours:
            if self._own < domain and domain not in self._direct and domain not in self._of_domain:
                if (path := self._paths.path_to(domain)) is None:
                    continue
                number = self._new_number()
                end = RoutedEnd(number, domain, path, LinkId(self._epoch, number), now, is_ours=True)
                self._ends[number] = self._of_domain[domain] = end
                self._send(end, RoutedCalled(end.id))

    def _take_turn(self, now: float) -> None:
        """Probe links, close silent ones, and open those that are missing."""
        self._turn_at = None
        for domain in list(self._untaken):
            self._say_taken(domain)
        for each in list(self._ends.values()):
            if now - each.heard >= SILENT_S:
                self._end(each, f"nothing came for {SILENT_S:g} s", is_told=True)
            elif each.is_open:
                self._send(each, each.probe())
            else:
                self._send(each, RoutedCalled(each.id))
        self._call_missing(now)

    def _end(self, end: RoutedEnd, reason: str, *, is_told: bool) -> None:
        del self._ends[end.link], self._of_domain[end.domain]
        self._is_wanting = True
        if is_told:
            self._send(end, RoutedEnded(end.id, reason[:256]))
        if end.is_open:
            self._report(ServerLinkClosed(end.link, link_name(end.domain, ROUTED), reason))

    def _carry(self, end: RoutedEnd, several: list[RoutedCarried]) -> None:
        for each in several:
            self._send(end, each)

    def _send(self, end: RoutedEnd, message: EndMessage) -> None:
        self._send_by(end.path, message)

    def _send_by(self, path: TreePath, message: EndMessage) -> None:
        self._to_neighbour(path.domains[1], Passed(path.type, path.domains, 1, encode_end(message)))

    def _report(self, report: ForeignLinkReport) -> None:
        self._outputs.append(AtGateway(report))

    # Time ---------------------------------------------------------------------------------------------------------

    def _take(self, now: float) -> list[RoutedOutput]:
        if self._turn_at is None and (self._ends or self._is_wanting or self._untaken):
            self._turn_at = now + TURN_S
        at = min((each for each in (self._turn_at, self._paths.due_at()) if each is not None), default=None)
        if at is not None and (self._timer_at is None or at < self._timer_at):
            self._timer_at = at
            self._outputs.append(SetTimer(TIMER, at))
        outputs, self._outputs = self._outputs, []
        return outputs
