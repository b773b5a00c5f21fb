"""Figures of `wanderbus bench`: percentiles, counts and gaps of recorded times."""

from __future__ import annotations

import math

import pytest

from wanderbus.cli.bench.figures import BenchFigures, Recorded, figures_of, spread_of
from wanderbus.evaluation.percentiles import percentile


def figures(recorded: Recorded, *, is_complete: bool = True) -> BenchFigures:
    return figures_of(
        "sub", recorded, subject="S", events=4, size_bytes=100, is_complete=is_complete, may_lack=not is_complete
    )


def published(count: int, *, publishers: int = 1, subscribers: int = 1) -> Recorded:
    """Events that are due each second and accepted half a second later."""
    recorded = Recorded(publishers, subscribers)
    for number in range(count):
        for place in range(publishers):
            recorded.on_due(place, number, float(number))
            recorded.on_accepted(place, number, number + 0.5)
    return recorded


@pytest.mark.parametrize(("share", "value"), [(0.5, 2), (0.51, 3), (0.99, 4), (1.0, 4), (0.0, 1)])
def test_percentile_of_four_values(share: float, value: float) -> None:
    assert percentile([4, 1, 3, 2], share) == value


def test_percentile_of_nothing() -> None:
    assert math.isnan(percentile([], 0.5))
    assert spread_of([]) is None


def test_spread_of_times_in_milliseconds() -> None:
    spread = spread_of([0.001 * each for each in range(100, 0, -1)])
    assert spread is not None
    assert (spread.count, spread.p50_ms, spread.p90_ms, spread.p99_ms, spread.max_ms) == (100, 50, 90, 99, 100)


def test_figures_of_events_that_all_arrived() -> None:
    recorded = published(4, subscribers=2)
    for place in range(2):
        for number in range(4):
            recorded.on_arrived(place, 0, number, number + 1.0)
    assert recorded.is_all_delivered
    found = figures(recorded)
    assert found.is_good
    assert (found.accepted, found.accepted_bytes, found.delivered, found.delivered_bytes) == (4, 400, 8, 800)
    assert (found.seconds, found.accepted_per_s, found.delivered_per_s) == (4.0, 1.0, 2.0)
    assert found.acceptance is not None
    assert found.acceptance.max_ms == 500
    assert found.latency is not None
    assert found.latency.max_ms == 1_000


def test_account_of_lost_repeated_and_exchanged_events() -> None:
    recorded = published(4)
    for at_s, number in enumerate((0, 2, 1, 1)):
        recorded.on_arrived(0, 0, number, 10.0 + at_s)
    assert not recorded.is_all_delivered, "as many arrived as were accepted, but not the same"
    found = figures(recorded)
    assert (found.lost, found.repeated, found.out_of_order, found.outstanding) == (1, 1, 1, 0)
    assert not found.is_good
    ended = figures(recorded, is_complete=False)
    assert (ended.lost, ended.outstanding) == (0, 1), "it may still be on its way"
    assert not ended.is_good


def test_order_of_each_publisher_alone() -> None:
    recorded = published(2, publishers=2)
    for publisher, number in ((0, 0), (0, 1), (1, 0), (1, 1)):
        recorded.on_arrived(0, publisher, number, 5.0)
    assert recorded.is_all_delivered
    assert figures(recorded).out_of_order == 0


@pytest.mark.parametrize(("publisher", "number"), [(1, 0), (-1, 0), (0, 4), (0, -1)])
def test_event_that_nobody_published(publisher: int, number: int) -> None:
    recorded = published(1)
    recorded.on_arrived(0, publisher, number, 1.0)
    assert recorded.delivered_count == 0


def test_gap_of_each_move() -> None:
    recorded = published(7)
    for number, at_s in enumerate((1.0, 1.1, 1.6, 1.7, 1.8, 2.8, 2.9)):
        recorded.on_arrived(0, 0, number, at_s)
    recorded.moves_s = [1.2, 1.9, 3.5]
    assert recorded.gaps_s() == pytest.approx([1.0, 1.0]), "nothing arrived after the last move"
    recorded.moves_s = [1.2, 1.75]
    assert recorded.gaps_s() == pytest.approx([0.5, 1.0])


def test_lines_of_a_measurement_without_subscribers() -> None:
    lines = list(figures(published(4, subscribers=0)).lines())
    assert [line.split()[0] for line in lines] == ["published", "acceptance"]
