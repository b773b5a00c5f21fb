"""The right answer to a question, from the slow evaluators of filters and the enumerator of patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from tests.conformance.paths.questions import FLUSH_KEY, STEPS_OF, Case, Question, shown
from tests.conformance.paths.restricting import lets_through
from tests.patterns.enumerator import E, matches, steps_of
from wanderbus import filters
from wanderbus.event import Event
from wanderbus.filters import cesql
from wanderbus.filters.evaluate import evaluate
from wanderbus.subscription import EVERY_SUBJECT

Gives = Literal["events", "numbers", "matches", "count", "detections"]
"""Contents of an answer: whole events, only their numbers in the case, only a count, or the events of detections.

``matches`` are the numbers of the events that match, whatever the restrictions. The numbers of a pattern are those of
the events that match one of its steps.
"""


class Refusal(NamedTuple):
    """An answer that a path refuses, in the words for its user."""

    text: str


Found = tuple[int, str]
"""An event: its number in the case, and its contents as :func:`~tests.conformance.paths.questions.shown` has them."""

Answer = Sequence[Found] | Sequence[int] | int | Sequence[tuple[int, ...]] | Refusal
"""An answer: one of the four that :data:`Gives` names, or a refusal."""


def right_answer(case: Case, asked: Question, gives: Gives, *, is_away: bool = False) -> Answer:
    """Return the answer that a path has to give; ``is_away`` if its user is."""
    if asked.pattern is not None and gives in ("events", "detections"):
        return _detections(case, asked)
    numbers = [number for number, event in enumerate(case.events) if is_match(case, asked, event)]
    if gives != "matches":
        numbers = _allowed(case, numbers, asked, is_away=is_away)
    match gives:
        case "events":
            return [(number, shown(case.events[number])) for number in numbers]
        case "count":
            return len(numbers)
        case _:
            return numbers


def is_match(case: Case, asked: Question, event: Event) -> bool:
    """Return whether the subject and the filter of a question fit an event, or a step of its pattern does."""
    if asked.pattern is not None:
        kinds = "".join(step.kinds for step in steps_of(asked.pattern.root))
        return STEPS_OF in case.hierarchy.lineage(event.subject) and event.attributes["kind"] in kinds
    if not concerns_subject(case, asked, event):
        return False
    if asked.language == "cesql":
        value, error = cesql.evaluate(asked.expression, event.attributes)
        return value is True and error is None
    return evaluate(filters.parse(asked.expression, asked.language).root, event) is True


def concerns_subject(case: Case, asked: Question, event: Event) -> bool:
    """Return whether the subject of a question is that of an event, an ancestor of it, or every subject."""
    return asked.subject in (EVERY_SUBJECT, *case.hierarchy.lineage(event.subject))


def _allowed(case: Case, numbers: list[int], asked: Question, *, is_away: bool) -> list[int]:
    """Return what the restrictions let through that held when the event came."""
    found: list[int] = []
    for number in numbers:
        is_later = asked.later is not None and number >= case.half
        restrictions = asked.later if is_later else asked.restrictions
        if lets_through(restrictions or (), case.events[number], is_first=not found, is_away=is_away):
            found.append(number)
    return found


def _detections(case: Case, asked: Question) -> list[tuple[int, ...]]:
    assert asked.pattern is not None
    steps = [n for n, event in enumerate(case.events) if STEPS_OF in case.hierarchy.lineage(event.subject)]
    begin = min((case.events[n].attributes["at"] for n in steps), default=None)
    stream = [_of_stream(case.events[n].attributes, n, begin) for n in steps]
    return without_ends(
        case, [tuple(offset for _, offset, _ in each.events) for each in matches(asked.pattern, stream)]
    )


def _of_stream(attributes: Mapping[str, Any], number: int, begin: datetime | None) -> E:
    assert begin is not None
    at, value = attributes["at"], attributes.get("v")
    return E(round((at - begin).total_seconds()), number, attributes["k"], attributes["kind"], value)


def without_ends(case: Case, detections: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the detections of a path in order, without those of the events that end all patterns."""
    ends = {n for n, event in enumerate(case.events) if event.attributes.get("k") == FLUSH_KEY}
    return sorted(each for each in detections if ends.isdisjoint(each))
