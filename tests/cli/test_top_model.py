"""Model and lines of `wanderbus top`: rates of two snapshots, order, filter and width."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.cli.top_states import ANN, BEN, CLEO, first, second, session, state
from wanderbus.cli.monitor.top_lines import HEADING, WIDTH, overview_lines, row_line, text_of
from wanderbus.cli.monitor.top_model import SORTS, LinkRow, SessionRow, View, selected, view_of
from wanderbus.operator_rows import MetricInfo, ProcessInfo


def row_of(view: View, user: str) -> SessionRow:
    (row,) = (each for each in view.sessions if each.user == user)
    return row


def test_rates_of_the_server() -> None:
    overview = view_of(second(), first()).overview
    assert (overview.interval_s, overview.up_s) == (2.0, 12.0)
    assert (overview.accepted_per_s, overview.arrived_per_s) == (250, 0)
    assert (overview.delivered_per_s, overview.dropped_per_s) == (103, 2)
    assert overview.dropped == {"queue_full": 5}
    assert (overview.acknowledgement_ms, overview.healed, overview.healing_ms) == (2.0, 1, 2_000)
    assert (overview.queued, overview.oldest_s, overview.engine_behind) == (10, 27, 12)
    assert overview.log_readers == {"lake": 44}
    links = [("server", "s2", False, 3), ("server", "s3", True, 0), ("domain", "beta", True, 0)]
    assert overview.links == [LinkRow(*each) for each in links]


def test_rates_of_a_session() -> None:
    view = view_of(second(), first())
    assert [each.user for each in view.sessions] == [ANN, BEN, CLEO]
    ann, ben, cleo = (row_of(view, user) for user in (ANN, BEN, CLEO))
    assert (ann.delivered_per_s, ann.dropped_per_s, ann.acknowledgement_ms) == (100, 0, 2.0)
    assert (ben.delivered_per_s, ben.healed, ben.away_s) == (3, 1, None)
    assert (cleo.delivered_per_s, cleo.dropped_per_s, cleo.oldest_s) == (0, 2, 27)


def test_first_snapshot_without_rates() -> None:
    view = view_of(first())
    overview = view.overview
    assert overview.accepted_per_s is overview.delivered_per_s is overview.healed is overview.interval_s is None
    assert overview.acknowledgement_ms == 0.5, "since the start of the server"
    ben = row_of(view, BEN)
    assert (ben.delivered_per_s, ben.status, ben.away_s, ben.healed) == (None, "DISCONNECTED", 30.0, 0)


def test_session_that_is_over_has_no_row() -> None:
    over = replace(session(ANN, delivered=9), session="")
    assert view_of(state(1, over)).sessions == []


def test_session_that_is_new() -> None:
    (row,) = view_of(state(2, session(ANN, delivered=8), more=first().metrics), state(1, more=first().metrics)).sessions
    assert (row.delivered_per_s, row.healed) == (8, 0)


def test_server_that_restarted() -> None:
    restarted = replace(second(), process=ProcessInfo("s1", "0.1.0", 1, 2))
    assert view_of(restarted, first()).overview.accepted_per_s is None


def test_counter_that_decreases() -> None:
    overview = view_of(second(), replace(first(), metrics=[MetricInfo("events_accepted_total", value=9e9)])).overview
    assert overview.accepted_per_s == 0


def test_snapshots_without_time_between_them() -> None:
    assert view_of(second(), second()).overview.accepted_per_s is None
    late = replace(first(), at_us=second().at_us + 1)
    assert view_of(second(), late).overview.interval_s is None, "the clock of this computer was set back"


@pytest.mark.parametrize(
    ("order", "users"),
    [
        ("waiting", [CLEO, BEN, ANN]),
        ("oldest", [CLEO, BEN, ANN]),
        ("delivered", [ANN, BEN, CLEO]),
        ("dropped", [CLEO, ANN, BEN]),
        ("acknowledged", [ANN, BEN, CLEO]),
        ("healed", [BEN, ANN, CLEO]),
        ("user", [ANN, BEN, CLEO]),
    ],
)
def test_order_of_sessions(order: str, users: list[str]) -> None:
    view = view_of(second(), first())
    assert [row.user for row in selected(view.sessions, order)] == users
    assert order in SORTS


def test_filter_of_sessions() -> None:
    view = view_of(first())
    assert [row.user for row in selected(view.sessions, "user", "ANN")] == [ANN]
    assert [row.user for row in selected(view.sessions, "user", "disconn")] == [BEN]
    assert selected(view.sessions, "user", "nobody") == []


def test_width_of_every_line() -> None:
    long = session("sip:a-very-long-name-of-a-user@some.domain.example", queued=123_456_789)
    named = replace(long, session="another-long-name", dropped={"reason-with-a-long-name": 10**12})
    lines = text_of(view_of(replace(second(), sessions=(*second().sessions, named)), first()), "waiting").splitlines()
    assert max(map(len, lines)) <= WIDTH == 80
    assert len(HEADING) == WIDTH
    lost = [MetricInfo("matches_dropped_total", (f"a-reason-with-a-long-name-{each}",), 1) for each in range(9)]
    assert max(map(len, overview_lines(view_of(state(1, more=lost)).overview))) == WIDTH
    (line,) = (line for line in lines if line.startswith("a-very-long-…xample another-…ame "))
    assert line.split()[2:] == ["123.5M", "0.0", "500.0G", "-"], "a number is never cut"


def test_lines_about_the_server() -> None:
    lines = "\n".join(overview_lines(view_of(second(), first()).overview))
    assert "250.0/s accepted" in lines
    assert "103.0/s delivered, 2.0/s dropped (5 queue_full)" in lines
    assert "10 waiting, 2.0 MB, the oldest for 27.0 s" in lines
    assert "means     acknowledgement 2.0 ms; healing: 1 came back, after 2.0 s" in lines
    assert "behind    the engine 12 records, lake 44 records" in lines
    assert "links     s2 DOWN (3 waiting), s3 up, beta up" in lines
    assert "-/s accepted" in "\n".join(overview_lines(view_of(first()).overview))


def test_names_that_would_control_the_terminal() -> None:
    (row,) = view_of(state(1, session("sip:\x1b[2Jann@x"))).sessions
    assert "\x1b" not in row_line(row)
