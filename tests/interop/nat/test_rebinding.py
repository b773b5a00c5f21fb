"""A router forgets its connections and gives each another port, without a notice to anybody (SPEC I-07, F-09)."""

from __future__ import annotations

import time

import pytest

from tests.interop.nat.conftest import SetStage
from tests.interop.nat.places import EAST, NORTH, SOUTH, WEST

STEADY_S = 0.4
SENDING_HEAL_S_MAX = 4.0
SILENT_HEAL_S_MAX = 14.0
"""A side that sends nothing probes its data channel every 5 s (``keepalive_s``). The other one is behind the relay and
sees no new address; it sends again when its last pause is over, up to 5 s later.
"""

over_udp = pytest.mark.parametrize("transport", ["UDP", "UDP, SIP over TCP"])
through_both_kinds = pytest.mark.parametrize(
    ("alice", "bob"), [(NORTH, SOUTH), (EAST, WEST)], ids=["port-restricted", "symmetric"]
)


@over_udp
@through_both_kinds
@pytest.mark.interop(peer="NAT", scenario="rebinding while sending")
def test_while_sending(set_stage: SetStage, transport: str, alice: str, bob: str) -> None:
    with set_stage(transport=transport, alice=alice, bob=bob) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(stage.rebind(alice)) < SENDING_HEAL_S_MAX
        stage.check(stage.hold())


@over_udp
@through_both_kinds
@pytest.mark.interop(peer="NAT", scenario="rebinding while receiving")
def test_while_receiving(set_stage: SetStage, transport: str, alice: str, bob: str) -> None:
    """A receiver that gets no data sends no acknowledgements either, so it is as silent as an idle one."""
    with set_stage(transport=transport, alice=alice, bob=bob) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(stage.rebind(bob)) < SILENT_HEAL_S_MAX
        stage.check(stage.hold())


@pytest.mark.parametrize("transport", ["UDP"])
@through_both_kinds
@pytest.mark.interop(peer="NAT", scenario="rebinding while idle")
def test_while_idle(set_stage: SetStage, transport: str, alice: str, bob: str) -> None:
    """Both clients are silent while their routers forget them; the subscriber cannot notice before it next sends."""
    with set_stage(transport=transport, alice=alice, bob=bob) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        stage.hold()
        stage.rebind(alice)
        rebound_s = stage.rebind(bob)
        stage.flow()
        assert stage.healed_s(rebound_s) < SILENT_HEAL_S_MAX
        stage.check(stage.hold())
