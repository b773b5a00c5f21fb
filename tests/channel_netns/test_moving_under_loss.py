"""Packets are lost in both directions while the address changes: everything arrives once, in order (SPEC F-08,
D-06).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

from bench.heal_ours import Ours
from harness.two_hosts import Hosts, hosts
from harness.workers import Worker
from tests.channel_netns import sides
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.namespaces import missing

REASON = missing("iptables")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(REASON is not None, reason=f"no network namespaces: {REASON}"),
]


@pytest.fixture
def pair() -> Iterator[Hosts]:
    """Two hosts; skips the test where no namespaces are allowed, or no rule that loses packets."""
    try:
        with hosts(loss=0.01) as made:
            yield made
    except CannotRunError as error:
        pytest.skip(f"no network namespaces: {error}")


@pytest.mark.parametrize("loss", [0.05, 0.30])
def test_reliable_udp_delivers_once_and_in_order(pair: Hosts, loss: float) -> None:
    messages = 300
    pair.lose(loss)
    with Worker(namespace=pair.far) as far, Worker(namespace=pair.near) as near:
        port = far.start(sides.listen).receive()
        assert near.start(sides.send_moving, port, messages).receive() == "sent"
        assert far.receive() == list(range(messages))


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_events_reach_a_subscriber_once_and_in_order(pair: Hosts, transport: Literal["udp", "tcp"]) -> None:
    events = 150
    pair.lose(0.05)
    system = Ours(transport)
    with (
        system.server(pair) as options,
        Worker(namespace=pair.far) as far,
        Worker(namespace=pair.near) as near,
    ):
        near.start(sides.subscribe, system, options, events).receive()
        far.start(sides.publish, system, options, events)
        assert near.receive() == list(range(events))
