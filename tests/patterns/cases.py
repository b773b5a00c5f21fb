"""Generated patterns and streams, and patterns as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from tests.patterns.enumerator import And, E, Found, Not, Or, P, S, Seq
from wanderbus.event import Event
from wanderbus.patterns import AcceptedEvent, Detection, Pattern

SECOND_US = 1_000_000
KINDS = "abc"
TEMPLATES = ("more", "same", "sum", "soon", "few")
CONDITIONS = {
    "more": "{own}.v > {other}.v",
    "same": "{other}.v == {own}.v",
    "sum": "sum({other}.v) <= 3",
    "soon": "time({own}) - first(time({other})) <= 2 seconds",
    "few": "count({other}) <= 2",
}
MODES = {"first": "select first", "every": "select every", "past": "skip past last event"}


def text_of(pattern: P) -> str:
    """Return the pattern as text."""
    within = f"within {pattern.within} seconds"
    return f"pattern p by k match {_part(pattern.root, outermost=True)} {within} {MODES[pattern.mode]}"


def _part(part: Any, *, outermost: bool = False) -> str:
    match part:
        case S():
            return _step(part)
        case Not():
            return f"not {_step(part.step)}"
        case Seq():
            text = _part(part.parts[0])
            for each, at_once in zip(part.parts[1:], part.at_once, strict=True):
                text += f" then {'next ' if at_once else ''}{_part(each)}"
        case Or() | And():
            text = (" or " if isinstance(part, Or) else " and ").join(map(_part, part.parts))
    return text if outermost else f"({text})"


def _step(step: S) -> str:
    if step.most is None:
        repeated = f"{{{step.least},}}"
    elif (step.least, step.most) != (1, 1):
        repeated = f"{{{step.least},{step.most}}}"
    else:
        repeated = ""
    text = f"{step.name}{repeated}: event (kind in ({', '.join(step.kinds)}))"
    if step.where is not None:
        template, other = step.where
        text += f" where ({CONDITIONS[template].format(own=step.name, other=other)})"
    return text


@st.composite
def patterns(draw: st.DrawFn, modes: Sequence[str] = tuple(MODES)) -> P:
    """Patterns of up to five steps; most have a meaning."""
    names: list[str] = []

    def step(*, negated: bool = False, optional: bool = True) -> S:
        name = f"S{len(names)}"
        names.append(name)
        kinds = draw(st.sampled_from(["a", "b", "c", "ab", "bc"]))
        where = None
        if draw(st.integers(0, 2)) == 0:
            earlier = draw(st.sampled_from(names))
            where = (draw(st.sampled_from(TEMPLATES)), earlier)
        bounds = [(1, 1), (1, 1), (2, 2), (1, 2), (1, None), (2, None), (2, 3)]
        bounds += [(0, 1), (0, None)] if optional else []
        least, most = (1, 1) if negated else draw(st.sampled_from(bounds))
        return S(name, kinds, where, least, most)

    def sequence(depth: int, length_max: int, *, first: bool) -> Any:
        parts: list[Any] = [part(depth, first=first)]
        at_once: list[bool] = []
        if not first and draw(st.integers(0, 3)) == 0:
            parts, at_once = [Not(step(negated=True)), *parts], [False]
        for _ in range(draw(st.integers(0, length_max - 1))):
            if len(names) >= 5:
                break
            if draw(st.integers(0, 3)) == 0:
                at_once.append(False)
                parts.append(Not(step(negated=True)))
            else:
                at_once.append(not isinstance(parts[-1], Not) and draw(st.integers(0, 3)) == 0)
                parts.append(part(depth, first=False))
        return parts[0] if len(parts) == 1 else Seq(tuple(parts), tuple(at_once))

    def part(depth: int, *, first: bool) -> Any:
        if depth and draw(st.integers(0, 3)) == 0:
            group = draw(st.sampled_from([Or, And]))
            return group((sequence(depth - 1, 2, first=first), sequence(depth - 1, 2, first=first)))
        return step(optional=not first)

    root = sequence(1, 4, first=True)
    return P(root, draw(st.integers(1, 6)), draw(st.sampled_from(modes)))


@st.composite
def streams(draw: st.DrawFn, most: int = 9) -> list[E]:
    """Events with equal times, two keys, and values that may be missing."""
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 8),
                st.sampled_from(["x", "x", "x", "y"]),
                st.sampled_from(KINDS),
                st.sampled_from([None, 0, 1, 1, 2, 3]),
            ),
            min_size=draw(st.integers(0, most - 2)),
            max_size=most,
        )
    )
    return [E(time, offset, key, kind, value) for offset, (time, key, kind, value) in enumerate(rows)]


def occurrence(event: E) -> AcceptedEvent:
    """Return the event as the package takes it."""
    attributes: dict[str, Any] = {"k": event.key, "kind": event.kind}
    if event.value is not None:
        attributes["v"] = event.value
    return AcceptedEvent(Event("event", attributes), event.offset, event.time * SECOND_US, f"s-1-{event.offset}")


def found(detections: Sequence[Detection], events: Sequence[E]) -> list[Found]:
    """Return detections in the form of the enumerator."""
    times = {event.offset: event.time for event in events}
    return [
        Found(each.at_us // SECOND_US, tuple((times[taken.offset], taken.offset, taken.step) for taken in each.events))
        for each in detections
    ]


def run(pattern: Pattern, events: Sequence[E]) -> list[Detection]:
    """Return all detections of events that come as one batch, in any order."""
    _, detections = pattern.advance(pattern.start(), pattern.classify(map(occurrence, events)), 2**62)
    return detections
