"""A killed server comes back while all clients are behind NATs (SPEC I-07, D-10)."""

from __future__ import annotations

import time

import pytest

from tests.interop.nat.conftest import SetStage
from tests.interop.nat.places import BOB, EAST, NORTH, OFFICE, RELAY, SERVER, SOUTH
from tests.interop.nat.programs import Layout
from tests.interop.nat.stage import Stage

STEADY_S = 0.4
HEAL_S_MAX = 22.0
"""Counted from the kill: a start takes a second or two, a channel five to detect its failure, or, if it is silent, five
more to probe.
"""

over_some = pytest.mark.parametrize("transport", ["UDP", "TCP"])


def restart(stage: Stage, *hosts: str) -> float:
    """Kill the programs on these hosts and start them again; return the moment of the kill."""
    died_s = time.monotonic()
    for host in hosts:
        stage.programs[host].kill()
    for host in hosts:
        stage.programs[host].start()
    return died_s


@over_some
@pytest.mark.interop(peer="NAT", scenario="broker and relay restarted while events are sent")
def test_server_and_relay_while_sending(set_stage: SetStage, transport: str) -> None:
    with set_stage(transport=transport) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(restart(stage, SERVER)) < HEAL_S_MAX
        stage.check(stage.hold())


@over_some
@pytest.mark.interop(peer="NAT", scenario="broker and relay restarted while all are silent")
def test_server_and_relay_while_silent(set_stage: SetStage, transport: str) -> None:
    with set_stage(transport=transport) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        stage.hold()
        died_s = restart(stage, SERVER)
        stage.flow()
        assert stage.healed_s(died_s) < HEAL_S_MAX
        stage.check(stage.hold())


@over_some
@pytest.mark.interop(peer="NAT", scenario="broker restarted, the relay elsewhere lives on")
def test_server_alone(set_stage: SetStage, transport: str) -> None:
    with set_stage(layout=Layout.APART, transport=transport) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(restart(stage, SERVER)) < HEAL_S_MAX
        stage.check(stage.hold())


@over_some
@pytest.mark.interop(peer="NAT", scenario="relay elsewhere restarted while events are sent")
def test_relay_alone(set_stage: SetStage, transport: str) -> None:
    with set_stage(layout=Layout.APART, transport=transport) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(restart(stage, RELAY)) < HEAL_S_MAX
        stage.check(stage.hold())


@over_some
@pytest.mark.interop(peer="NAT", scenario="broker and relay restarted, and the subscriber moves meanwhile")
def test_move_while_the_server_is_dead(set_stage: SetStage, transport: str) -> None:
    with set_stage(transport=transport) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        died_s = time.monotonic()
        stage.programs[SERVER].kill()
        stage.move(BOB, EAST)
        stage.programs[SERVER].start()
        assert stage.healed_s(died_s) < HEAL_S_MAX
        stage.check(stage.hold())


@over_some
@pytest.mark.interop(peer="NAT", scenario="broker and relay restarted, and the routers rebind meanwhile")
def test_rebinding_while_the_server_is_dead(set_stage: SetStage, transport: str) -> None:
    """The addresses that the server remembers are stale; it must wait until both clients send."""
    with set_stage(transport=transport) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        died_s = time.monotonic()
        stage.programs[SERVER].kill()
        stage.rebind(NORTH)
        stage.rebind(SOUTH)
        stage.programs[SERVER].start()
        assert stage.healed_s(died_s) < HEAL_S_MAX
        stage.check(stage.hold())


@pytest.mark.parametrize("transport", ["UDP", "UDP, SIP over TCP"])
@pytest.mark.parametrize("hosts", [(OFFICE,), (SERVER,)], ids=["broker", "proxy and relay"])
@pytest.mark.interop(peer="NAT", scenario="broker behind NAT; it, or proxy and relay, restarted")
def test_with_the_broker_behind_nat(set_stage: SetStage, transport: str, hosts: tuple[str, ...]) -> None:
    with set_stage(layout=Layout.OFFICE, transport=transport) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(restart(stage, *hosts)) < HEAL_S_MAX
        stage.check(stage.hold())
