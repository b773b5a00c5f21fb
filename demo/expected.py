"""Notifications that each traveller is due, computed apart from the system: the reference evaluator over the input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from demo.users import User
from wanderbus import Event, filters


class Due(NamedTuple):
    """An event that a traveller is due: the departure or the arrival of a row."""

    subject: str
    row: int


def expected_events(users: Sequence[User], events: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, list[Due]]:
    """Return, for each user, the events that match at least one of their subscriptions, each once, in order."""
    wanted = {user.uri: [(subject, filters.parse(text)) for subject, text in user.subscriptions] for user in users}
    due: dict[str, list[Due]] = {user: [] for user in wanted}
    for subject, attributes in events:
        event = Event(subject, attributes)
        for user, expressions in wanted.items():
            if any(subject == its and expression.evaluate(event) is True for its, expression in expressions):
                due[user].append(Due(subject, attributes["Row"]))
    return due
