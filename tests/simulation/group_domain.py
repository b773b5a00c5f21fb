"""Three simulated servers whose channel groups move, and the devices of their users."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from wanderbus import protocol
from wanderbus.broker.groups.group_move import PREPARE_S
from wanderbus.channels.directory import Directory, Leader, LeaderTable
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.client.machine.messages import RequestSettled
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import Published
from wanderbus.simulation.device import Request
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.domains.domain_node import DOMAIN
from wanderbus.simulation.domains.group_scenario import OPERATOR, GroupNode
from wanderbus.simulation.domains.links import DomainLinks
from wanderbus.simulation.world import World

NAMES = ("s1", "s2", "s3")
KEY = bytes(32)


class Phone(DomainDevice):
    """A device that keeps what it is answered and refused."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.rows: list[Any] = []
        self.reasons: list[str] = []
        self.next: str | None = None
        super().__init__(*arguments, **options)

    def _answered(self, asked: Request, settled: RequestSettled) -> None:
        self.rows += settled.rows
        self.next = settled.next
        if settled.refusal is not None:
            self.reasons.append(settled.refusal.reason)
        else:
            super()._answered(asked, settled)

    def uids(self) -> list[str]:
        """Return the names of the events of its only subscription, in the order in which they came."""
        (items,) = self.items.values()
        return [each.text for each in items]


class Domain:
    """Three servers; ``s1`` leads the groups of the subjects ``A`` and ``B``, and ``s2`` that of ``C``.

    The servers with the names ``engines`` have a matching engine for all subjects.
    """

    def __init__(self, leaders: tuple[str, ...] = NAMES, window: int = 256, *, engines: Collection[str] = ()) -> None:
        self.engines = engines
        self.world = World(1)
        self.nodes: dict[str, GroupNode] = {}
        self.links = DomainLinks(self.world, self.nodes)
        self.events = 0
        for name in NAMES:
            self.add(name, self.channels(name, leaders), window)
        self.wait()

    def add(self, name: str, channels: OwnChannels, window: int = 256) -> None:
        """Start another server."""
        config = BrokerConfig(
            sweep_s=None,
            roles={OPERATOR: "administrator"},
            unacknowledged_max=window,
            spark_subjects=("*",) if name in self.engines else (),
        )
        node = self.nodes[name] = GroupNode(self.world, name, channels, config)
        node.links, node.is_fixed = self.links, False
        node.start()

    def change(self, gone: str, joining: str) -> None:
        """Let one server leave, and another one join; it comes first, and the others are started again after it."""
        self.nodes.pop(gone).crash(lose_rows=False)
        present = (*self.nodes, joining)
        self.add(joining, self.channels(joining, present, names=present, joins=True))
        for name in self.nodes:
            if name != joining:
                self.nodes[name].crash(lose_rows=True)
                self.nodes[name].channels = self.channels(name, present, names=present)
                self.nodes[name].start()

    @staticmethod
    def channels(
        name: str,
        leaders: tuple[str, ...],
        layout: bytes = b"1",
        names: tuple[str, ...] = NAMES,
        *,
        joins: bool = False,
    ) -> OwnChannels:
        groups = ChannelGroups(KEY, 3, pins={"A": 0, "B": 1, "C": 2})
        table = LeaderTable(1, leaders, (Leader("s1", 1), Leader("s1", 1), Leader("s2", 1)))
        directory = Directory(groups, table)
        others, founders = [each for each in names if each != name], leaders if names == NAMES else NAMES
        left = [each for each in NAMES if each not in names]
        return OwnChannels(directory, name, others=others, layout=layout, founders=founders, left=left, joins=joins)

    def wait(self, seconds: float = 20.0) -> None:
        self.world.run(self.world.now + seconds)

    def phone(self, server: str, user: str, **options: Any) -> Phone:
        phone = Phone(self.world, self.nodes[server], user, "phone", 0.001, **options)
        self.wait()
        return phone

    def publish(self, phone: Phone, count: int = 3, subject: str = "A") -> None:
        for _ in range(count):
            self.events += 1
            phone.publish(Event(subject, {"Uid": f"e{self.events}"}), outbox=True)

    def stream(self, phone: Phone, *subjects: str) -> None:
        """Publish an event of one subject after the other, 100 a second, for three seconds."""
        for number in range(300):
            subject = subjects[number % len(subjects)]
            self.world.after(number / 100, partial(self.publish, phone, 1, subject))

    def move(self, target: str, at: str = "s1", wait_s: float = PREPARE_S + 10.0, *, force: bool = False) -> list[str]:
        """Ask a server for a move; return the reasons if it is refused."""
        operator = Phone(self.world, self.nodes[at], OPERATOR, f"desk {self.world.now}", 0.001)
        operator.ask(protocol.MoveGroup(0, "A", target, force))
        self.wait(wait_s)
        return operator.reasons

    def leaders(self) -> list[tuple[str, int]]:
        """Return the leader and its epoch as each server knows it."""
        found = [node.channels.directory.table.leaders[0] for node in self.nodes.values()]
        return [(each.server, each.epoch) for each in found]

    def restart(self, name: str) -> None:
        node = self.nodes[name]
        node.crash(lose_rows=True)
        node.channels = self.channels(name, NAMES)
        self.world.after(1.0, node.start)

    def slow(self, source: str, target: str, delay_s: float) -> None:
        """Make the link from one server to another slow, in both directions."""
        for each in self.links._links[source, target]._directions.values():
            each._delay_s = delay_s

    def when(self, name: str, record: type, act: Callable[[], None]) -> None:
        """Act once a server has written such a record."""
        disk = self.nodes[name].disk

        def appended() -> None:
            if any(isinstance(each, record) for each in disk.records()):
                disk.on_append = lambda: None
                self.world.after(0.0, act)

        disk.on_append = appended

    def accepted_at(self, name: str) -> list[str]:
        return [str(each.event["Uid"]) for each in self.nodes[name].disk.records() if isinstance(each, Published)]


def user(name: str) -> str:
    return f"sip:{name}@{DOMAIN}"
