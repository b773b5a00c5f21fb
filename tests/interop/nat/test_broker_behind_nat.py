"""Broker, publisher and subscriber all behind NATs, the broker's a symmetric one; registrar, proxy and relay are public
(SPEC I-01, I-05). The data channel uses UDP, since nobody can connect to such a broker over TCP.
"""

from __future__ import annotations

import time

import pytest

from harness.internet import PUBLIC
from tests.interop.nat.conftest import SetStage
from tests.interop.nat.places import BOB, NORTH, SERVER, SOUTH, WEST
from tests.interop.nat.programs import Layout, refused

STEADY_S = 0.4
HEAL_S_MAX = 8.0

over_udp = pytest.mark.parametrize("transport", ["UDP", "UDP, SIP over TCP"])


@over_udp
@pytest.mark.parametrize("to", [NORTH, WEST, PUBLIC])
@pytest.mark.interop(peer="NAT", scenario="broker behind NAT, the subscriber moves")
def test_move(set_stage: SetStage, transport: str, to: str) -> None:
    with set_stage(layout=Layout.OFFICE, transport=transport) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(stage.move(BOB, to)) < HEAL_S_MAX
        stage.check(stage.hold())
        assert refused(stage.internet, SERVER) == 0


@over_udp
@pytest.mark.interop(peer="NAT", scenario="broker behind NAT, its router rebinds while events are sent")
def test_the_brokers_router_rebinds(set_stage: SetStage, transport: str) -> None:
    with set_stage(layout=Layout.OFFICE, transport=transport, alice=NORTH, bob=SOUTH) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(stage.rebind(WEST)) < HEAL_S_MAX
        stage.check(stage.hold())
