"""Sessions of this server at all other leaders of channels: the access server's side of the ordered model (SPEC K-02).

::

    broker ──InterestChanged, ForwardPublish, ArrivalsTaken──▶ ┌────────────────┐ ──▶ messages on links to leaders
           ──AskLeader, SendToLeader─────────────────────────▶ │ LeaderSessions │
    broker ◀─InterestEffective, PublishAnswered, EventArrived──── │                │ ◀── messages, links open and close
           ◀─LeaderAnswered, FiltersArrived, LeaderLinkChanged └────────────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from wanderbus import protocol
from wanderbus.broker.messages import (
    ArrivalMatched,
    ArrivalsTaken,
    ArrivalsWanted,
    AskLeader,
    ForgetPublishes,
    ForwardPublish,
    InterestEffective,
    LeaderAnswered,
    OrderedInterestChanged,
    SendToLeader,
)
from wanderbus.broker.state.rows import LeaderRow
from wanderbus.channels.interest.interest_source import TURN_S
from wanderbus.channels.merging import Merging
from wanderbus.channels.pending import Pending
from wanderbus.filters import Filter
from wanderbus.machine import Input, Output, SetTimer, TimerFired
from wanderbus.peers.interest_charges import charges
from wanderbus.peers.leader_interest import LeaderInterest
from wanderbus.peers.leader_session import LeaderSession
from wanderbus.peers.leader_status import LeaderStatus
from wanderbus.peers.messages import (
    ConnectServer,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.peers.parts import AboutServers

RETRY_S: Final = 2.0
"""Pause until a subscription is requested again that a leader has refused, for example because its disk is full."""


class SessionPlaces(Protocol):
    """The servers at which a destination has sessions, and what it asks each of them for."""

    @property
    def merging_of(self) -> Callable[[str], Merging]:
        """Return the merging of the filters of a subject."""
        ...

    @property
    def lineage(self) -> Callable[[str], Sequence[str]]:
        """Return a subject, its parent and so on up to the top."""
        ...

    def session_places(self, *, have_moved: bool) -> Collection[str]:
        """Return the servers to have sessions at; ``have_moved`` tells whether channels have had other leaders."""
        ...

    def is_present(self, server: str) -> bool:
        """Return whether a server is in the domain now."""
        ...

    def other_leaders(self, subjects: Iterable[str]) -> frozenset[str]:
        """Return the servers that a subscription to ``subjects`` has to count at."""
        ...

    @property
    def awaits_interest(self) -> bool:
        """Return whether a server waits for a report that it has all interest."""
        ...


class LeaderSessions:
    """Keeps a session at every other leader; ``step`` works as in every machine.

    Its inputs are reports of links that this server opened, and outputs of the broker here. Its outputs are inputs of
    both.

    :param epoch: identifies this life of the server; it rises with each
    :param positions: the last event of each leader that is durable here
    :param have_moved: whether channels have had other leaders, which may still have events for this server
    """

    def __init__(
        self, channels: SessionPlaces, *, epoch: int, positions: Mapping[str, LeaderRow], have_moved: bool = False
    ) -> None:
        self._channels = channels
        self._outputs: list[AboutServers] = []
        self._sessions: dict[str, LeaderSession] = {}
        for leader in sorted(channels.session_places(have_moved=have_moved)):
            self._sessions[leader] = LeaderSession(
                leader,
                LeaderInterest(channels.merging_of),
                self._outputs,
                epoch=epoch,
                position=positions.get(leader) or LeaderRow(),
                reports_interest=channels.awaits_interest,
            )
        self._pending: Pending[str, str] = Pending()
        """Subscriptions here that do not count yet at some leader."""
        self._leaders: dict[str, frozenset[str]] = {}
        """Leaders of the subjects of each subscription here."""
        self._retrying: set[str] = set()
        self._merging: set[str] = set()
        """Leaders of which a change of the interest goes on when a timer fires."""

    def start(self) -> list[ConnectServer]:
        """Return the requests for links to all leaders that are in the domain."""
        return [ConnectServer(leader) for leader in self._sessions if self._channels.is_present(leader)]

    def has(self, server: str) -> bool:
        """Return whether there is a session at ``server``."""
        return server in self._sessions

    @property
    def pending(self) -> list[str]:
        """Return the subscriptions here that do not count yet at some leader."""
        return list(self._pending)

    def diagnostics(self) -> dict[str, LeaderInterest]:
        """Return the interest in the channels of each leader."""
        return {leader: session.interest for leader, session in self._sessions.items()}

    def statuses(self) -> list[LeaderStatus]:
        """Return the state of the session at each leader; one that has left is shown if something waits for it."""
        return [
            LeaderStatus(
                leader,
                session.link is not None,
                len(session.interest.wanted()),
                session.interest.is_settled,
                session.waiting_publishes,
                session.position.number,
            )
            for leader, session in self._sessions.items()
            if self._channels.is_present(leader) or session.waiting_publishes or session.interest.wanted()
        ]

    def step(self, inputs: Iterable[Input | Output], now: float) -> list[AboutServers]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        touched: dict[str, LeaderSession] = {}
        timers: list[AboutServers] = []
        for given in inputs:
            match given:
                case ServerMessageReceived(link=link, server=server, payload=payload):
                    session = touched[server] = self._sessions[server]
                    if session.link == link and session.received(payload) and server not in self._retrying:
                        self._retrying.add(server)
                        timers.append(SetTimer(server, now + RETRY_S))
                case ArrivalsTaken(leader=leader, epoch=epoch, number=number):
                    session = touched[leader] = self._sessions[leader]
                    session.taken(epoch, number)
                case ArrivalMatched(leader=leader, subject=subject, is_matched=is_matched):
                    session = touched[leader] = self._sessions[leader]
                    lineage = self._channels.lineage(subject)
                    session.send(session.interest.event_arrived(lineage, is_matched=is_matched))
                case ForwardPublish(leader=leader, publish=publish):
                    self._sessions[leader].publish(publish)
                case ForgetPublishes(leader=leader, requests=requests):
                    self._sessions[leader].forget(requests)
                case AskLeader(leader=leader, request=request):
                    if (asked := self._sessions.get(leader)) is not None:
                        asked.ask(request)
                    else:
                        reason = f"{leader} leads no channel of this domain; compare the domain files"
                        self._outputs.append(LeaderAnswered(protocol.RequestRefused(request.request, reason)))
                case SendToLeader(leader=leader, link=link, message=message):
                    self._sessions[leader].send_on(link, message)
                case OrderedInterestChanged():
                    touched |= self._on_interest_changed(given)
                case ServerLinkOpened(link=link, server=server):
                    self._sessions[server].opened(link)
                case ServerLinkClosed(link=link, server=server):
                    if self._sessions[server].link == link:
                        self._sessions[server].closed()
                case ArrivalsWanted(leader=leader):
                    self._sessions[leader].begin_again()
                case TimerFired(key=("merging", str(server))):
                    self._merging.discard(server)
                    session = touched[server] = self._sessions[server]
                    session.send(session.interest.go_on())
                case TimerFired(key=str(server)):
                    self._retrying.discard(server)
                    self._sessions[server].send(self._sessions[server].interest.retry())
        for session in touched.values():
            session.finish()
            if counting := self._pending.confirmed(session.leader, session.interest.confirmed):
                self._outputs.append(InterestEffective(tuple(counting)))
            if not session.interest.is_merged and session.leader not in self._merging:
                self._merging.add(session.leader)
                timers.append(SetTimer(("merging", session.leader), now + TURN_S))
        outputs, self._outputs[:] = [*self._outputs, *timers], []
        return outputs

    def _on_interest_changed(self, changed: OrderedInterestChanged) -> dict[str, LeaderSession]:
        """Pass new and ended subscriptions to the leaders of their subjects; return their sessions."""
        touched: dict[str, LeaderSession] = {}
        of_leader: dict[str, dict[str, list[tuple[str, Filter]]]] = {}
        only = frozenset([changed.at]) if changed.at else None
        for subscription, entries in changed.added.items():
            for subject, interest in entries:
                for leader in only or self._channels.other_leaders([subject]):
                    of_leader.setdefault(leader, {}).setdefault(subscription, []).append((subject, interest))
            self._leaders[subscription] = only or self._channels.other_leaders(subject for subject, _ in entries)
        units = 0.0
        for leader, added in sorted(of_leader.items()):
            session = touched[leader] = self._sessions[leader]
            session.send(session.interest.add(added))
            units += session.interest.units
        self._outputs += charges(changed.added, units)
        for subscription in changed.added:
            versions = {leader: self._sessions[leader].interest.version for leader in self._leaders[subscription]}
            self._pending.add(subscription, versions)
        for subscription in changed.removed:
            self._pending.drop(subscription)
            for leader in sorted(self._leaders.pop(subscription, ())):
                session = touched[leader] = self._sessions[leader]
                session.send(session.interest.remove(subscription))
        return touched
