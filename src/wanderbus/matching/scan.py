"""The reference index: every filter of the event's subject is tried in turn (SPEC A-03, B-01).

Filters are grouped by subject and compiled once when they are added, nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wanderbus.event import Event
from wanderbus.filters import Filter
from wanderbus.filters.compiled import Test, compile_node

Judge = Callable[[str, Test, Event], bool]
"""From a filter's id, the function that evaluates it and an event: whether it counts as one that the event matches.

It bounds what filters of strangers cost; without one they are evaluated whatever that takes.
"""


class ScanIndex:
    """A changing set of filters, each with a subject and an id of the caller's choice; slow, and plainly right."""

    def __init__(self, judge: Judge | None = None) -> None:
        self._judge = judge
        self._tests: dict[str, dict[str, Test]] = {}
        self._subjects: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._subjects)

    def add(self, id: str, subject: str, filter: Filter) -> None:
        """Match events of ``subject`` against ``filter`` from now on; replaces an earlier one with this ``id``."""
        self.remove(id)
        self._subjects[id] = subject
        self._tests.setdefault(subject, {})[id] = compile_node(filter.root)

    def remove(self, id: str) -> None:
        """Forget the filter with this ``id``; no harm if there is none."""
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
