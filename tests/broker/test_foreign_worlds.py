"""Gateways that fail, links that break, full disks: foreign events are accepted once and in order (SPEC M-01)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

import pytest

from tests.broker.access_desk import NORTHERN, AccessDesk
from tests.broker.test_foreign_domains import BETA, foreign
from tests.broker.test_foreign_publishes import of_beta
from tests.broker.test_server_sessions import Hub
from wanderbus import protocol
from wanderbus.broker.messages import (
    DiskFreed,
    DiskFull,
    ForgetPublishes,
    ForwardPublish,
    LinkClosed,
    LinkOpened,
    MessageArrived,
    PublishAnswered,
)
from wanderbus.broker.servers.server_users import server_user
from wanderbus.channels.directory import Directory, Leader, LeaderTable
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.machine import Input, Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.peers.leader_sessions import LeaderSessions
from wanderbus.peers.messages import SendOnServerLink, ServerLinkClosed, ServerLinkOpened, ServerMessageReceived
from wanderbus.protocol import PublishAccepted, PublishRefused
from wanderbus.records import Acceptance, Published

EVENTS = 12
"""Events of each device."""
WINDOW = 5
"""Events of a device that a gateway sends ahead of the answers."""
DEVICES = ("b1", "b2")


class Access(AccessDesk):
    """An access server, with its session at the leader ``north``; messages wait on the wire between them."""

    def __init__(self, name: str, leader: Hub) -> None:
        groups = ChannelGroups(b"key", 1, pins={NORTHERN: 0})
        directory = Directory(groups, LeaderTable(1, ("north", name), (Leader("north", 1),)))
        self.name, self.leader = name, leader
        self.sessions = LeaderSessions(OwnChannels(directory, name), epoch=1, positions={})
        self.link: int | None = None
        self.to_leader: deque[bytes] = deque()
        self.carried = 0
        super().__init__(BrokerConfig(server="south", domain="example.org"))

    def perform(self, outputs: Sequence[Output]) -> None:
        given = [each for each in outputs if isinstance(each, ForwardPublish | ForgetPublishes)]
        super().perform(outputs)
        if given:
            self.step_sessions(*given)

    def step_sessions(self, *inputs: Input | Output) -> None:
        """Step the sessions at leaders, and execute their outputs."""
        for each in self.sessions.step(inputs, self.now):
            if isinstance(each, SendOnServerLink) and each.link == self.link:
                self.to_leader.append(each.payload)
            elif isinstance(each, PublishAnswered):
                self.give(each)

    def connect(self) -> None:
        """Open a link to the leader in place of the present one, whose messages are lost."""
        if self.link is not None:
            self.leader.give(LinkClosed(self.link, "it failed"))
            self.step_sessions(ServerLinkClosed(self.link, "north", "it failed"))
        self.to_leader.clear()
        self.leader._links += 1
        self.link, self.carried = self.leader._links, 0
        user = server_user(self.name, "example.org")
        self.leader.give(LinkOpened(self.link, user, "server", is_server=True))
        self.step_sessions(ServerLinkOpened(self.link, "north", is_ours=True))

    def carry(self, *, up: bool) -> bool:
        """Carry one message to the leader, or from it; return whether there was one."""
        assert self.link is not None
        if up:
            if self.to_leader:
                self.leader.give(MessageArrived(self.link, self.to_leader.popleft()))
                return True
            return False
        sent = self.leader.out.get(self.link, [])
        if self.carried == len(sent):
            return False
        self.carried += 1
        self.step_sessions(ServerMessageReceived(self.link, "north", protocol.encode(sent[self.carried - 1])))
        return True


class Gateway:
    """Publishes the events of two devices at an access server, as an outbox of each does."""

    def __init__(self, desk: Access) -> None:
        self.desk = desk
        self.link = foreign(desk)
        self.read = 0
        self.settled: dict[str, set[int]] = {each: set() for each in DEVICES}
        self.unsent: dict[str, list[int]] = {each: list(range(1, EVENTS + 1)) for each in DEVICES}
        self.requests: dict[int, tuple[str, int]] = {}

    def move(self, desk: Access, *, closes: bool) -> None:
        """Let another gateway go on, behind what was acknowledged in a row."""
        if closes:
            self.desk.close(self.link)
        self.desk, self.link, self.read = desk, foreign(desk), 0
        self.requests.clear()
        for name in DEVICES:
            first = self.first(name)
            self.settled[name] = set(range(1, first))
            self.unsent[name] = list(range(first, EVENTS + 1))

    def first(self, name: str) -> int:
        """Return the number of the first event that is not settled."""
        return next(number for number in range(1, EVENTS + 2) if number not in self.settled[name])

    def send(self, name: str) -> None:
        """Publish the next event of a device, if the window allows it."""
        if self.unsent[name] and self.unsent[name][0] < self.first(name) + WINDOW:
            number = self.unsent[name].pop(0)
            request = max(self.requests, default=0) + 1
            self.requests[request] = name, number
            self.desk.send(self.link, of_beta(number, NORTHERN, server=name, request=request))

    def receive(self) -> None:
        """Take the answers: an event that was refused for now is sent again."""
        sent = self.desk.out.get(self.link, [])
        while self.read < len(sent):
            answer = sent[self.read]
            self.read += 1
            if isinstance(answer, PublishAccepted | PublishRefused):
                name, number = self.requests.pop(answer.number)
                limit = answer.limit if isinstance(answer, PublishRefused) else None
                assert not isinstance(answer, PublishRefused) or limit is not None, answer
                if limit in (None, protocol.NUMBER_USED):
                    self.settled[name].add(number)
                else:
                    self.unsent[name] = sorted([*self.unsent[name], number])

    @property
    def is_done(self) -> bool:
        """Return whether all events are settled."""
        return all(self.first(name) > EVENTS for name in DEVICES)


class Publishes(Protocol):
    """A side of a world that publishes the events of two devices."""

    def send(self, name: str) -> None:
        """Publish the next event of a device, if it may be sent."""
        ...

    def receive(self) -> None:
        """Take the answers."""
        ...

    def move(self, desk: Access, *, closes: bool) -> None:
        """Go on at another server, or at the same; ``closes`` tells whether the former link is closed."""
        ...

    def first(self, name: str) -> int:
        """Return the number of the first event that is not settled."""
        ...

    @property
    def is_done(self) -> bool:
        """Return whether all events are settled."""
        ...


def run(random: Random, remembered: int, publisher: Callable[[Access], Publishes]) -> list[Acceptance]:
    """Return the events that the leader has accepted."""
    leader = Hub(BrokerConfig(server="north", publishes_remembered=remembered))
    servers = [Access(name, leader) for name in ("a", "b")]
    for each in servers:
        each.connect()
    gateway, is_full = publisher(servers[0]), False
    for _ in range(600):
        server = random.choice(servers)
        match random.choices(["send", "up", "down", "break", "move", "disk", "receive"], [30, 30, 20, 2, 2, 4, 12])[0]:
            case "send":
                gateway.send(random.choice(DEVICES))
            case "up" | "down" as way:
                server.carry(up=way == "up")
            case "break":
                server.connect()
            case "move":
                gateway.move(server, closes=random.random() < 0.7)
            case "disk":
                is_full = not is_full
                leader.give(DiskFull() if is_full else DiskFreed())
            case "receive":
                gateway.receive()
    leader.give(DiskFreed())
    for _ in range(2_000):
        if gateway.is_done:
            break
        for name in DEVICES:
            gateway.send(name)
        for server in servers:
            while server.carry(up=True) or server.carry(up=False):
                pass
        gateway.receive()
    assert gateway.is_done, [gateway.first(name) for name in DEVICES]
    return [record.acceptance for record in leader.written(Published)]


@pytest.mark.parametrize("seed", range(60))
def test_events_of_a_foreign_domain_are_accepted_once_and_in_order(seed: int) -> None:
    random = Random(seed)
    accepted = run(random, random.choice([1, 64]), Gateway)
    assert {each.user for each in accepted} == {BETA}
    for name in DEVICES:
        numbers = [each.number for each in accepted if each.device == f"{name}/{NORTHERN}"]
        assert numbers == list(range(1, EVENTS + 1))
