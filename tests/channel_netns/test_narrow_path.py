"""A path drops packets of more than 1,000 bytes silently: agents connect, and their events arrive (RFC 8899)."""

from __future__ import annotations

from typing import Literal

import pytest

from bench.heal_ours import Ours
from harness.two_hosts import hosts
from harness.workers import Worker
from tests.channel_netns import sides
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.namespaces import missing

REASON = missing("iptables")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(REASON is not None, reason=f"no network namespaces: {REASON}"),
]

PACKET_BYTES_MAX = 1_000
LENGTHS = [10, 3_000, 900, 1_100, 30_000, 10]


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_agents_connect_and_long_events_arrive(transport: Literal["udp", "tcp"]) -> None:
    """Both agents are on the other side of the path, so that each direction has long messages."""
    try:
        with (
            hosts(delay_s=0.01, packet_bytes_max=PACKET_BYTES_MAX) as pair,
            Ours(transport).server(pair) as options,
            Worker(namespace=pair.near) as subscriber,
            Worker(namespace=pair.near) as publisher,
        ):
            assert subscriber.start(sides.subscribe_texts, options, transport, len(LENGTHS)).receive() == "subscribed"
            publisher.start(sides.publish_texts, options, transport, LENGTHS)
            assert subscriber.receive() == LENGTHS
            assert publisher.receive() is None
    except CannotRunError as error:
        pytest.skip(f"no network namespaces: {error}")


def test_the_path_is_named_if_the_server_accepts_no_tcp() -> None:
    """SIP has no other way then, so the error says why nothing arrives, and what helps."""
    try:
        with (
            hosts(delay_s=0.01, packet_bytes_max=PACKET_BYTES_MAX) as pair,
            Ours("udp").server(pair, "--no-tcp") as options,
            Worker(namespace=pair.near) as publisher,
        ):
            error = publisher.start(sides.fail_to_connect, options).receive()
            assert "accepts no TCP: the path may drop long packets" in error
            assert "--tcp" in error
    except CannotRunError as error:
        pytest.skip(f"no network namespaces: {error}")
