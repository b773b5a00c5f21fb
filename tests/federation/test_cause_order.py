"""Tests of events that wait for their causes at a gateway (SPEC K-06; decision 0175)."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from tests.federation.test_imports import LINK, accepted, published
from wanderbus import protocol
from wanderbus.channels.causal.domain_past import (
    CAUSE_WAIT_S,
    Cause,
    DomainPast,
    decode_domain_past,
    encode_domain_past,
)
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Event, EventId
from wanderbus.federation import cause_order
from wanderbus.federation import imports as imports_module
from wanderbus.federation.cause_order import AWAITED_MAX, ORIGINS_MAX, CauseOrder
from wanderbus.federation.imports import Imports
from wanderbus.federation.wire import EventForwarded, EventPassed, EventsLost, EventsTaken

ALL = ("alpha", "beta", "gamma")


def order() -> CauseOrder:
    return CauseOrder("gamma", "g1", ["g1", "g2"], ["alpha", "beta"])


def imports(known: CauseOrder | None) -> Imports:
    """Return the imports of gamma from beta."""
    return Imports("beta", "gamma", frozenset({"T"}), itertools.count(LINK).__next__, 7, order=known)


def cause(number: int, origin: str = "alpha/a1", targets: str = "gamma") -> Cause:
    return Cause(origin, 1, number, frozenset(targets.split()))


def answer(number: int, *causes: Cause, server: str = "b1") -> EventForwarded:
    past = encode_domain_past(DomainPast("beta", frozenset({"gamma", "beta"}), causes), ("beta", "alpha", "gamma"))
    raw = msgspec.Raw(protocol.encode_event(Event("T", {"x": number}, past=past)))
    return EventForwarded(server, 9, number, EventId(server, 1, 100 + number), raw)


def numbers(several: list[protocol.PublishFor]) -> list[int]:
    return [int(str(protocol.decode_event(bytes(each.event))["x"])) for each in several]


def test_an_answer_waits_for_its_cause_and_holds_back_its_server_alone() -> None:
    known = order()
    one = imports(known)
    first = one.received(answer(1, cause(5)), 0, 0.0)
    assert (published(first), first.done, first.examine_at) == ([], 1, CAUSE_WAIT_S)
    assert published(one.received(answer(2), 0, 1.0)) == [], "events of one server stay in order"
    assert numbers(published(one.received(answer(1, server="b2"), 0, 1.0))) == [1]
    known.reach(EventId("alpha/a1", 1, 4))
    assert published(one.examine(2.0)) == []
    known.reach(EventId("alpha/a1", 1, 6))
    assert known.take_changed()
    assert not known.take_changed()
    assert numbers(published(one.examine(2.0))) == [1, 2]
    assert one.counts["held"] == 2


def test_causes_that_are_not_awaited() -> None:
    one = imports(order())
    elsewhere = [
        cause(1, targets="alpha beta"),
        cause(1, "delta/d1"),
        cause(1, "gamma/g1"),
        cause(1, "gamma/g9"),
    ]
    assert numbers(published(one.received(answer(1, *elsewhere), 0, 0.0))) == [1]
    assert published(one.received(answer(2, cause(1, "gamma/g2")), 0, 0.0)) == []
    without = imports(None)
    (event,) = published(without.received(answer(1, cause(1)), 0, 0.0))
    assert not protocol.decode_event(bytes(event.event)).past


def test_the_past_that_goes_on() -> None:
    known = order()
    known.reach(EventId("alpha/a1", 1, 9))
    (event,) = published(imports(known).received(answer(1, cause(5, targets="alpha gamma")), 0, 0.0))
    past = decode_domain_past(protocol.decode_event(bytes(event.event)).past or b"")
    assert past == DomainPast("beta", frozenset({"beta", "gamma"}), (cause(5, targets="alpha gamma"),))


def test_an_event_waits_for_a_bounded_time_and_those_behind_it_no_longer() -> None:
    known = order()
    one = imports(known)
    one.received(answer(1, cause(5)), 0, 0.0)
    assert published(one.examine(CAUSE_WAIT_S - 0.1, is_timer=True)) == []
    assert numbers(published(one.examine(CAUSE_WAIT_S, is_timer=True))) == [1]
    assert numbers(published(one.received(answer(2, cause(6)), 0, CAUSE_WAIT_S + 1))) == [2], "its domain is late"
    assert one.counts["unordered"] == 2
    other = Imports("alpha", "gamma", frozenset({"T"}), itertools.count(LINK).__next__, 7, order=known)
    known.reach(EventId("alpha/a1", 1, 5))
    assert numbers(published(one.received(answer(3, cause(7)), 0, CAUSE_WAIT_S + 2))) == [3], "it has not caught up"
    known.reach(EventId("alpha/a1", 1, 7))
    assert published(one.received(answer(4, cause(8)), 0, CAUSE_WAIT_S + 3)) == []
    assert not other.waiting


def test_an_invented_past_delays_the_events_of_one_domain_once() -> None:
    known = order()
    liar, honest = (
        imports(known),
        Imports("alpha", "gamma", frozenset({"T"}), itertools.count(9).__next__, 7, order=known),
    )
    liar.received(answer(1, cause(2**60)), 0, 0.0)
    assert len(published(liar.examine(CAUSE_WAIT_S, is_timer=True))) == 1
    for number in range(2, 2 * AWAITED_MAX):
        result = liar.received(answer(number, cause(number, f"alpha/x{number}")), 0, CAUSE_WAIT_S)
        assert numbers(published(result)) == [number], "another name does not begin another wait"
    assert sum(len(each) for each in known._late.values()) == AWAITED_MAX
    assert known.must_wait("alpha", [cause(1, "beta/b1")]), "others go on as before"
    assert not honest.waiting


def test_a_cause_that_does_not_come_any_more() -> None:
    known = order()
    one = imports(known)
    alpha = Imports("alpha", "gamma", frozenset({"U"}), itertools.count(9).__next__, 7, order=known)
    one.received(answer(1, cause(101)), 0, 0.0)
    assert alpha.received(EventPassed("a1", 9, 1, EventId("a1", 1, 101)), 0, 0.0).taken == [EventsTaken("a1", 9, 1)]
    assert numbers(published(one.examine(0.0))) == [1]
    one.received(answer(2, cause(102)), 0, 0.0)
    alpha.received(answer(2, server="a1"), 0, 0.0)
    assert alpha.counts == {"not_received": 1}
    assert numbers(published(one.examine(0.0))) == [2], "a type that is not received counts as come"
    alpha.received(EventsLost("a1", 9, 3, 1, "full"), 0, 0.0)
    assert numbers(published(one.examine(0.0))) == []


def test_a_cause_counts_as_come_once_it_is_durable() -> None:
    known = order()
    alpha = Imports("alpha", "gamma", frozenset({"T"}), itertools.count(9).__next__, 7, order=known)
    alpha.received(answer(1, server="a1"), 0, 0.0)
    assert known.must_wait("beta", [cause(101)])
    alpha.answered(accepted(1), 0.0)
    assert not known.must_wait("beta", [cause(101)])


def test_held_events_of_a_link_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    one = imports(order())
    assert one.received(answer(1, cause(5)), 0, 0.0).done == 1
    monkeypatch.setattr(imports_module, "HELD_BYTES_MAX", 1)
    assert one.received(answer(2, cause(5)), 0, 0.0).done == 0, "so many bytes wait that no more may come"
    assert one.end().done == 1
    assert one.waiting == 0
    assert published(one.examine(CAUSE_WAIT_S, is_timer=True)) == []
    assert published(one.received(answer(1, cause(5)), 0, 20.0)) == []
    again = one.received(answer(1, cause(5)), 0, 21.0)
    assert (published(again), one.waiting) == ([], 1), "what comes again takes the place of what waited"


def test_refusal_of_a_past_that_is_none() -> None:
    raw = msgspec.Raw(protocol.encode_event(Event("T", {}, past=b"none")))
    with pytest.raises(RemoteProtocolError, match="causal past"):
        imports(order()).received(EventForwarded("b1", 9, 1, EventId("b1", 1, 1), raw), 0, 0.0)


def test_the_bound_on_servers_whose_last_event_is_known() -> None:
    known = order()
    for number in range(ORIGINS_MAX + 1):
        known.reach(EventId(f"alpha/a{number}", 1, 1))
    assert len(known._reached) == ORIGINS_MAX
    assert cause_order.ORIGINS_MAX == ORIGINS_MAX
