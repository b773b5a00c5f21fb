"""Worklist between the parts of a machine: its order, its timers, and its behaviour when a part raises (DESIGN 2.1)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from wanderbus.composition import Composition, Part
from wanderbus.machine import CancelTimer, ClockRead, Input, Output, SetTimer, TimerFired


class Wanted(Input, frozen=True):
    name: str


class Done(Output, frozen=True):
    name: str


Inputs = Wanted | ClockRead | TimerFired
NEAR = Part[Inputs, Output]("near")
FAR = Part[Inputs, Output]("far")


class Pair:
    """Two parts, ``near`` and ``far``; near passes every ``far ...`` on, and ``raise`` raises."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, list[object], float]] = []
        self.parts = Composition[Output]()
        self.parts.add(NEAR, lambda inputs, now: self.take("near", inputs, now), self.route_near)
        self.parts.add(FAR, lambda inputs, now: self.take("far", inputs, now), self.route_far)

    def take(self, part: str, inputs: Sequence[Any], now: float) -> list[Output]:
        names = [getattr(given, "name", given) for given in inputs]
        self.steps.append((part, names, now))
        if "raise" in names:
            raise ValueError
        return [Done(str(name)) for name in names]

    def route_near(self, outputs: list[Output], now: float) -> None:
        for output in outputs:
            assert isinstance(output, Done)
            if output.name.startswith("far"):
                self.parts.give(FAR, [Wanted(output.name)])
            else:
                self.parts.emit(output)

    def route_far(self, outputs: list[Output], now: float) -> None:
        self.parts.emit(*outputs)

    def run(self, now: float = 0.0) -> list[str]:
        self.parts.run(now)
        return [output.name for output in self.parts.take_outputs() if isinstance(output, Done)]


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_batches_are_processed_in_order_and_not_joined(pair: Pair) -> None:
    pair.parts.give(NEAR, [Wanted("a"), Wanted("b")])
    pair.parts.give(NEAR, [Wanted("c")])
    pair.parts.give(NEAR, [])
    assert pair.run(4.5) == ["a", "b", "c"]
    assert pair.steps == [("near", ["a", "b"], 4.5), ("near", ["c"], 4.5)]


def test_an_output_precedes_what_the_same_step_causes_elsewhere(pair: Pair) -> None:
    pair.parts.give(NEAR, [Wanted("far 1"), Wanted("a"), Wanted("far 2"), Wanted("b")])
    assert pair.run() == ["a", "b", "far 1", "far 2"]


def test_inputs_from_a_route_wait_for_the_batches_before_them(pair: Pair) -> None:
    pair.parts.give(NEAR, [Wanted("far 1")])
    pair.parts.give(NEAR, [Wanted("far 2")])
    pair.run()
    assert [names for _, names, _ in pair.steps] == [["far 1"], ["far 2"], ["far 1"], ["far 2"]]


def test_records_precede_all_other_outputs(pair: Pair) -> None:
    pair.parts.give(NEAR, [Wanted("a")])
    pair.parts.run(0.0)
    pair.parts.emit_first(Done("record 1"))
    pair.parts.emit_first(Done("record 2"))
    assert pair.run() == ["record 1", "record 2", "a"]
    assert pair.run() == []


def test_an_input_precedes_the_next_batch_of_its_part(pair: Pair) -> None:
    pair.parts.precede(FAR, ClockRead(7))
    pair.parts.give(NEAR, [Wanted("far 1"), Wanted("far 2")])
    pair.run()
    assert [names for part, names, _ in pair.steps if part == "far"] == [[ClockRead(7), "far 1"], ["far 2"]]


def test_an_input_that_precedes_nothing_is_lost_with_the_step(pair: Pair) -> None:
    pair.parts.precede(FAR, ClockRead(7))
    pair.run()
    pair.parts.give(FAR, [Wanted("later")])
    pair.run()
    assert pair.steps == [("far", ["later"], 0.0)]


@pytest.mark.parametrize("key", [7, "heal", ("grace", "sip:alice@example.org", "phone")])
def test_a_timer_comes_back_to_its_part_as_it_was_set_through_any_number_of_machines(key: Hashable) -> None:
    fired: list[object] = []
    inner, outer = Composition[Output](), Composition[Output]()

    def step_whole(inputs: Sequence[Any], now: float) -> list[Output]:
        for given in inputs:
            inner.give_timer(given.key)
        inner.run(now)
        return inner.take_outputs()

    def step_part(inputs: Sequence[Any], now: float) -> list[Output]:
        fired.extend(inputs)
        return [SetTimer(key, now + 1.0), CancelTimer(("other", key))]

    inner.add(Part[Inputs, Output]("part"), step_part, lambda outputs, now: inner.emit(*outputs))
    outer.add(Part[Inputs, Output]("whole"), step_whole, lambda outputs, now: outer.emit(*outputs))
    assert outer.give_timer(("whole", ("part", key)))
    outer.run(2.0)
    assert fired == [TimerFired(key)]
    assert outer.take_outputs() == [
        SetTimer(("whole", ("part", key)), 3.0),
        CancelTimer(("whole", ("part", ("other", key)))),
    ]


@pytest.mark.parametrize("key", ["heal", ("nobody", 1), ("without scope", 1), 7, ("near", 1, 2)])
def test_a_timer_of_the_whole_goes_to_no_part(pair: Pair, key: Hashable) -> None:
    unscoped = Part[Inputs, Output]("without scope", has_scope=False)
    pair.parts.add(unscoped, lambda inputs, now: [], pair.route_far)
    assert not pair.parts.give_timer(key)
    assert pair.run() == []


def test_a_part_that_raises_loses_its_batch_alone(pair: Pair) -> None:
    pair.parts.give(NEAR, [Wanted("a")])
    pair.parts.give(NEAR, [Wanted("raise"), Wanted("b")])
    pair.parts.give(NEAR, [Wanted("c")])
    with pytest.raises(ValueError):  # noqa: PT011 - any text
        pair.run()
    assert pair.run() == ["a", "c"]


def test_a_route_does_not_run_the_parts(pair: Pair) -> None:
    circle = Part[Inputs, Output]("circle")
    pair.parts.add(circle, lambda inputs, now: [Done("x")], lambda outputs, now: pair.parts.run(now))
    pair.parts.give(circle, [Wanted("x")])
    with pytest.raises(AssertionError, match="does not run them"):
        pair.run()


def test_the_type_checker_refuses_what_a_part_does_not_take_or_emit(pair: Pair) -> None:
    """An ignored error that does not occur is an error of the type checker, too."""
    wrong = Part[Wanted, Done]("wrong")
    pair.parts.add(wrong, lambda inputs, now: [SetTimer("x", now)], pair.route_far)  # type: ignore[list-item, arg-type]
    pair.parts.give(wrong, [ClockRead(1)])  # type: ignore[misc]
    pair.parts.precede(wrong, Done("x"))  # type: ignore[misc]
    Composition[Done]().emit(SetTimer("x", 0.0))  # type: ignore[arg-type]
