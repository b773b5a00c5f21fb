"""Notifications that each traveller is due, computed apart from the system: the reference evaluator over the input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from demo import SUBJECT
from demo.users import User
from wanderbus import Event, filters


def expected_rows(users: Sequence[User], departures: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Return, for each user, the rows that match at least one of their subscriptions, each once, in order."""
    wanted = {user.uri: [filters.parse(text) for text in user.subscriptions] for user in users}
    due: dict[str, list[int]] = {user: [] for user in wanted}
    for departure in departures:
        event = Event(SUBJECT, departure)
        for user, expressions in wanted.items():
            if any(expression.evaluate(event) is True for expression in expressions):
                due[user].append(departure["Row"])
    return due
