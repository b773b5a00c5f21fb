"""Subjects below others, for all that answers from the past: a subscription to a parent gets its children's events too.

The parents are those of the domain (SPEC J-13), which do not change while its logs have events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from wanderbus.broker.interest.matcher import lineage_of
from wanderbus.subscription import Subscription

Children = Mapping[str, tuple[str, ...]]
"""Subjects below others, at any depth, by the subject above."""


def children_of(parents: Mapping[str, str]) -> Children:
    """Return the subjects below each parent; ``parents`` has the parent of each child."""
    lineage = lineage_of(parents)
    found: dict[str, list[str]] = {}
    for child in sorted(parents):
        for above in lineage(child)[1:]:
            found.setdefault(above, []).append(child)
    return {above: tuple(below) for above, below in found.items()}


def below(subject: str, children: Children) -> tuple[str, ...]:
    """Return a subject and those below it."""
    return (subject, *children.get(subject, ()))


def with_children(subscriptions: Iterable[Subscription], children: Children) -> list[Subscription]:
    """Return the subscriptions, and the same ones to each subject below theirs, with the same ids."""
    return [
        msgspec.structs.replace(each, subject=subject)
        for each in subscriptions
        for subject in below(each.subject, children)
    ]
