"""The benchmark of others beside a backlog, small, with real agents (SPEC U-03)."""

from __future__ import annotations

import pytest

from bench import broker, broker_others
from bench.broker_others import WINDOW, Returned, beside_returning, check_lasted
from harness import loads
from harness.loads import LoadEndedError

QUEUED = 10_000
EVENTS = 200


@pytest.mark.integration
def test_turns_with_and_without_the_one_who_returns_are_measured_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_others, "TURNS", 2)
    monkeypatch.setattr(loads, "QUIET_S", 0.05)
    figures = beside_returning(QUEUED, 0.2, stuck=True)
    assert figures["queued"] == QUEUED
    assert WINDOW <= figures["left"] < QUEUED
    measured = ("returning_per_s", "alone_p50_ms", "beside_p50_ms", "p50_ratio", "p99_ratio")
    assert min(figures[name] for name in measured) > 0


@pytest.mark.integration
def test_a_backlog_that_is_over_too_early_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_others, "TURNS", 1)
    monkeypatch.setattr(loads, "QUIET_S", 0.05)
    with pytest.raises(LoadEndedError, match=f"the backlog of {EVENTS} was over"):
        beside_returning(EVENTS, 0.5, stuck=False)


def test_a_backlog_that_the_server_may_have_sent_counts_as_over() -> None:
    check_lasted(QUEUED, Returned(QUEUED - WINDOW, 10.0, 14.0, 14.0))
    with pytest.raises(LoadEndedError, match=r"was over 2\.5 s before"):
        check_lasted(QUEUED, Returned(QUEUED - WINDOW + 1, 10.0, 12.0, 14.5))


def test_a_section_whose_load_ended_is_one_line_and_not_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(queued: int, seconds: float, *, stuck: bool) -> dict[str, float]:
        if not stuck:
            raise LoadEndedError("the backlog was over")
        return {"p99_ratio": 1.1}

    monkeypatch.setattr(broker, "beside_returning", ended)
    assert broker.main(["--sections", "comer", "slow"]) == 1
    out, err = capsys.readouterr()
    assert "bench broker: comer: the backlog was over\n" in err
    assert "others_p50_beside_100k_queued: not measured\n" in out
    assert "others_p99_ratio: 1.1 ratio" in out
