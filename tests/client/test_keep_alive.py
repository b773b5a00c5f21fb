"""An agent keeps its path to the server open through a NAT by default (RFC 5626 4.4.1; SPEC I)."""

from __future__ import annotations

import itertools

from tests.client.town import Phone, Town
from wanderbus.mobility.flow import KEEP_ALIVE, KEEP_ALIVE_S
from wanderbus.simulation.server import SERVER_ADDRESS


def test_over_udp_within_the_half_minute_that_a_mapping_lasts() -> None:
    town = Town()
    Phone(town).connect()
    town.run(200.0)
    times = [sent.at for sent in town.sent if sent.data == KEEP_ALIVE and sent.destination == SERVER_ADDRESS]
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert len(pauses) >= 6
    assert all(20.0 <= pause <= 25.0 for pause in pauses)


def test_over_streams_within_two_minutes() -> None:
    """RFC 5626 4.4.1: 95 to 120 s."""
    assert KEEP_ALIVE_S["TCP"] == KEEP_ALIVE_S["TLS"] == 120.0
