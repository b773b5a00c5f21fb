"""Tests of the causes in other domains that a server names (SPEC K-06; decision 0175)."""

from __future__ import annotations

import msgspec

from wanderbus import protocol
from wanderbus.broker.causes.domain_pasts import CAUSES_KEPT_MAX, ORIGINS_KEPT_MAX, DomainPasts
from wanderbus.channels.causal.domain_past import (
    CAUSE_WAIT_S,
    Cause,
    DomainPast,
    decode_domain_past,
    encode_domain_past,
)
from wanderbus.event import Event, EventId

ALL = ("alpha", "beta", "gamma")
WAIT_US = round(CAUSE_WAIT_S * 1e6)


def event(past: DomainPast, origin: EventId | None = None) -> bytes:
    """Return the bytes of an event of ``past.domain`` with its past."""
    domains = (past.domain, *[each for each in ALL if each != past.domain])
    made = Event("T", {}, origin=origin or msgspec.UNSET, past=encode_domain_past(past, domains))
    return protocol.encode_event(made)


def imported(
    number: int, targets: str = "beta gamma", *causes: Cause, server: str = "alpha/a1"
) -> tuple[EventId, bytes]:
    """Return an event of alpha that came to beta, under an id of beta."""
    past = DomainPast("alpha", frozenset({"alpha", *targets.split()}), causes)
    return EventId("b1", 1, 1_000 + number), event(past, EventId(server, 7, number))


def names(pasts: DomainPasts, now_us: int = 0) -> dict[tuple[str, int], str]:
    found = pasts.causes("beta", ALL, now_us)
    return {(each.origin, each.number): " ".join(sorted(each.targets)) for each in found}


def test_an_event_that_came_precedes_what_is_published() -> None:
    pasts = DomainPasts()
    pasts.learn(*imported(1), 0)
    assert names(pasts) == {("alpha/a1", 1): "alpha gamma"}
    pasts.learn(*imported(2, "beta"), 0)
    assert names(pasts) == {("alpha/a1", 1): "gamma", ("alpha/a1", 2): "alpha"}, "each domain waits for its last one"
    pasts.learn(*imported(3), 0)
    assert names(pasts) == {("alpha/a1", 3): "alpha gamma"}
    assert pasts.reached["alpha/a1"].id == EventId("alpha/a1", 7, 3)


def test_events_of_the_own_domain_and_those_without_a_past() -> None:
    pasts = DomainPasts()
    pasts.learn(EventId("b2", 1, 5), event(DomainPast("beta", frozenset({"beta", "gamma"}))), 0)
    assert names(pasts) == {("beta/b2", 5): "beta gamma"}, "the own gateway waits for what its servers have sent"
    pasts.learn(EventId("b2", 1, 6), protocol.encode_event(Event("past", {"past": "past"})), 0)
    assert names(pasts) == {("beta/b2", 5): "beta gamma"}
    assert not pasts.reached


def test_a_domain_has_reached_what_precedes_its_events() -> None:
    pasts = DomainPasts()
    pasts.learn(EventId("b2", 1, 5), event(DomainPast("beta", frozenset({"alpha", "beta", "gamma"}))), 0)
    pasts.learn(*imported(1, "beta", Cause("beta/b2", 1, 5, frozenset({"gamma"}))), 0)
    assert names(pasts) == {("beta/b2", 5): "beta gamma", ("alpha/a1", 1): "alpha"}
    pasts.learn(EventId("b2", 1, 6), event(DomainPast("beta", frozenset({"alpha", "beta"}))), 0)
    assert names(pasts)["beta/b2", 6] == "alpha beta"


def test_causes_that_are_too_old_to_wait_for() -> None:
    pasts = DomainPasts()
    pasts.learn(*imported(1), 0)
    pasts.learn(*imported(1, server="alpha/a2"), WAIT_US)
    assert len(names(pasts, WAIT_US)) == 2
    assert names(pasts, WAIT_US + 1) == {("alpha/a2", 1): "alpha gamma"}
    pasts.learn(*imported(2, server="alpha/a2"), 2 * WAIT_US)
    assert set(names(pasts, 0)) == {("alpha/a2", 2)}, "what is old is forgotten with the next record"


def test_the_bounds_of_what_is_kept() -> None:
    pasts = DomainPasts()
    for number in range(ORIGINS_KEPT_MAX + CAUSES_KEPT_MAX):
        pasts.learn(*imported(1, server=f"alpha/a{number}"), 0)
    assert len(pasts.reached) == ORIGINS_KEPT_MAX
    assert sum(len(each.targets) for each in pasts.causes("beta", ALL, 0)) <= CAUSES_KEPT_MAX
    assert pasts.causes("beta", ALL, 0)[0].origin == f"alpha/a{ORIGINS_KEPT_MAX + CAUSES_KEPT_MAX - 1}"


def test_causes_after_a_restart() -> None:
    pasts, restored = DomainPasts(), DomainPasts()
    for number, server in ((1, "alpha/a2"), (1, "alpha/a1"), (2, "alpha/a2")):
        pasts.learn(*imported(number, server=server), number)
    for table, other in zip(pasts.tables, restored.tables, strict=True):
        rows = {key: row for key, row in sorted(table.changes().items()) if row is not None}
        other.load(rows.items())
    restored.begin()
    assert names(restored) == names(pasts)
    assert restored.reached == pasts.reached


def test_causes_that_a_session_brings_along() -> None:
    pasts, target = DomainPasts(), DomainPasts()
    assert pasts.encoded(0) == b""
    pasts.learn(*imported(1), 0)
    pasts.learn(EventId("b2", 1, 5), event(DomainPast("beta", frozenset({"beta", "gamma"}))), 0)
    target.take(decode_domain_past(pasts.encoded(0)), 5)
    assert names(target) == names(pasts)


def test_a_past_that_cannot_be_read_counts_as_none() -> None:
    """Another server of the domain may have sent it: it must not stop who reads the log."""
    pasts = DomainPasts()
    made = Event("T", {}, origin=EventId("alpha/a1", 7, 1), past=b"\xc1")
    pasts.learn(EventId("b1", 1, 1), protocol.encode_event(made), 0)
    assert names(pasts) == {}
    pasts.learn(*imported(2), 0)
    assert names(pasts) == {("alpha/a1", 2): "alpha gamma"}
