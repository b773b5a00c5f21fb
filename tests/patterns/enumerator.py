"""Truth for patterns: enumerates every choice of events, by the definition in docs/patterns.md.

It shares no code with the package. A pattern is expanded to *words*: plain sequences of steps without alternatives or
repetitions. Each word is tried on every choice of events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any, NamedTuple


class E(NamedTuple):
    """An event: time in seconds, offset, key, kind and value."""

    time: int
    offset: int
    key: str
    kind: str
    value: int | None


class S(NamedTuple):
    """A step: its kinds, a condition (name of the template, the step referred to), and its bounds."""

    name: str
    kinds: str
    where: tuple[str, str] | None = None
    least: int = 1
    most: int | None = 1


class Not(NamedTuple):
    """The absence of a step."""

    step: S


class Seq(NamedTuple):
    """Parts in order, with whether each next one follows at once."""

    parts: tuple[Any, ...]
    at_once: tuple[bool, ...]


class Or(NamedTuple):
    """One of the parts."""

    parts: tuple[Any, ...]


class And(NamedTuple):
    """All parts, in any order."""

    parts: tuple[Any, ...]


class P(NamedTuple):
    """A pattern."""

    root: Any
    within: int
    mode: str


class Found(NamedTuple):
    """A match: when it was complete, and (time, offset, step) of each event."""

    at: int
    events: tuple[tuple[int, int, str], ...]


Binding = dict[str, list[E]]
Item = tuple[str, Any]
"""An item of a word: ("take", step), ("again", step), ("not", step) or ("next", None)."""


def holds(step: S, binding: Binding, event: E) -> bool:
    """Return whether an event can be one of the step, after the events in ``binding``."""
    if event.kind not in step.kinds:
        return False
    if step.where is None:
        return True
    template, other = step.where
    own = [*binding.get(step.name, []), event]
    others = binding.get(other, []) if other != step.name else own
    match template:
        case "more":
            one, other_value = event.value, others[-1].value if others else None
            return one is not None and other_value is not None and one > other_value
        case "same":
            return bool(others) and event.value is not None and event.value == others[-1].value
        case "sum":
            values = [each.value for each in others if each.value is not None]
            return bool(values) and sum(values) <= 3
        case "soon":
            return bool(others) and event.time - others[0].time <= 2
        case "few":
            return len(others) <= 2
    raise AssertionError(template)


def words(part: Any, longest: int) -> Iterator[list[Item]]:
    """Yield the words of a part of a pattern with at most ``longest`` events."""
    match part:
        case S():
            most = longest if part.most is None else min(part.most, longest)
            for count in range(part.least, most + 1):
                yield [("take" if number == 0 else "again", part) for number in range(count)]
        case Not():
            yield [("not", part.step)]
        case Or():
            for each in part.parts:
                yield from words(each, longest)
        case And():
            for order in permutations(part.parts):
                yield from words(Seq(tuple(order), (False,) * (len(order) - 1)), longest)
        case Seq():
            yield from _sequences(part.parts, part.at_once, longest)


def _sequences(parts: Sequence[Any], at_once: Sequence[bool], longest: int) -> Iterator[list[Item]]:
    for first in words(parts[0], longest):
        if len(parts) == 1:
            yield first
            continue
        rest_longest = longest - sum(kind in ("take", "again") for kind, _ in first)
        joint: list[Item] = [("next", None)] if at_once[0] else []
        for rest in _sequences(parts[1:], at_once[1:], rest_longest):
            yield first + joint + rest


Timed = tuple[Found, bool]
"""A match, and whether it was complete by the end of its time."""


def of_word(word: list[Item], events: Sequence[E], within: int) -> Iterator[Timed]:
    """Yield the matches of one word."""

    def gap_is_fine(gap: list[Item], between: Sequence[E], binding: Binding) -> bool:
        if ("next", None) in gap and between:
            return False
        return not any(holds(step, binding, event) for kind, step in gap if kind == "not" for event in between)

    def extended(rest: list[Item], taken: list[tuple[int, str]], binding: Binding) -> Iterator[Timed]:
        gap: list[Item] = []
        while rest and rest[0][0] in ("not", "next"):
            gap.append(rest[0])
            rest = rest[1:]
        start = events[taken[0][0]].time if taken else 0
        places = tuple((events[place].time, events[place].offset, name) for place, name in taken)
        if not rest:
            if not any(kind == "not" for kind, _ in gap):
                yield Found(places[-1][0], places), False
                return
            after = [event for event in events[taken[-1][0] + 1 :] if event.time <= start + within]
            gap = [item for item in gap if item[0] == "not"]
            if gap_is_fine(gap, after, binding):
                yield Found(start + within, places), True
            return
        kind, step = rest[0]
        for place in range(taken[-1][0] + 1 if taken else 0, len(events)):
            event = events[place]
            if taken and event.time > start + within:
                return
            if not holds(step, binding, event):
                continue
            if taken:
                between = events[taken[-1][0] + 1 : place]
                if not gap_is_fine(gap, between, binding):
                    continue
                if kind == "again" and any(holds(step, binding, other) for other in between):
                    continue
            wider = {**binding, step.name: [*binding.get(step.name, []), event]}
            yield from extended(rest[1:], [*taken, (place, step.name)], wider)

    yield from extended(word, [], {})


def steps_of(part: Any) -> list[S]:
    """Return the steps of a part, negated ones too, as they stand in the text."""
    match part:
        case S():
            return [part]
        case Not():
            return [part.step]
        case _:
            return [step for each in part.parts for step in steps_of(each)]


def matches(pattern: P, events: Sequence[E]) -> list[Found]:
    """Return the detections of a pattern over all events, in any order and with repeats, each once and in order."""
    names = {step.name: place for place, step in enumerate(steps_of(pattern.root))}
    seen_kinds = set("".join(step.kinds for step in steps_of(pattern.root)))
    found: list[Found] = []
    for key in {event.key for event in events}:
        own = sorted({event for event in events if event.key == key and event.kind in seen_kinds})
        every = {match for word in words(pattern.root, len(own)) for match in of_word(word, own, pattern.within)}
        found += _selected(every, pattern.mode, names)
    return sorted(found, key=lambda each: (each.at, _order(each, names)))


def _order(match: Found, names: dict[str, int]) -> tuple[tuple[float, float, float], ...]:
    """Earlier events first; a longer match before its own beginning."""
    end = (float("inf"),) * 3
    return (*((time, offset, names[name]) for time, offset, name in match.events), end)


def _selected(every: set[Timed], mode: str, names: dict[str, int]) -> list[Found]:
    if mode == "every":
        at = {match.events: match.at for match in sorted((match for match, _ in every), reverse=True)}
        return [Found(at_s, taken) for taken, at_s in at.items()]

    def completion(timed: Timed) -> tuple[Any, ...]:
        match, by_time = timed
        return (match.at, by_time, 0 if by_time else match.events[-1][1], _order(match, names))

    chosen: list[Found] = []
    for match, _ in sorted(every, key=completion):
        start = match.events[0][:2]
        if mode == "first" and any(start == other.events[0][:2] for other in chosen):
            continue
        if mode == "past" and any(start <= other.events[-1][:2] for other in chosen):
            continue
        chosen.append(match)
    return chosen
