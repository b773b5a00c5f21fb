"""Wildcards in subjects are refused with the ways that exist, and never taken literally (SPEC A-03, J-13)."""

from __future__ import annotations

import pytest

from wanderbus.client.publishes import encoded
from wanderbus.errors import EventError, Refused
from wanderbus.event import Event
from wanderbus.subscription import check_event_subject, check_wanted_subject

WILDCARDS = ["Price.*", "Price/*", "Price*", "*.a", "**", "Price.>", "Price/#", "#", "+", ">", "a/+/b", "a.#"]
ORDINARY = ["Price", "Price.IBM", "a/b", "C#", "C++", "a > b", "more>", "Price.C#", "", "?", "Pr?ce"]


@pytest.mark.parametrize("subject", WILDCARDS)
def test_a_wildcard_is_refused_in_one_line_that_names_parent_subjects(subject: str) -> None:
    with pytest.raises(Refused) as wanted:
        check_wanted_subject(subject)
    with pytest.raises(EventError) as published:
        check_event_subject(subject)
    for each in (str(wanted.value), str(published.value)):
        assert repr(subject) in each
        assert "parent subject" in each
        assert "\n" not in each
    with pytest.raises(EventError, match="wildcard"):
        encoded(Event(subject, {}))


@pytest.mark.parametrize("subject", ORDINARY)
def test_other_characters_are_ordinary(subject: str) -> None:
    check_wanted_subject(subject)
    check_event_subject(subject)


def test_a_star_alone_is_every_subject_for_subscriptions_only() -> None:
    check_wanted_subject("*")
    with pytest.raises(EventError, match="wildcard"):
        check_event_subject("*")
