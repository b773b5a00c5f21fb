"""Questions that are put to every path, and the events that answer them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from tests.patterns.cases import text_of
from tests.patterns.enumerator import E, P
from wanderbus.channels.hierarchy import Hierarchy
from wanderbus.event import Event
from wanderbus.subscription import EVERY_SUBJECT, PATTERN, Custom, Daily, Frequency, Interval, Restriction

STEPS_OF: Final = "event"
"""Subject of the steps of every pattern; its events may have a subject below it."""

FLUSH_S: Final = 100
"""Time after which no match of a pattern can become complete."""

FLUSH_KEY: Final = "flush"
"""Key of the events that end all patterns; their own detections do not count."""


class Question(NamedTuple):
    """A filter, or a pattern, with the subject and the restrictions of its subscription."""

    name: str
    subject: str
    expression: str = ""
    language: str = "eci"
    restrictions: tuple[Restriction, ...] = ()
    later: tuple[Restriction, ...] | None = None
    """Restrictions that it gets once half of the events are published; None if they stay."""
    pattern: P | None = None
    """The pattern, as the enumerator takes it."""


class Case(NamedTuple):
    """Events in the order in which they are published, the parents of their subjects, and the questions to them."""

    parents: Mapping[str, str]
    events: tuple[Event, ...]
    questions: tuple[Question, ...]
    seed: int = 0
    """Number from which the case was drawn; it also chooses the leaders of a domain."""

    @property
    def is_of_the_future(self) -> bool:
        """Return whether the events of the patterns are from the future."""
        return any(event.attributes.get("k") == FLUSH_KEY and event["at"].year > 9000 for event in self.events)  # type: ignore[union-attr]

    @property
    def half(self) -> int:
        """Return the number of the first event of the second half."""
        return len(self.events) // 2

    @property
    def hierarchy(self) -> Hierarchy:
        """Return the parents as the reference needs them."""
        return Hierarchy(self.parents)

    def of_subjects(self) -> tuple[str, ...]:
        """Return the subjects of the events, each once."""
        return tuple(dict.fromkeys(event.subject for event in self.events))


KINDS: Final[Mapping[str, Callable[[Case, Question], bool]]] = {
    "ECI": lambda _, asked: asked.language == "eci" and bool(asked.expression),
    "CESQL": lambda _, asked: asked.language == "cesql",
    "XML": lambda _, asked: asked.language == "xml",
    "every event": lambda _, asked: not asked.expression,
    "a parent": lambda case, asked: asked.subject in case.parents.values(),
    "subject `*`": lambda _, asked: asked.subject == EVERY_SUBJECT,
    "a frequency or interval": lambda _, asked: _has(asked, Frequency, Interval),
    "a daily window": lambda _, asked: _has(asked, Daily),
    "an operator's restriction": lambda _, asked: _has(asked, Custom),
    "a restriction while away": lambda _, asked: any(each.when == "away" for each in asked.restrictions),
    "other restrictions later": lambda _, asked: asked.later is not None,
    "a pattern": lambda _, asked: asked.language == PATTERN,
}
"""Kinds of questions, which are the columns of docs/paths.md; a question may be of several."""


RESTRICTIONS: Final = tuple(kind for kind in KINDS if "restriction" in kind or "frequency" in kind or "daily" in kind)
"""Kinds of questions with restrictions."""


def _has(asked: Question, *kinds: type[Restriction]) -> bool:
    return any(isinstance(each, kinds) and each.when == "always" for each in asked.restrictions)


def kinds_of(case: Case, asked: Question) -> list[str]:
    """Return the kinds of a question."""
    return [kind for kind, is_one in KINDS.items() if is_one(case, asked)]


def pattern_question(name: str, pattern: P) -> Question:
    """Return the question for a pattern; its times are those of the events."""
    return Question(name, "p", f"{text_of(pattern)} on event time at lateness 2 seconds", PATTERN, pattern=pattern)


def stream_events(stream: list[E], begin: datetime, subject: str = STEPS_OF) -> list[Event]:
    """Return the events of a stream for a pattern in order of time, and those that end all patterns."""
    events = [_stream_event(each, begin, subject) for each in sorted(stream)]
    ends = [E(FLUSH_S, 0, FLUSH_KEY, kind, None) for kind in "abc"]
    return events + [_stream_event(each, begin, subject) for each in ends]


def _stream_event(event: E, begin: datetime, subject: str) -> Event:
    attributes: dict[str, Any] = {"k": event.key, "kind": event.kind, "at": begin + timedelta(seconds=event.time)}
    if event.value is not None:
        attributes["v"] = event.value
    return Event(subject, attributes)


def shown(event: Event) -> str:
    """Return subject and attributes of an event as one text, with the types of all values; a Date is in UTC."""
    attributes = ", ".join(f"{name!r}: {_value(value)}" for name, value in sorted(event.attributes.items()))
    return f"{event.subject!r} {{{attributes}}}"


def _value(value: Any) -> str:
    match value:
        case list():
            return f"[{', '.join(map(_value, value))}]"
        case datetime():
            try:
                return value.astimezone(UTC).isoformat()
            except OverflowError:
                return f"{value.replace(tzinfo=None).isoformat()} {value.utcoffset()}"
        case _:
            return f"{type(value).__name__} {value!r}"
