"""Moves of sessions between this server and the others of its domain (SPEC L; decision 0142).

::

    broker  ◀── fence, await, import, ... ── ┌──────────────────┐ ──▶ messages on links
    broker  ─── exported, owned, ... ──────▶ │ SessionHandovers │ ◀── messages, links open and close
             ─── move a session ────────▶ └──────────────────┘

The source is the authority: what is durable is in the brokers at both ends, and this machine repeats what a crash or a
broken link has lost. Messages are in :mod:`wanderbus.peers.handover.messages`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final

from wanderbus.broker.servers.server_users import ServerUsers
from wanderbus.broker.sessions.handover_messages import (
    AwaitedEffective,
    DeviceLocated,
    DrainingSet,
    FormerServerAsked,
    HandoverInput,
    HandoverOutput,
    HeadFound,
    MoveSession,
    OthersAsked,
    PastFound,
    QueueReached,
    SessionExported,
    SessionFound,
    SessionMoveEnded,
    SessionMoveRefused,
    SessionOwned,
    SessionReported,
    SessionWanted,
)
from wanderbus.broker.state.state import BrokerState
from wanderbus.errors import RemoteProtocolError
from wanderbus.machine import CancelTimer, ClockRead, Input, Output, SetTimer, TimerFired
from wanderbus.peers.far_servers import FarDomains, FarServerMet, ServersFound
from wanderbus.peers.handover import visitors
from wanderbus.peers.handover.arriving_sessions import ArrivingSessions
from wanderbus.peers.handover.device_pasts import DevicePasts
from wanderbus.peers.handover.draining import TIMER as DRAIN
from wanderbus.peers.handover.draining import Draining
from wanderbus.peers.handover.far_moves import FarMovesOutput
from wanderbus.peers.handover.following import TIMER as FOLLOW
from wanderbus.peers.handover.following import Following
from wanderbus.peers.handover.leaving_sessions import PIECE_BYTES, LeavingSessions
from wanderbus.peers.handover.messages import (
    HeadAsked,
    Message,
    MoveWithdrawn,
    OfMoves,
    OfVisitors,
    Part,
    PastAnswered,
    PastAsked,
    SessionAnswered,
    VisitorAnswered,
    VisitorCame,
    decode,
    encode,
)
from wanderbus.peers.handover.visitors import Visitors, VisitorsOutput
from wanderbus.peers.handover.visits import Visits
from wanderbus.peers.messages import (
    CloseServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.peers.open_links import OpenLinks
from wanderbus.peers.owner_messages import VisitorCalled
from wanderbus.server_networks import ServerNetworks

_NO_REQUEST: Final = 0
"""Number of a question for the end of a log of which nobody awaits the answer."""

HandoversInput = (
    HandoverOutput
    | DeviceLocated
    | ServerLinkOpened
    | ServerLinkClosed
    | ServerMessageReceived
    | FarServerMet
    | ServersFound
    | VisitorCalled
    | ClockRead
    | TimerFired
)
"""Inputs of the handovers."""

HandoversOutput = HandoverInput | FarMovesOutput | VisitorsOutput | CloseServerLink | SetTimer | CancelTimer
"""Outputs of the handovers."""


class SessionHandovers:
    """Both ends of the moves of sessions; ``step`` as in every machine.

    :param others: the names of the other servers of the domain
    :param access: those to which a session may move
    :param state: the state of this server, which it only reads
    :param domain: domain of the servers
    :param networks: the server that is near to a device
    :param piece_bytes: size of a piece of a queue
    :param domains: the foreign domains
    :param service: SIP URI of the service that users call
    :param visit_key: that by which the proxies of the domain prove calls to other domains; empty if none does
    :param serves: whether this server serves devices
    """

    def __init__(
        self,
        others: Iterable[str],
        access: Container[str],
        state: BrokerState,
        domain: str,
        networks: ServerNetworks | None = None,
        piece_bytes: int = PIECE_BYTES,
        domains: FarDomains | None = None,
        *,
        service: str = "",
        visit_key: bytes = b"",
        serves: bool = True,
    ) -> None:
        self._outputs: list[HandoversOutput] = []
        self._links = OpenLinks()
        self._far_links = OpenLinks()
        emit = self._outputs.append
        self._leaving = LeavingSessions(others, access, state, self._links, emit, piece_bytes, domains, self._far_links)
        self._far = self._leaving.far
        reserves = ServerUsers(state, domain).reserves
        self._arriving = ArrivingSessions(state, self._links, self._leaving, emit, self._far, reserves, serves=serves)
        self._draining = Draining(state, reserves, self._links, self._leaving, self._outputs.append)
        self._pasts = DevicePasts(self._links, self._outputs.append)
        near = networks or ServerNetworks({})
        self._following = Following(state, near, self._leaving, self._outputs.append)
        self._visitors = Visitors(state, self._far, service, emit)
        self._visits = Visits(state, domain, self._far, self._leaving, visit_key, emit)

    def rows(self) -> dict[str, dict[str, int]]:
        """Return the sessions that are on their way to and from each other server, for its row in the listing.

        The epoch of a next owner is the time at which the move began, or later.
        """
        rows: dict[str, dict[str, int]] = {}
        for name, moving in (("leaving", self._leaving.moving()), ("arriving", self._arriving.moving())):
            for server, epochs in moving.items():
                rows.setdefault(server, {}).update({name: len(epochs), f"{name}_since_us": min(epochs)})
        return rows

    def start(self) -> list[HandoversOutput]:
        """Begin a life of the server; return the requests for links to servers of other domains."""
        self._far.settle(self._visitors.servers)
        outputs = list(self._outputs)
        self._outputs.clear()
        return outputs

    def step(self, inputs: Iterable[Input | Output], now: float) -> list[HandoversOutput]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        self._leaving.begin_step(now)
        for given in inputs:
            match given:
                case ServerMessageReceived():
                    self._on_message(given, now)
                case FarServerMet() | ServersFound():
                    self._on_far(given, now)
                case ServerLinkOpened(server=server) | ServerLinkClosed(server=server) if "/" in server:
                    self._on_far(given, now)
                case ClockRead() | VisitorCalled() | TimerFired(key=visitors.TIMER):
                    self._on_visitors(given, now)
                case ServerLinkOpened(link=link, server=server):
                    self._links.opened(link, server)
                    self._leaving.link_opened(server)
                    self._arriving.link_opened(server)
                    self._pasts.link_opened(server)
                case ServerLinkClosed(link=link, server=server):
                    self._links.closed(link, server)
                    self._arriving.link_closed(link)
                    self._pasts.link_closed(server)
                case MoveSession():
                    self._leaving.begin(given)
                case DeviceLocated():
                    self._following.located(given, now)
                    self._arriving.located(given.user)
                case FormerServerAsked():
                    self._pasts.asked(given)
                case PastFound():
                    self._pasts.found(given)
                case OthersAsked(question=question, server=asked):
                    for each in sorted(self._links.servers & {asked} if asked else self._links.servers):
                        self._links.send(each, encode(HeadAsked(_NO_REQUEST, question)), self._outputs.append)
                case SessionFound(server=asker, question=question, names=names):
                    answer = SessionAnswered(question, names, given.is_here)
                    self._links.send(asker, encode(answer), self._outputs.append)
                case DrainingSet():
                    pass  # the step looks at the state
                case HeadFound():
                    self._leaving.head_found(given)
                case SessionExported():
                    self._leaving.exported(given)
                case SessionMoveRefused(user=user, session=session):
                    (self._leaving if (user, session) in self._leaving else self._arriving).refused(given)
                case AwaitedEffective():
                    self._arriving.effective(given)
                case SessionOwned():
                    self._arriving.owned(given)
                case QueueReached():
                    self._arriving.reached(given)
                case TimerFired(key=key) if key == DRAIN:
                    self._draining.timer_fired()
                case TimerFired(key=key) if key == FOLLOW:
                    self._following.timer_fired(now)
                case TimerFired(key=key):
                    self._leaving.timer_fired(key)
        for ended in [each for each in self._outputs if isinstance(each, SessionMoveEnded)]:
            self._draining.ended(ended, now)
            self._following.ended(ended, now)
            self._visits.ended(ended)
        self._draining.go_on(now)
        self._leaving.go_on()
        self._far.settle(self._visitors.servers)
        outputs = list(self._outputs)
        self._outputs.clear()
        return outputs

    def _on_visitors(self, given: ClockRead | VisitorCalled | TimerFired, now: float) -> None:
        """Take an input about visitors."""
        match given:
            case ClockRead(wall_us=wall_us):
                self._visits.clock_read(wall_us)
            case VisitorCalled():
                self._visitors.called(given, now)
            case TimerFired():
                self._visitors.timer_fired(now)

    def _on_far(self, given: ServerLinkOpened | ServerLinkClosed | FarServerMet | ServersFound, now: float) -> None:
        """Take a report about servers of other domains."""
        match given:
            case ServerLinkOpened(link=link, server=server):
                self._far_links.opened(link, server)
                self._leaving.link_opened(server)
                self._arriving.link_opened(server)
                self._visitors.link_opened(server, now)
            case ServerLinkClosed(link=link, server=server):
                self._arriving.link_closed(link)
                if not self._far_links.closed(link, server):  # what was sent on it may be lost
                    self._leaving.link_opened(server)
                    self._arriving.link_opened(server)
                    self._visitors.link_opened(server, now)
            case FarServerMet(server=server, version=version):
                self._far.met(server)
                self._visitors.met(server, version)
            case ServersFound():
                self._leaving.servers_found(given)
                self._visitors.found(given)

    def _on_message(self, received: ServerMessageReceived, now: float) -> None:
        server = received.server
        try:
            message = decode(received.payload)
            if "/" in server and not _may_be_far(message):
                raise RemoteProtocolError("a server of another domain may not ask this", None)
            if "/" not in server and isinstance(message, OfVisitors):
                raise RemoteProtocolError("a server of this domain may not ask this", None)
            if isinstance(message, PastAsked | PastAnswered):
                self._pasts.received(server, message)
            elif isinstance(message, HeadAsked) and message.question is not None:
                self._outputs.append(SessionWanted(server, message.question))
            elif isinstance(message, SessionAnswered):
                self._outputs.append(SessionReported(server, message.question, message.names, message.is_here))
            elif isinstance(message, VisitorCame):
                self._visits.came(server, message)
            elif isinstance(message, VisitorAnswered):
                self._visitors.answered(server, message, now)
            elif isinstance(message, Part | MoveWithdrawn):
                self._arriving.received(received.link, server, message)
            else:
                self._leaving.received(server, message)
        except RemoteProtocolError as error:
            self._outputs.append(CloseServerLink(received.link, f"{server}: {error}"))


def _may_be_far(message: Message) -> bool:
    """Return whether a server of another domain may send a message: it is about sessions that move, or visitors."""
    if isinstance(message, HeadAsked):
        return message.question is None and bool(message.wanted_by)
    return isinstance(message, OfMoves | OfVisitors)
