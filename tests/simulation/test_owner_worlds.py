"""Seeded worlds of two servers with agents that come to either: every user stays at one of them (SPEC J-01, L-06).

Datagrams are lost, devices move, and end to come back at another server. In some worlds servers crash: then every
device is served all the same.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.client.town import Phone, Sent
from tests.peers.fleet import Fleet, ip_of
from wanderbus import protocol
from wanderbus.client.machine.messages import AskBroker, Connect
from wanderbus.peers import session_owners
from wanderbus.peers.session_owners import SessionOwners
from wanderbus.simulation.network import PathConditions
from wanderbus.sip.message.message import Request, Response

ACTIVE_S = 60.0
SETTLE_S = 60.0
NAMES = ("s1", "s2")
USERS = ("ann", "ben", "eve")


class Device:
    """A device in its lives, each at a server."""

    def __init__(self, world: OwnerWorld, user: str, number: int) -> None:
        self.lives: list[Phone] = []
        self._world = world
        self._user = user
        self._number = number

    @property
    def phone(self) -> Phone:
        return self.lives[-1]

    @property
    def received(self) -> list[int]:
        """Numbers of the events that it has received, in all lives."""
        return [value for phone in self.lives for value in phone.received]

    def live(self) -> None:
        """End the present life, and begin one at some server."""
        if self.lives:
            self.phone.node.kill()
        draw, epoch = self._world.fleet.world.random, len(self.lives) + 1
        phone = self._world.fleet.phone(draw.choice(NAMES), self._user, number=self._number, epoch=epoch)
        self.lives.append(phone)
        ask = protocol.Subscribe(1, "Trade", "", None, (), False)
        phone.node.feed([Connect(), AskBroker(ask, reads=True)])

    def move(self) -> None:
        self.phone.move(f"10.{self._number}.0.{self._world.fleet.world.random.randrange(2, 250)}")


class OwnerWorld:
    """A world that is set up by the seed; with ``crashes``, servers crash and start again."""

    def __init__(self, seed: int, *, crashes: bool) -> None:
        self.fleet = Fleet(PathConditions(delay_min_s=0.002, delay_max_s=0.03), seed=seed)
        draw = self.fleet.world.random
        self.fleet.network.conditions.loss = draw.choice([0.0, 0.02, 0.05])
        self.devices = {
            user: [Device(self, user, 10 * place + number) for number in range(1, 4)]
            for place, user in enumerate(USERS, 1)
        }
        self.problems: list[str] = []
        self.redirected = 0
        self.published = 0
        self._crashes = crashes
        self._in_dialog: set[tuple[str, int]] = set()
        tap = self.fleet.network.tap

        def watch(source: tuple[str, int], destination: tuple[str, int], data: bytes) -> None:
            tap(source, destination, data)
            self._look(Sent(self.fleet.world.now, source, destination, data))

        self.fleet.network.tap = watch

    def run(self) -> OwnerWorld:
        world, draw = self.fleet.world, self.fleet.world.random
        self.publisher = self.fleet.phone("s1", "zoe", number=99)
        self.publisher.node.feed([Connect()])
        for devices in self.devices.values():
            world.at(draw.uniform(1, 3), devices[0].live)
            for device in devices[1:]:
                world.at(draw.uniform(10, 15), device.live)
        for _ in range(40):
            device = draw.choice([each for devices in self.devices.values() for each in devices])
            action = draw.choice([device.live, device.move, self._publish])
            world.at(draw.uniform(20, ACTIVE_S), action)
        for name in NAMES if self._crashes else ():
            at = draw.uniform(5, ACTIVE_S - 15)
            server = self.fleet.servers[name]
            world.at(at, lambda server=server: server.crash(lose_rows=draw.random() < 0.5))  # type: ignore[misc]
            world.at(at + draw.uniform(0.1, 10), server.start)
        world.run(ACTIVE_S)
        self.fleet.network.conditions.loss = 0.0
        world.run(ACTIVE_S + SETTLE_S)
        self._check()
        return self

    def _publish(self) -> None:
        self.published += 1
        self.publisher.publish(self.published)

    def _look(self, sent: Sent) -> None:
        """Check each redirection: it answers a new call, and names the owner."""
        if 5070 not in (sent.source[1], sent.destination[1]):
            return
        message = sent.message
        if isinstance(message, Request) and message.method == "INVITE" and message.to.tag is not None:
            self._in_dialog.add((message.call_id, message.cseq.number))
        if not isinstance(message, Response) or message.status != 302 or sent.source[1] != 5070:
            return
        self.redirected += 1
        if (message.call_id, message.cseq.number) in self._in_dialog:
            self.problems.append(f"a request in the dialog {message.call_id} is redirected")
        owner = next(name for name in NAMES if ip_of(name) == message.contacts[0].uri.host)
        user = message.from_.uri.address_of_record
        if ip_of(owner) == sent.source[0] or user not in self.fleet.subscribers_at(owner):
            self.problems.append(f"{user} is redirected to {owner}, which is not the owner")

    def _check(self) -> None:
        for user, devices in self.devices.items():
            for device in devices:
                if device.phone.statuses[-1:] != ["CONNECTED"]:
                    self.problems.append(f"a device of {user} is not connected: {device.phone.statuses}")
                missing = set(range(1, self.published + 1)) - set(device.received)
                if not self._crashes and missing:
                    self.problems.append(f"a device of {user} has missed {missing}")
        for user in () if self._crashes else USERS:
            owners = [name for name in NAMES if f"sip:{user}@sim.test" in self.fleet.subscribers_at(name)]
            if len(owners) != 1:
                self.problems.append(f"{user} has subscriptions at {owners}")


SEEDS = range(1, 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_j01_every_user_stays_at_one_server_and_misses_nothing(seed: int) -> None:
    world = OwnerWorld(seed, crashes=False).run()
    assert world.problems == []
    assert world.redirected > 3


@pytest.mark.parametrize("seed", SEEDS)
def test_j01_every_device_is_served_although_servers_crash(seed: int) -> None:
    assert OwnerWorld(seed, crashes=True).run().problems == []


Patch = pytest.MonkeyPatch


def ask_nobody(patch: Patch) -> None:
    patch.setattr(SessionOwners, "_send", lambda self, server, message: None)


def own_nothing(patch: Patch) -> None:
    patch.setattr(session_owners, "owns", lambda *asked: False)


def own_everybody(patch: Patch) -> None:
    owns = SessionOwners._on_message

    def on_message(self: SessionOwners, *given: object) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(session_owners, "owns", lambda *asked: True)
            owns(self, *given)  # type: ignore[arg-type]

    patch.setattr(SessionOwners, "_on_message", on_message)


@pytest.mark.parametrize(
    ("sabotage", "problem"),
    [
        (ask_nobody, "has subscriptions at"),
        (own_nothing, "has subscriptions at"),
        (own_everybody, "which is not the owner"),
    ],
)
def test_a_missing_safeguard_is_noticed(sabotage: Callable[[Patch], None], problem: str, monkeypatch: Patch) -> None:
    sabotage(monkeypatch)
    found = OwnerWorld(2, crashes=False).run().problems
    assert any(problem in each for each in found), found
