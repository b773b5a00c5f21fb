"""Simulated server of a domain: broker, sessions at leaders and interest over a disk that crashes and fills."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import (
    DiskFreed,
    DiskFull,
    LinkClosed,
    LinkDropped,
    LinkOpened,
    MessageArrived,
    SendOnLink,
)
from wanderbus.broker.rollback.messages import LogRolledBack, ServerStarted
from wanderbus.broker.signals import BrokerOutput, ForInterest, ForLeaders
from wanderbus.broker.state.start import has_moved
from wanderbus.channels.decentralised_channels import CAUSAL_PREFIX
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.composition import Composition
from wanderbus.machine import CancelTimer, ClockRead, Input, Output, SetTimer
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.peers.decentralised_interest import DecentralisedInterest
from wanderbus.peers.leader_sessions import LeaderSessions
from wanderbus.peers.messages import (
    CloseServerLink,
    ConnectServer,
    ConsumedOnServerLink,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.peers.multicast_group import MulticastGroup
from wanderbus.peers.parts import BROKER, SERVER_LINKS
from wanderbus.peers.server_parts import ServerParts
from wanderbus.peers.server_traffic import ServerTraffic
from wanderbus.records import SERVER_LOG
from wanderbus.simulation.disk import DiskCopy
from wanderbus.simulation.domains.domain_links import DomainLink, DomainLinks
from wanderbus.simulation.storage import Storage
from wanderbus.simulation.timers import Timers
from wanderbus.simulation.world import World

DOMAIN: Final = "sim.test"


class DomainNode(ABC):
    """A server with the name ``name``, which crashes and starts over its disk; a subclass has the links to devices.

    :param save_s: shortest and longest pause until the rows are saved again
    """

    def __init__(
        self, world: World, name: str, channels: OwnChannels, config: BrokerConfig, *, save_s: tuple[float, float]
    ) -> None:
        self.name = name
        self.channels = channels
        self._config = msgspec.structs.replace(config, server=name, domain=DOMAIN)
        self.storage = Storage(world, self._config, self.feed, save_s=save_s)
        self.disk, self.engine = self.storage.disk, self.storage.engine
        self.crashes = 0
        self.problems: list[str] = []
        self.rollbacks: list[str] = []
        """Reasons for which the broker took its log for an earlier copy."""
        self.links: DomainLinks
        """The links between servers, which the scenario sets."""
        self.broker: Broker
        """The broker of this life; while the server is down, that of the last one."""
        self.sessions: LeaderSessions
        """Sessions at the other leaders, of the same life as the broker."""
        self.interest: DecentralisedInterest | None = None
        """Interest in decentralised channels, of the same life; None if there are none."""
        self._world = world
        self._last_link = 0
        self._open: dict[int, DomainLink] = {}
        """Open links to servers, by this server's number."""
        self._devices: dict[int, Callable[[bytes], None]] = {}
        """Function that sends to the device, by the number of its open link."""
        self._timers = Timers(world, self._fire)
        self._is_full = False

    @property
    def alive(self) -> bool:
        """Return whether the server runs."""
        return self.storage.is_up

    @property
    def spark_subjects(self) -> tuple[str, ...]:
        """Return the subjects that the engine matches."""
        return self._config.spark_subjects

    # Host -----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Boot from the disk."""
        state, decentralised = self.storage.start(), self.channels.decentralised
        epoch = self.storage.lives
        self.broker = Broker(state, self._config, channels=self.channels)
        self.interest = (
            None
            if decentralised is None
            else DecentralisedInterest(decentralised, epoch=epoch, group=self._make_group())
        )
        self.sessions = LeaderSessions(
            self.channels,
            epoch=epoch,
            positions=dict(state.leaders.items()),
            have_moved=has_moved(state, self.channels.layout),
        )
        self._parts = Composition[Output]()
        self._parts.add(BROKER, self.broker.step, self._route_broker)
        self._reports = _LinkReports()
        links: Any = self._reports
        servers = ServerParts(self.channels.server, links, self.sessions, self.interest)
        self._traffic = ServerTraffic(self._parts, servers, DOMAIN)
        self._note("starts")
        self._start_parts()
        self.storage.save_later(state)

    def _make_group(self) -> MulticastGroup | None:
        """Return the multicast group of a new life, None if the domain has none."""
        return None

    def _start_parts(self) -> None:
        """Start the broker and then request the links, as an access server does."""
        self._start_broker()
        self._request_links()

    def _start_broker(self) -> None:
        self.feed(ServerStarted())

    def _request_links(self) -> None:
        self._traffic.start(self._world.now)
        self._run()

    def crash(self, *, lose_rows: bool) -> None:
        """Lose power, and with it every link; the state file may be lost too."""
        self.problems += self.check_rows()
        self.crashes += 1
        self.storage.stop()
        self._is_full = False
        self._note("crashes")
        self._timers.clear()
        self._open.clear()
        self._devices.clear()
        self._lose_devices()
        self.links.server_crashed(self)
        self.storage.crash(lose_rows=lose_rows)

    def restore(self, copy: DiskCopy, *, lose_rows: bool) -> None:
        """Lose power, and start next time from an earlier copy of the disk."""
        self.crash(lose_rows=False)
        self._note(f"the disk is replaced by a copy with {len(copy.logs[SERVER_LOG])} records")
        self.disk.restore(copy)
        if lose_rows:
            self.disk.forget_rows()

    def next_link(self) -> int:
        """Return the number of a new link, in rising order."""
        self._last_link += 1
        return self._last_link

    def fill_disk(self, *, is_full: bool) -> None:
        """Fill the disk, or make room."""
        if self.alive and self._is_full != is_full:
            self._is_full = is_full
            self._note("disk full" if is_full else "disk freed")
            self.feed(DiskFull() if is_full else DiskFreed())

    # Machines -------------------------------------------------------------------------------------------------------

    def feed(self, *inputs: Any) -> None:
        """Feed ``inputs`` to the broker, and perform what follows."""
        if self.alive:
            self._parts.give(BROKER, [ClockRead(self._world.wall_us), *inputs])
            self._run()

    def _feed_links(self, *reports: Any) -> None:
        if self.alive:
            self._parts.precede(BROKER, ClockRead(self._world.wall_us))
            self._parts.give(SERVER_LINKS, reports)
            self._run()

    def _run(self) -> None:
        self._parts.run(self._world.now)
        for output in self._parts.take_outputs():
            self._perform(output)

    def _route_broker(self, outputs: list[BrokerOutput], now: float) -> None:
        for_links: list[SendOnLink | LinkDropped] = []
        for_leaders: list[ForLeaders] = []
        for_interest: list[ForInterest] = []
        for output in outputs:
            if isinstance(output, SendOnLink):
                self._check_durable(output.payload)
            match output:
                case SendOnLink(link=link) | LinkDropped(link=link) if link not in self._devices:
                    for_links.append(output)
                case _ if isinstance(output, ForLeaders):
                    for_leaders.append(output)
                case _ if isinstance(output, ForInterest):
                    for_interest.append(output)
                case _:
                    self._parts.emit(output)
        self._traffic.give_broker_outputs(for_links, for_leaders, for_interest)
        self._traffic.consumed(self.broker.take_done())

    def _perform(self, output: Input | Output) -> None:
        match output:
            case SendOnServerLink(link=number, payload=payload):
                if link := self._open.get(number):
                    link.send(self, payload)
            case CloseServerLink(link=number, reason=reason):
                if link := self._open.get(number):
                    self._close_link(link, reason)
            case ConnectServer(server=server):
                self.links.watch(self.name, server)
            case SendOnLink(link=number, payload=payload):
                self._devices[number](payload)
            case LinkDropped(link=number, reason=reason):
                self._drop_device(number, reason)
            case SetTimer(key=key, at=at):
                self._timers.set(key, at)
            case CancelTimer(key=key):
                self._timers.cancel(key)
            case LogRolledBack(reason=reason, session=""):
                self.rollbacks.append(reason)
            case Output():
                self.storage.perform(output)

    def _fire(self, key: Hashable) -> None:
        self._parts.precede(BROKER, ClockRead(self._world.wall_us))
        assert self._parts.give_timer(key), key
        self._run()

    # Links to servers -----------------------------------------------------------------------------------------------

    def link_opened(self, link: DomainLink) -> None:
        """Report a link to another server, in place of an earlier one of the same opener."""
        if not self.alive:
            return
        for each in [one for one in self._open.values() if (one.source, one.target) == (link.source, link.target)]:
            self.link_closed(each, "replaced")
        number, server = link.numbers[self.name], link.other(self).name
        self._open[number] = link
        self._note(f"link {number} with {server} opens")
        self._feed_links(ServerLinkOpened(number, server, is_ours=self is link.source))

    def link_closed(self, link: DomainLink, reason: str) -> bool:
        """Report a closed link; return False if that is known already."""
        number = link.numbers[self.name]
        if self._open.pop(number, None) is None:
            return False
        self._feed_links(ServerLinkClosed(number, link.other(self).name, reason))
        return True

    def arrived(self, link: DomainLink, payloads: Sequence[bytes]) -> None:
        """Take messages of the other side of a link."""
        number, server = link.numbers[self.name], link.other(self).name
        if number in self._open:
            self._feed_links(*[ServerMessageReceived(number, server, each) for each in payloads])

    def _close_link(self, link: DomainLink, reason: str) -> None:
        closing = f"{self.name} closes a link to {link.other(self).name}: {reason}"
        self._note(closing)
        if not self._may_close(link):
            self.problems.append(closing)
        self.links.break_link(link, self)

    def _may_close(self, link: DomainLink) -> bool:
        """Return whether this server may close ``link`` although everything is right."""
        return False

    # Links to devices -----------------------------------------------------------------------------------------------

    def close(self, link: int, reason: str) -> None:
        """Report a link to a device as lost, unless that is known already."""
        if self._devices.pop(link, None) is not None:
            self.feed(LinkClosed(link, reason))

    def _open_device(self, link: int, user: str, device: str, send: Callable[[bytes], None]) -> None:
        """Report a link to a device, to which ``send`` sends."""
        self._devices[link] = send
        self.feed(LinkOpened(link, user, device))

    def _device_sent(self, link: int, payloads: Sequence[bytes]) -> None:
        """Take messages of a device."""
        self.feed(*[MessageArrived(link, payload) for payload in payloads])

    @abstractmethod
    def _drop_device(self, link: int, reason: str) -> None:
        """Close the link to a device for the broker."""

    @abstractmethod
    def _lose_devices(self) -> None:
        """Break the links to all devices in a crash."""

    # Checks ---------------------------------------------------------------------------------------------------------

    def _check_durable(self, payload: bytes) -> None:
        """Note an event that is announced before it is durable; messages of the causal order have their own check."""
        if payload[:1] == CAUSAL_PREFIX:
            return
        match protocol.decode_from_broker(payload):
            case protocol.Notify(id=event) | protocol.NotifyServer(id=event) | protocol.PublishAccepted(id=event):
                if event.origin == self.name and event.number >= self.disk.durable:
                    self.problems.append(f"{event} was announced before it was durable")

    def check_rows(self) -> Iterator[str]:
        """Yield the differences between the live state and those on the disk."""
        for problem in self.storage.check_rows(self.broker.state):
            yield f"{self.name}: {problem}"

    def check_nothing_waits(self) -> Iterator[str]:
        """Yield what is still on its way though all is quiet."""
        if not self.alive:
            yield f"{self.name} is down"
        for status in self.sessions.statuses():
            if status.waiting_publishes:
                yield f"{self.name} waits for {status.waiting_publishes} answers of {status.leader}"
        for what, waiting in self.broker.diagnostics.waiting().items():
            yield f"{self.name} has {what} without an answer: {waiting}"
        if self.broker.engine.is_waiting:
            yield f"{self.name} has events that wait for its engine"
        for identity, row in self.broker.state.subscriptions.items():
            if row.history:
                yield f"{self.name} has not caught up {identity}: {row.history}"
        if self.sessions.pending:
            yield f"{self.name} has subscriptions that do not count: {self.sessions.pending}"
        if self.interest is not None:
            if retained := self.broker.state.decentralised.causal.outgoing.retained:
                yield f"{self.name} retains {sorted(retained)}"
            if self.interest.pending:
                yield f"{self.name} has subscriptions that do not count: {self.interest.pending}"
        for link in self._open:
            if left := self._reports.unconsumed[link]:
                yield f"{self.name} has consumed {left} messages of a link too few"

    def _note(self, what: str) -> None:
        self._world.note(self.name, what)


class _LinkReports:
    """In place of the links between servers: passes reports on, and requests to the world."""

    def __init__(self) -> None:
        self.unconsumed: Counter[int] = Counter()
        """Messages of each link that were not reported as consumed; they keep the window of the sender closed."""

    def step(self, inputs: Sequence[Any], now: float) -> list[Any]:
        """Return the inputs, without the counts of consumed messages."""
        passed = []
        for each in inputs:
            if isinstance(each, ConsumedOnServerLink):
                self.unconsumed[each.link] -= each.messages
                continue
            if isinstance(each, ServerMessageReceived):
                self.unconsumed[each.link] += 1
            passed.append(each)
        return passed
