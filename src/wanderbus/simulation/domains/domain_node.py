"""Simulated server of a domain: broker, sessions at leaders and interest, and its links to the other servers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import DiskFreed, DiskFull, LinkDropped, LogBegins, SendOnLink
from wanderbus.broker.rollback.messages import LogRolledBack, ServerStarted
from wanderbus.broker.sessions.handover_messages import HandoverOutput
from wanderbus.broker.signals import BrokerOutput, ForInterest, ForLeaders
from wanderbus.broker.state.start import has_moved
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.decentralised_channels import CAUSAL_PREFIX
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.composition import Composition
from wanderbus.machine import ClockRead, DatagramReceived, Input, Output, SendDatagram
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.peers.decentralised_interest import DecentralisedInterest
from wanderbus.peers.handover.session_handovers import SessionHandovers
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
from wanderbus.peers.parts import BROKER, DECENTRALISED_INTEREST, MULTICAST_SOCKET, SERVER_LINKS
from wanderbus.peers.server_parts import ServerParts
from wanderbus.peers.server_traffic import ServerTraffic
from wanderbus.records import SERVER_LOG
from wanderbus.simulation.broker_host import BrokerHost
from wanderbus.simulation.disk import DiskCopy
from wanderbus.simulation.domains.links import DomainLink, DomainLinks
from wanderbus.simulation.domains.multicast_network import GROUP
from wanderbus.simulation.world import World

DOMAIN: Final = "sim.test"

SAVE_S: Final = (0.2, 8.0)
"""Shortest and longest pause until the rows are saved again."""

_VISITOR: Final = "another device"


class DomainNode(BrokerHost):
    """A server with the name ``name``, which crashes, and whose disk fills, is restored, or loses old records."""

    links: DomainLinks
    """The links between servers, which the scenario sets."""
    sessions: LeaderSessions
    """Sessions at the other leaders, of the same life as the broker."""

    def __init__(
        self,
        world: World,
        name: str,
        channels: OwnChannels,
        config: BrokerConfig,
        *,
        domain: str = DOMAIN,
        save_s: tuple[float, float] = SAVE_S,
    ) -> None:
        super().__init__(world, msgspec.structs.replace(config, server=name, domain=domain), save_s=save_s)
        self.domain = domain
        self.channels = channels
        self.is_fixed = True
        """False if its channels may change when it starts."""
        self.rollbacks: list[str] = []
        """Reasons for which the broker took its log for an earlier copy."""
        self.interest: DecentralisedInterest | None = None
        """Interest in decentralised channels, of the same life; None if there are none."""
        self.may_close: Callable[[DomainLink], bool] = lambda link: link.source is self
        """Returns whether this server may close a link although everything is right: an own one, unless set."""
        self.make_group: Callable[[], MulticastGroup] | None = None
        """Returns the multicast group of a new life; None without one."""
        self.send_to_group: Callable[[bytes], None] = lambda data: None
        self._repaired = 0
        self._server_links: dict[int, DomainLink] = {}
        """Open links to servers, by this server's number."""
        self._is_full = False

    # Host -----------------------------------------------------------------------------------------------------------

    def _boot(self, state: BrokerState) -> None:
        decentralised, epoch = self.channels.decentralised, self.storage.lives
        self.broker = Broker(state, self.config, channels=self.channels)
        if decentralised is not None:
            group = None if self.make_group is None else self.make_group()
            self.interest = DecentralisedInterest(decentralised, epoch=epoch, group=group)
        self.sessions = LeaderSessions(
            self.channels,
            epoch=epoch,
            positions=dict(state.leaders.items()),
            have_moved=has_moved(state, self.channels.layout),
        )
        self._parts = Composition[Output]()
        self._parts.add(BROKER, self.broker.step, self._route_broker)
        self._reports = LinkReports()
        links: Any = self._reports
        servers = ServerParts(self.channels.server, links, self.sessions, self.interest)
        self._traffic = ServerTraffic(self._parts, servers, self.domain, handovers=self._make_handovers(state))
        self._add_parts()
        # No order may break a promise; an access server starts its broker first.
        starts = [lambda: self.feed(ServerStarted()), self._request_links]
        for start in starts if epoch % 2 else reversed(starts):
            start()

    def _add_parts(self) -> None:
        """Add further parts to those of a server of a domain."""

    def _make_handovers(self, state: BrokerState) -> SessionHandovers | None:
        """Return what moves sessions to other servers and from them; None moves none."""
        return None

    def _request_links(self) -> None:
        self._traffic.start(self._world.now)
        self._run()

    def crash(self, *, lose_rows: bool) -> None:
        """Lose power, and with it every link; the state file may be lost too."""
        self._repaired, self.interest = self.repaired_changes(), None
        super().crash(lose_rows=lose_rows)
        self._is_full = False
        self._server_links.clear()
        self.links.server_crashed(self)

    def restore(self, copy: DiskCopy, *, lose_rows: bool) -> None:
        """Lose power, and start next time from an earlier copy of the disk."""
        self.crash(lose_rows=False)
        self._note(f"the disk is replaced by a copy with {len(copy.logs[SERVER_LOG])} records")
        self.disk.restore(copy)
        if lose_rows:
            self.disk.forget_rows()

    def fill_disk(self, *, is_full: bool) -> None:
        """Fill the disk, or make room."""
        if self.alive and self._is_full != is_full:
            self._is_full = is_full
            self._note("disk full" if is_full else "disk freed")
            self.feed(DiskFull() if is_full else DiskFreed())

    def drop_log(self) -> None:
        """Lose old records of the log, as retention does."""
        if self.alive and (end := self.disk.durable):
            begins = self.storage.log_begins = max(self.storage.log_begins, self._world.random.randint(end // 2, end))
            self._note(f"log begins at {begins}")
            self.feed(LogBegins(begins))

    # Machines -------------------------------------------------------------------------------------------------------

    def _step(self, inputs: Sequence[Any]) -> None:
        self._parts.give(BROKER, inputs)
        self._run()

    def _feed_part(self, part: Any, inputs: Sequence[Any]) -> None:
        """Feed ``inputs`` to another part than the broker."""
        if self.alive:
            self._parts.precede(BROKER, ClockRead(self.wall_us))
            self._parts.give(part, inputs)
            self._run()

    def _run(self) -> None:
        self._parts.run(self._world.now)
        for output in self._parts.take_outputs():
            self._perform(output)

    def _route_broker(self, outputs: list[BrokerOutput], now: float) -> None:
        for_links: list[SendOnLink | LinkDropped] = []
        for_leaders: list[ForLeaders] = []
        for_interest: list[ForInterest] = []
        for_handovers: list[HandoverOutput] = []
        for output in outputs:
            match output:
                case SendOnLink(link=link, payload=payload) if link not in self._wires:
                    if payload[:1] != CAUSAL_PREFIX:  # messages of the causal order have their own check
                        self._check_durable(protocol.decode_from_broker(payload))
                    for_links.append(output)
                case LinkDropped(link=link) if link not in self._wires:
                    for_links.append(output)
                case _ if isinstance(output, ForLeaders):
                    for_leaders.append(output)
                case _ if isinstance(output, ForInterest):
                    for_interest.append(output)
                case _ if isinstance(output, HandoverOutput):
                    for_handovers.append(output)
                case _:
                    self._parts.emit(output)
        self._traffic.give_broker_outputs(for_links, for_leaders, for_interest, for_handovers)
        self._traffic.consumed(self.broker.take_done())

    def _perform(self, output: Input | Output) -> None:
        match output:
            case SendOnServerLink(link=number, payload=payload):
                if link := self._server_links.get(number):
                    link.send(self, payload)
            case CloseServerLink(link=number, reason=reason):
                if link := self._server_links.get(number):
                    self._close_link(link, reason)
            case ConnectServer(server=server):
                self.links.watch(self.name, server)
            case SendDatagram(data=data):
                self.send_to_group(data)
            case LogRolledBack(reason=reason, session=""):
                self.rollbacks.append(reason)
            case _:
                super()._perform(output)

    def _fire(self, key: Hashable) -> None:
        self._parts.precede(BROKER, ClockRead(self.wall_us))
        assert self._parts.give_timer(key), key
        self._run()

    # Links to servers -----------------------------------------------------------------------------------------------

    def link_opened(self, link: DomainLink) -> None:
        """Report a link to another server, in place of an earlier one of the same opener."""
        if not self.alive:
            return
        ends = link.source, link.target
        for each in [one for one in self._server_links.values() if (one.source, one.target) == ends]:
            self.link_closed(each, "replaced")
        number, server = link.numbers[self.name], self._name_at(link)
        self._server_links[number] = link
        self._note(f"link {number} with {server} opens")
        self._feed_part(self._part_of(link), [ServerLinkOpened(number, server, is_ours=self is link.source)])

    def knows(self, server: str) -> bool:
        """Return whether this server opens links to another one, and lets it do so."""
        return True

    def link_closed(self, link: DomainLink, reason: str) -> bool:
        """Report a closed link; return False if that is known already."""
        number = link.numbers[self.name]
        if self._server_links.pop(number, None) is None:
            return False
        self._feed_part(self._part_of(link), [ServerLinkClosed(number, self._name_at(link), reason)])
        return True

    def arrived(self, link: DomainLink, payloads: Sequence[bytes]) -> None:
        """Take messages of the other side of a link."""
        number, server = link.numbers[self.name], self._name_at(link)
        if number in self._server_links:
            self._feed_part(self._part_of(link), [ServerMessageReceived(number, server, each) for each in payloads])

    def _part_of(self, link: DomainLink) -> Any:
        """Return the part that takes the reports of a link."""
        return SERVER_LINKS

    def _name_at(self, link: DomainLink) -> str:
        """Return the name of the server at the other end of a link."""
        return link.other(self).name

    def datagram_arrived(self, data: bytes) -> None:
        """Take a datagram of the multicast group."""
        self._feed_part(DECENTRALISED_INTEREST, [DatagramReceived(MULTICAST_SOCKET, GROUP, data)])

    def _close_link(self, link: DomainLink, reason: str) -> None:
        closing = f"{self.name} closes a link to {link.other(self).name}: {reason}"
        self._note(closing)
        if not self.may_close(link):
            self.problems.append(closing)
        self.links.break_link(link, self)

    # Visitors -------------------------------------------------------------------------------------------------------

    def kick(self, user: str, device: str) -> bool:
        """Remove a device from the sessions of its user, as ``kick --forget``; return whether it had a link."""
        has_link = (user, device) in self._open.values()
        if has_link:
            self._visit(user, protocol.Kick(1, user, device, True))
        return has_link

    def end_visits(self) -> None:
        """Let the devices that have removed others leave again, if a crash of the server has undone that."""
        if self.alive:
            for session in list(self.broker.state.sessions.values()):
                if _VISITOR in session.devices:
                    self._visit(session.user)

    def _visit(self, user: str, *messages: protocol.AgentMessage) -> None:
        """Attach another device of a user, let it send ``messages``, and leave."""
        wire = self.open(user, _VISITOR, 0.0, lambda link, payloads: None)
        assert wire is not None, "the server runs"
        for each in (protocol.Attach(1, "default", None, keep=True), *messages, protocol.Leave(2)):
            wire.up.send(protocol.encode(each))
        self._world.after(0.01, lambda: self.close(wire.link, "left"))

    # Checks ---------------------------------------------------------------------------------------------------------

    def repaired_changes(self) -> int:
        """Return the changes of interest that were sent by multicast and repaired by links, in all lives."""
        counts = {} if self.interest is None else self.interest.multicast_counts()
        return self._repaired + sum(each.repaired for each in counts.values())

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
        for part in (self.sessions, self.interest):
            if part is not None and part.pending:
                yield f"{self.name} has subscriptions that do not count: {part.pending}"
        if self.interest is not None and (retained := self.broker.state.decentralised.causal.outgoing.retained):
            yield f"{self.name} retains {sorted(retained)}"
        for link in self._server_links:
            if left := self._reports.unconsumed[link]:
                yield f"{self.name} has consumed {left} messages of a link too few"


class LinkReports:
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
