"""Rows of the mobility matrix that no other test has with real processes: devices and servers that change (U-09)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.domain_file import Place, place_servers
from harness.internet import PUBLIC, Internet
from harness.workers import Worker, WorkerError
from tests.interop.nat import sides
from tests.interop.nat.conftest import SetStage
from tests.interop.nat.places import ALICE, BOB, OFFICE, RELAY, SERVER, SOUTH
from tests.interop.nat.programs import DOMAIN, PASSWORDS, Layout, Program
from tests.interop.nat.stage import Stage
from wanderbus.client.operator import Operator
from wanderbus.runtime.files.domain_file import create_domain

STEADY_S = 0.4
HEAL_S_MAX = 22.0
"""Longest pause: a busy machine may lose the first attempts of an agent, which come at longer and longer intervals."""
AWAY_S = 2.0
FEW = 20
ADMINISTRATOR = {"carol": "d"}

over_either = pytest.mark.parametrize("transport", ["UDP", "TCP"])


@over_either
@pytest.mark.interop(peer="NAT", scenario="the subscriber has a new address, without NAT")
def test_a_new_address(set_stage: SetStage, transport: str) -> None:
    with set_stage(layout=Layout.DIRECT, transport=transport, alice=PUBLIC, bob=PUBLIC) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(stage.move(BOB, PUBLIC)) < HEAL_S_MAX
        stage.check(stage.hold())


# Devices -------------------------------------------------------------------------------------------------------------


class Reader:
    """A device of Bob's in a session of its own, whose application commits each event with its position."""

    def __init__(self, stage: Stage, work: Path, transport: str) -> None:
        self.numbers: list[int] = []
        self._position: Any = None
        self._stage = stage
        self._work = work
        self._settings = {**stage.agent_settings(BOB, transport), "session": "reader"}

    @contextlib.contextmanager
    def on(self, host: str, device: str) -> Iterator[Worker]:
        """Run it on a host, from the last committed position on."""
        settings = {**self._settings, "state_dir": str(self._work / device)}
        with Worker(namespace=self._stage.internet.namespaces.name(host)) as worker:
            assert worker.start(sides.commit_each, settings, self._position).receive() == "ready"
            yield worker

    def take(self, worker: Worker, count: int) -> None:
        """Wait until so many events are committed in all."""
        while len(self.numbers) < count:
            number, self._position = worker.receive()
            self.numbers.append(number)

    def kill(self, worker: Worker) -> None:
        """Switch the device off; what it has committed counts."""
        worker.kill()
        with contextlib.suppress(WorkerError):
            self.take(worker, 10**9)


def read_with_two_lives(set_stage: SetStage, work: Path, transport: str, *, another: bool) -> None:
    """Switch a device off while events come, and go on with it behind a NAT, or with another one in public."""
    with set_stage(layout=Layout.DIRECT, transport=transport, alice=PUBLIC, bob=PUBLIC) as stage:
        reader = Reader(stage, work, transport)
        stage.move(OFFICE, PUBLIC)
        with reader.on(OFFICE, "first") as worker:
            stage.flow()
            reader.take(worker, FEW)
            reader.kill(worker)
        time.sleep(AWAY_S)
        if another:
            stage.move(RELAY, PUBLIC)
        else:
            stage.move(OFFICE, SOUTH)
        with reader.on(*((RELAY, "second") if another else (OFFICE, "first"))) as worker:
            reader.take(worker, len(reader.numbers) + FEW)
            published = stage.hold()
            reader.take(worker, published)
        stage.check(published)
    assert reader.numbers == list(range(published))


@over_either
@pytest.mark.interop(peer="NAT", scenario="a device is killed, and another one of its user goes on")
def test_another_device(set_stage: SetStage, tmp_path: Path, transport: str) -> None:
    read_with_two_lives(set_stage, tmp_path, transport, another=True)


@over_either
@pytest.mark.interop(peer="NAT", scenario="a device is killed, and goes on behind a NAT")
def test_off_and_on(set_stage: SetStage, tmp_path: Path, transport: str) -> None:
    read_with_two_lives(set_stage, tmp_path, transport, another=False)


# Servers -------------------------------------------------------------------------------------------------------------


def domain(internet: Internet, work: Path) -> Mapping[str, Program]:
    """Return two servers of one domain, each with its own proxy, and without relay."""
    hosts = {"s1": SERVER, "s2": RELAY}
    file = create_domain(work / "domain", DOMAIN, len(hosts))
    roles = {"s1": ("access", "resolution", "directory"), "s2": ("access", "resolution")}
    place_servers(file, {name: Place(internet.address(host), 5060, roles[name]) for name, host in hosts.items()})
    return {
        host: Program(
            internet,
            host,
            "up",
            {
                "domain": DOMAIN,
                "host": internet.address(host),
                "users": PASSWORDS | ADMINISTRATOR,
                "data_dir": str(work / host),
                "event_domain": str(file),
                "event_server": name,
                "broker.roles": dict.fromkeys(ADMINISTRATOR, "administrator"),
            },
            work,
        )
        for name, host in hosts.items()
    }


@over_either
@pytest.mark.parametrize("bob", [PUBLIC, SOUTH])
@pytest.mark.interop(peer="NAT", scenario="the subscriber's session moves to another server, and back")
def test_another_server(set_stage: SetStage, bob: str, transport: str) -> None:
    with set_stage(layout=domain, transport=transport, alice=PUBLIC, bob=bob) as stage:
        stage.flow()
        for server in ("s2", "s1"):
            time.sleep(STEADY_S)
            moment_s = time.monotonic()
            stage.hand_over(server)
            assert stage.healed_s(moment_s) < HEAL_S_MAX
        stage.check(stage.hold())


@contextlib.contextmanager
def administrator(stage: Stage, work: Path, transport: str) -> Iterator[tuple[Worker, Mapping[str, str]]]:
    """Yield a worker on a host of its own, and the settings of an administrator's agent."""
    (name, password), *_ = ADMINISTRATOR.items()
    more = {"uri": f"sip:{name}@{DOMAIN}", "password": password, "session": Operator.SESSION}
    stage.move(OFFICE, PUBLIC)
    with Worker(namespace=stage.internet.namespaces.name(OFFICE)) as worker:
        yield worker, {**stage.agent_settings(ALICE, transport), **more, "state_dir": str(work / name)}


@over_either
@pytest.mark.interop(peer="NAT", scenario="the server of both is drained, and the subscriber moves behind a NAT")
def test_a_drained_server(set_stage: SetStage, tmp_path: Path, transport: str) -> None:
    check_change(set_stage, tmp_path, transport, sides.drain)


@over_either
@pytest.mark.interop(peer="NAT", scenario="the channel moves from server to server, and the subscriber behind a NAT")
def test_a_moved_channel(set_stage: SetStage, tmp_path: Path, transport: str) -> None:
    check_change(set_stage, tmp_path, transport, sides.move_channel, ("s1", "s2", "s1"))


def check_change(
    set_stage: SetStage, tmp_path: Path, transport: str, change: Callable[..., Awaitable[Any]], *arguments: object
) -> None:
    """Let an administrator change the domain while the subscriber moves behind a NAT; see that nothing is lost."""
    with (
        set_stage(layout=domain, transport=transport, alice=PUBLIC, bob=PUBLIC) as stage,
        administrator(stage, tmp_path, transport) as (worker, settings),
    ):
        stage.flow()
        time.sleep(STEADY_S)
        worker.start(change, settings, *arguments)
        moment_s = stage.move(BOB, SOUTH)
        worker.receive()
        assert stage.healed_s(moment_s) < HEAL_S_MAX
        stage.check(stage.hold())
