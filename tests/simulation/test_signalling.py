"""Transports of signalling: agents over TCP in a part of the worlds, and their connections break in every way."""

from __future__ import annotations

import re

from wanderbus.client.machine.core import SIP_SOCKET
from wanderbus.simulation.signalling import SHARES, UDP_ONLY, SignallingDraw
from wanderbus.simulation.system.scenario import SystemScenario
from wanderbus.simulation.world import World

CLOSED = re.compile(rf"user\d+ < StreamClosed\(socket='{SIP_SOCKET}'.* reason='([^']*)'")
BREAKS = {"closed here", "closed by the other side", "reset by the other side", "no connection in time"}


def test_half_of_the_worlds_signal_over_udp_alone_and_others_over_tcp_alone() -> None:
    worlds = []
    for seed in range(400):
        draw = SignallingDraw(World(seed), SHARES)
        worlds.append({draw.transport() for _ in range(20)})
    assert 150 < worlds.count({"UDP"}) < 250
    assert 50 < worlds.count({"TCP"}) < 150
    assert 50 < worlds.count({"UDP", "TCP"}) < 150


def test_without_a_share_for_tcp_all_is_udp() -> None:
    assert {SignallingDraw(World(seed), UDP_ONLY).transport() for seed in range(100)} == {"UDP"}


def test_u07_connections_of_agents_break_in_every_way() -> None:
    found: set[str] = set()
    for scenario in (SystemScenario(seed, keep_trace=True) for seed in range(1, 121)):
        if any(traveller.transport == "TCP" for traveller in scenario.travellers):
            scenario.run()
            found |= {match[1] for line in scenario.world.trace or () if (match := CLOSED.search(line))}
        if found >= BREAKS:
            break
    assert found >= BREAKS
