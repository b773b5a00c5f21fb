"""Reference index: tries every filter of the event's subject in turn (SPEC A-03, B-01).

Filters are grouped by subject and compiled when they are added; that is all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wanderbus.event import Event
from wanderbus.filters import Filter
from wanderbus.filters.compiled import Test, compile_node

Judge = Callable[[str, Test, Event], bool]
"""Evaluation of a filter, by its id, its function and an event: returns whether the event counts as a match.

It bounds the cost of other users' filters; without a judge, an evaluation takes as long as it needs.
"""


class ScanIndex:
    """A changing set of filters, each with a subject and an id that the caller chooses; slow, and simple."""

    def __init__(self, judge: Judge | None = None) -> None:
        self._judge = judge
        self._tests: dict[str, dict[str, Test]] = {}
        self._subjects: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._subjects)

    def add(self, id: str, subject: str, filter: Filter) -> None:
        """Match events of ``subject`` against ``filter`` from now on; replaces an earlier filter with this ``id``."""
        self.remove(id)
        self._subjects[id] = subject
        self._tests.setdefault(subject, {})[id] = compile_node(filter.root)

    def remove(self, id: str) -> None:
        """Remove the filter with this ``id``, if there is one."""
        subject = self._subjects.pop(id, None)
        if subject is None:
            return
        tests = self._tests[subject]
        del tests[id]
        if not tests:
            del self._tests[subject]

    def match(self, events: Sequence[Event]) -> list[list[str]]:
        """Return for each event the ids of the filters that it matches, in the order in which they were added."""
        nothing: dict[str, Test] = {}
        judge = self._judge
        return [
            [
                id
                for id, test in self._tests.get(event.subject, nothing).items()
                if (judge(id, test, event) if judge else test(event.attributes) is True)
            ]
            for event in events
        ]
