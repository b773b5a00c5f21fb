"""The benchmark of a domain counts what servers send each other, as the figures say."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import domain, domain_interest, domain_single
from bench.domain_messages import Case, Phases, row_of
from bench.domain_model import ModelDomain, Traffic
from wanderbus.event import Event


@pytest.fixture
def servers() -> ModelDomain:
    return ModelDomain(3)


def led_by(servers: ModelDomain, name: str) -> str:
    """A subject whose channel this server leads."""
    return next(f"Type.{number}" for number in range(100) if servers.leader(f"Type.{number}") == name)


def sent(servers: ModelDomain) -> dict[str, int]:
    """The messages between servers since the last call."""
    servers.run()
    traffic, servers.traffic = servers.traffic, Traffic()
    return dict(traffic.messages)


def test_only_an_uncovered_subscription_at_another_leader_costs_messages(servers: ModelDomain) -> None:
    alice = servers.agent("s1", "alice")
    there, here = led_by(servers, "s2"), led_by(servers, "s1")
    assert sent(servers) == {}
    request = servers.subscribe(alice, there, "N < 5")
    assert sent(servers) == {"Subscribe": 1, "Done": 1}
    assert servers.answered(alice, request)[1] == 4
    for subject, expression in ((there, "N < 3"), (here, "N < 9")):
        request = servers.subscribe(alice, subject, expression)
        assert sent(servers) == {}
        assert servers.answered(alice, request)[1] == 2


def test_an_event_costs_the_forward_and_each_server_that_wants_it(servers: ModelDomain) -> None:
    subject = led_by(servers, "s3")
    alice, bob, carol = (servers.agent(name, user) for name, user in (("s1", "alice"), ("s2", "bob"), ("s3", "carol")))
    servers.subscribe(alice, subject, "N < 5")
    sent(servers)
    servers.publish(bob, Event(subject, {"N": 1}))
    assert sent(servers) == {"PublishFor": 1, "PublishAccepted": 1, "NotifyServer": 1, "NotifyAck": 1}
    servers.publish(bob, Event(subject, {"N": 7}))
    assert sent(servers) == {"PublishFor": 1, "PublishAccepted": 1}
    servers.publish(carol, Event(subject, {"N": 7}))
    assert sent(servers) == {}


def test_multicast_replaces_the_messages_that_spread_a_change() -> None:
    """Six servers are neither leader nor origin; each confirms to the leader, and the leader to the origin."""
    links, by_multicast = domain_interest.measured()
    elsewhere, at_leader = 1 + 6 + 6 + 1, 7 + 7
    assert links["messages_per_change"] == (7 * elsewhere + at_leader) / 8 == 14
    assert by_multicast["messages_per_change"] == (7 * (elsewhere - 5) + at_leader - 6) / 8 == 8.875
    assert (links["datagrams_per_change"], by_multicast["datagrams_per_change"]) == (0, 1)


def test_the_ratio_to_flooding_is_that_of_all_messages() -> None:
    subscribing, publishing, unsubscribing = Traffic(), Traffic(), Traffic()
    subscribing.messages.update(Subscribe=10, Done=10)
    unsubscribing.messages.update(Unsubscribe=10, Done=10)
    publishing.messages.update(PublishFor=5, PublishAccepted=5, NotifyServer=5, Take=5)
    case = Case(subscriptions=10, servers=3)
    row = row_of(Phases(case, subscribing, publishing, unsubscribing, 10, needed=4, remote=10, table=10, hops={}))
    # A change costs 2 messages and an event 2; flooding costs 2 for each of two other servers.
    assert row["vs_flooding"]["1"] == pytest.approx((2 + 2) / 4)
    assert row["vs_flooding"]["100"] == pytest.approx((2 + 200) / 400)
    assert row["needed_vs_flooding"] == pytest.approx(0.2)


def test_without_the_earlier_commit_that_goal_is_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(domain_single, "_ROOT", tmp_path)
    _, goals = domain._single(domain.QUICK)
    assert goals[0]["met"] is None


@pytest.mark.integration
def test_the_script_of_that_goal_runs_with_both_sources() -> None:
    rows = domain_single.compared(1, 64)
    assert all(set(row) == {"before", "now"} and min(row.values()) > 0 for row in rows)
