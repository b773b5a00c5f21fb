"""The benchmark of domains that share events: what it counts, and its routes through real servers, small."""

from __future__ import annotations

import pytest

from bench import federation_counts, federation_processes
from bench.federation_processes import FEDERATED, LOCAL
from wanderbus.evaluation.federation.experiment import Way


def test_messages_of_subscriptions_grow_with_domains_and_those_of_events_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(federation_counts, "SIZES", (2, 4))
    rows = federation_counts.messages()
    assert [row["covered_subscribe"] for row in rows] == [0] * len(rows)
    for row in rows:
        assert row["subscribe"]["messages"] == row["unsubscribe"]["messages"] == 2 * (row["domains"] - 1)
        assert row["event"]["messages"] == 2
        assert row["event_of_burst"]["messages"] < 1.2


def test_m03_a_domain_that_only_receives_has_its_own_filters_and_not_those_of_others() -> None:
    rendezvous, multicast = (
        federation_counts.table_row(way, federation_counts.GROWTH_SIZES[0]) for way in (Way.RENDEZVOUS, Way.MULTICAST)
    )
    assert rendezvous["filters_at_ordinary"] == federation_counts.FILTERS
    assert multicast["filters_at_ordinary"] > 2 * federation_counts.FILTERS


def test_a_foreign_domain_that_wants_nothing_costs_an_event_nothing() -> None:
    goals = {each["name"]: each["met"] for each in federation_counts.calls_goals(federation_counts.calls())}
    assert goals["federation_idle_calls_vs_none"] is True


@pytest.mark.integration
def test_events_come_by_both_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation_processes, "WARM", 20)
    monkeypatch.setattr(federation_processes, "program", lambda: None)
    rows = federation_processes.measured(federation_processes.Size(1, 100, 20))
    assert [row["route"] for row in rows] == [LOCAL, FEDERATED]
    assert all(row["events_per_s"] > 0 for row in rows)
    assert [len(row["us_of_each_server"]) for row in rows] == [1, 2]
    goals = {each["name"] for each in federation_processes.goals_of(rows)}
    assert {"federated_events_vs_local", "federated_p99_ms", "local_us_per_event"} <= goals
