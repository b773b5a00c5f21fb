"""Times on the command line have one form in every command (SPEC T-05)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from wanderbus.cli.instants import read_instant
from wanderbus.cli.pipeline import past_events, plan
from wanderbus.errors import ConfigurationError

NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("-2h", NOW - timedelta(hours=2)),
        ("-90", NOW - timedelta(seconds=90)),
        ("-15min", NOW - timedelta(minutes=15)),
        ("2026-11-21T12:00:00+02:00", NOW),
        ("2026-11-21", NOW.replace(hour=0)),
        ("earliest", None),
    ],
)
def test_a_time_is_absolute_a_day_or_a_span_ago(text: str, instant: datetime | None) -> None:
    assert read_instant(text, "--from", NOW) == instant


@pytest.mark.parametrize("text", ["-", "-2 weeks", "--2h", "-0", "-9000000000", "2026-11-21T10:00:00"])
def test_a_wrong_time_names_the_option(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^--from: "):
        read_instant(text, "--from", NOW.replace(year=200) if text == "-9000000000" else NOW)


def test_history_and_plans_take_a_span_ago() -> None:
    before = datetime.now(UTC)
    name, at_us = past_events._bound("from", "-2h")
    assert name == "from_us"
    expected_us = (before - timedelta(hours=2)).timestamp() * 1e6
    planned_us = plan._time("-2h", "--from")
    assert planned_us is not None
    for each_us in (at_us, planned_us):
        assert abs(each_us - expected_us) < 60e6
