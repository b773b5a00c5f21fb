"""Notifications that each traveller is due, computed apart from the system: the reference evaluator over the input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from demo import SUBJECT
from demo.people import Person
from wanderbus import Event, filters


def expected_rows(people: Sequence[Person], departures: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Return, for each user, the rows that match at least one of their subscriptions, each once, in order."""
    wanted = {person.user: [filters.parse(text) for text in person.subscriptions] for person in people}
    due: dict[str, list[int]] = {user: [] for user in wanted}
    for departure in departures:
        event = Event(SUBJECT, departure)
        for user, expressions in wanted.items():
            if any(expression.evaluate(event) is True for expression in expressions):
                due[user].append(departure["Row"])
    return due
