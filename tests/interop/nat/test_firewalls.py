"""Firewalls without translation between a device and broker and relay: agents find another path (SPEC I-08).

The device moves behind the firewall while events flow, and later to an open network. Nothing is lost, each event
arrives once and in order, and the better path is used again.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple

import pytest

from harness.internet import PUBLIC
from tests.interop.nat.conftest import SetStage
from tests.interop.nat.places import ALICE, BOB
from tests.interop.nat.programs import Layout

STEADY_S: Final = 0.4
FALLBACK_S_MAX: Final = 14.0
"""Two ways that fail in 2 s each over UDP and one in 4 s over TCP, the signalling between them, and noise."""
HEAL_S_MAX: Final = 5.0

_SIP: Final = (
    "-A FILTERED -p udp -m multiport --ports 5060 -j RETURN\n-A FILTERED -p tcp -m multiport --ports 5060 -j RETURN"
)
_RELAY: Final = "-A FILTERED -p {} -m multiport --ports 20000:20999 -j RETURN"
_NO_UDP: Final = "-A FILTERED -p udp -j DROP"
_NO_TCP: Final = "-A FILTERED -p tcp -j DROP"
UDP_BY_RELAY: Final = "\n".join((_SIP, _RELAY.format("udp"), _NO_UDP))


class Firewall(NamedTuple):
    """Rules of a firewall, the layout for the test, and the best path that the rules leave open."""

    rules: str
    layout: Layout
    way: str


def firewall(scenario: str, way: str, layout: Layout, *rules: str) -> object:
    given = Firewall("\n".join(rules), layout, way)
    return pytest.param(given, marks=pytest.mark.interop(peer="firewall", scenario=scenario), id=scenario)


@pytest.mark.parametrize("transport", ["any, SIP over TCP", "any"])
@pytest.mark.parametrize("who", [BOB, ALICE], ids=["subscriber", "publisher"])
@pytest.mark.parametrize(
    "given",
    [
        firewall(
            "UDP to the broker is dropped: by relay", "udp-relay", Layout.APART, _SIP, _RELAY.format("udp"), _NO_UDP
        ),
        firewall("UDP is dropped: TCP with TLS", "tcp", Layout.APART, _SIP, _NO_UDP),
        firewall("UDP is dropped, and there is no relay: TCP with TLS", "tcp", Layout.DIRECT, _SIP, _NO_UDP),
        firewall(
            "UDP and TCP to the broker are dropped: TCP with TLS by relay",
            "tcp-relay",
            Layout.APART,
            *(_SIP, _RELAY.format("tcp"), _NO_UDP, _NO_TCP),
        ),
    ],
)
def test_another_way_is_found_and_left(set_stage: SetStage, given: Firewall, who: str, transport: str) -> None:
    with set_stage(layout=given.layout, transport=transport, alice=PUBLIC, bob=PUBLIC) as stage:
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(stage.move(who, PUBLIC, firewall=given.rules)) < FALLBACK_S_MAX
        stage.hold()
        stage.takes(who, given.way, FALLBACK_S_MAX)
        stage.flow()
        time.sleep(STEADY_S)
        assert stage.healed_s(stage.move(who, PUBLIC)) < HEAL_S_MAX
        published = stage.hold()
        stage.takes(who, "udp", HEAL_S_MAX)
        stage.check(published)
