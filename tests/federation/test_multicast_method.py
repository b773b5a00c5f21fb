"""Multicast of filters between domains (SPEC M-01, M-02)."""

from __future__ import annotations

import pytest

from tests.federation.federated_world import World, disturb, partly_trusting, points, trusting
from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.channels.interest.messages import InterestChanged, InterestWhole, NumberedFilter, Stream
from wanderbus.federation.filter_routing import FilterRouting
from wanderbus.federation.methods.filter_bounds import FILTERS_MAX
from wanderbus.federation.methods.wire import Role, carried
from wanderbus.federation.routing_messages import (
    DomainLinked,
    DomainMessage,
    Neighbour,
    OwnInterestChanged,
    RoutingFailed,
    RoutingSettings,
    RoutingSuperseded,
    SendToDomain,
    WantedByDomain,
)
from wanderbus.filters import parse

A_AND_B = ("a", "b")


def linked(settings: dict[str, RoutingSettings], seed: int = 0) -> World:
    world = World(settings, seed)
    world.link_all()
    world.run(2.0)
    return world


def test_interest_at_every_other_domain() -> None:
    world = linked(trusting("abc", ["price"]))
    world.want("a", "1", "price", "x < 4")
    world.run(1.0)
    for other in "bc":
        assert points(world.wanted[other]["a"], "price") == {0, 1, 2, 3}
    assert "b" not in world.wanted["a"]
    world.unwant("a", "1")
    world.run(1.0)
    world.check_at_rest()
    assert world.wanted["b"]["a"] == set()


def test_types_that_only_one_side_allows() -> None:
    settings = trusting(A_AND_B, ["both"])
    settings["a"] = RoutingSettings(
        "a", {"b": Neighbour(frozenset({"both", "a-receives"}), frozenset({"both", "sent"}))}
    )
    settings["b"] = RoutingSettings("b", {"a": Neighbour(frozenset({"both", "b-receives"}), frozenset({"both"}))})
    world = linked(settings)
    for type in ("both", "a-receives", "b-receives", "sent"):
        world.want("a", type, type, "x < 3")
        world.want("b", type, type, "x < 3")
    world.run(1.0)
    assert {each.subject for each in world.wanted["b"]["a"]} == {"both"}
    assert {each.subject for each in world.wanted["a"]["b"]} == {"both"}
    world.check_at_rest()


def test_interest_in_every_type() -> None:
    world = linked(trusting(A_AND_B, ["price", "departure"]))
    world.want("a", "1", None, "x == 3")
    world.run(1.0)
    assert {each.subject for each in world.wanted["b"]["a"]} == {"price", "departure"}
    world.check_at_rest()


def test_known_types_of_a_restarted_gateway() -> None:
    world = linked(trusting("abc", ["price"]))
    world.want("a", "1", "price", "x < 4")
    world.run(1.0)
    world.crash("b")
    world.start("b")
    assert world.known["b"] == {}
    world.link("a", "b")
    world.run(5.0)
    assert world.known["b"] == {"a": {"price"}}
    assert points(world.wanted["b"]["a"], "price") == {0, 1, 2, 3}


def test_interest_of_a_domain_that_is_away() -> None:
    world = linked(trusting(A_AND_B, ["price"]))
    world.want("a", "1", "price", "x < 4")
    world.run(1.0)
    world.crash("a")
    world.run(100.0)
    assert points(world.wanted["b"]["a"], "price") == {0, 1, 2, 3}


@pytest.mark.parametrize("seed", range(20))
def test_disturbed_domains_at_rest(seed: int) -> None:
    world = World(trusting("abcde", ["price", "departure"]), seed)
    disturb(world, 80)
    world.check_at_rest()
    assert not world.failed


@pytest.mark.parametrize("seed", range(10))
def test_disturbed_domains_with_partial_trust(seed: int) -> None:
    world = World(partly_trusting("abcde", ["price", "departure", "ship"], seed), seed)
    disturb(world, 80)
    world.check_at_rest()
    assert not world.failed


# Nonsense --------------------------------------------------------------------------------------------------------


def receiver() -> FilterRouting:
    routing = FilterRouting(trusting(A_AND_B, ["price"])["a"], epoch=1)
    routing.step([DomainLinked("b")], 0.0)
    return routing


def received(*filters: NumberedFilter, role: Role = "multicast", origin: str = "b") -> list[object]:
    message = InterestWhole(Stream(0, origin), 1, 1, filters)
    return list(receiver().step([DomainMessage("b", carried(role, message))], 0.0))


def reasons(outputs: list[object]) -> list[str]:
    return [each.reason for each in outputs if isinstance(each, RoutingFailed)]


def test_filters_of_one_type_beyond_the_bound() -> None:
    several = [NumberedFilter(number, "price", f"x == {number}") for number in range(FILTERS_MAX + 1)]
    assert not reasons(received(*several[:-1]))
    outputs = received(*several)
    assert reasons(outputs) == ["b: 1001 filters of price (expected at most 1000)"]
    assert not any(isinstance(each, WantedByDomain) for each in outputs)


def test_filters_of_unknown_types_beyond_the_bound() -> None:
    several = [NumberedFilter(number, f"type {number}", "x == 1") for number in range(FILTERS_MAX + 1)]
    assert not reasons(received(*several[:-1]))
    assert "types that are not sent to it" in reasons(received(*several))[0]


@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        ([NumberedFilter(1, None, "x == 1")], "has no type"),
        ([NumberedFilter(1, "price", "x == 1"), NumberedFilter(1, "price", "x == 2")], "have one number"),
        ([NumberedFilter(1, "price", "x == 1"), NumberedFilter(2, "price", "x == 1")], "one filter twice"),
        ([NumberedFilter(1, "price", "x == ")], "invalid filter"),
    ],
)
def test_senseless_filters(filters: list[NumberedFilter], reason: str) -> None:
    assert reason in reasons(received(*filters))[0]


def test_stream_of_another_origin() -> None:
    assert "is not that of the sender" in reasons(received(origin="c"))[0]


def test_added_filter_with_a_number_in_use() -> None:
    routing, one = receiver(), NumberedFilter(1, "price", "x == 1")
    whole = InterestWhole(Stream(0, "b"), 1, 1, (one,))
    change = InterestChanged(Stream(0, "b"), 1, 2, 1, (NumberedFilter(1, "price", "x == 2"),), ())
    assert not reasons(list(routing.step([DomainMessage("b", carried("multicast", whole))], 0.0)))
    assert reasons(list(routing.step([DomainMessage("b", carried("multicast", change))], 0.0)))


@pytest.mark.parametrize("payload", [b"", b"\x93", b"\x93\x01\x09\x90", b"\xff" * 20])
def test_malformed_messages(payload: bytes) -> None:
    assert len(reasons(list(receiver().step([DomainMessage("b", payload)], 0.0)))) == 1


def test_messages_after_nonsense() -> None:
    routing = receiver()
    whole = InterestWhole(Stream(0, "b"), 1, 1, ())
    outputs = routing.step([DomainMessage("b", b"?"), DomainMessage("b", carried("multicast", whole))], 0.0)
    assert not any(isinstance(each, SendToDomain) for each in outputs)


def test_link_to_an_unknown_domain() -> None:
    outputs = FilterRouting(trusting(A_AND_B, ["price"])["a"], epoch=1).step([DomainLinked("z")], 0.0)
    assert reasons(list(outputs)) == ["z is not in the federation file"]


def test_gateway_with_an_earlier_epoch() -> None:
    world = linked(trusting(A_AND_B, ["price"]))
    earlier = FilterRouting(world.settings["a"], epoch=0)
    position, *_ = [each for each in earlier.step([DomainLinked("b")], 0.0) if isinstance(each, SendToDomain)]
    answers = world.routing["b"].step([DomainMessage("a", position.payload)], world.now)
    (refused,) = [each for each in answers if isinstance(each, SendToDomain)]
    assert RoutingSuperseded(1, "b") in earlier.step([DomainMessage("b", refused.payload)], 0.0)


def test_everything_in_place_of_too_many_filters() -> None:
    world = linked(trusting(A_AND_B, ["price"]))
    ids = [f"{number}" for number in range(FILTERS_MAX + 1)]
    world.want_many("a", {id: ("price", parse(f"y == {id} and x == {id}")) for id in ids})
    world.run(5.0)
    assert len(world.own["a"].sent()) > FILTERS_MAX
    assert len(world.wanted["b"]["a"]) == 1
    assert points(world.wanted["b"]["a"], "price") == set(range(12))
    world.unwant("a", *ids[: FILTERS_MAX // 2])
    world.run(5.0)
    assert world.wanted["b"]["a"] == set(world.own["a"].sent())
    assert not world.failed


def test_repeated_own_interest() -> None:
    world = linked(trusting(A_AND_B, ["price"]))
    world.want("a", "1", "price", "x < 4")
    again = OwnInterestChanged(InterestChange(tuple(world.own["a"].sent())))
    world.give("a", again)
    world.run(1.0)
    world.check_at_rest()


def test_filter_that_comes_and_goes_in_one_step() -> None:
    routing, one = receiver(), NumberedFilter(1, "price", "x == 1")
    stream = Stream(0, "b")
    there = InterestChanged(stream, 1, 1, 0, (one,), ())
    gone = InterestChanged(stream, 1, 2, 1, (), (1,))
    back = InterestChanged(stream, 1, 3, 2, (NumberedFilter(2, "price", "x == 1"),), ())
    payloads = [DomainMessage("b", carried("multicast", each)) for each in (there, gone, back)]
    assert not any(isinstance(each, WantedByDomain) for each in routing.step(payloads[:2], 0.0))
    assert any(isinstance(each, WantedByDomain) for each in routing.step(payloads[2:], 0.0))
