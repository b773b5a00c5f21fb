"""Hierarchies of subjects: a subscription to a parent also receives its children's events (SPEC J-13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wanderbus.errors import ConfigurationError
from wanderbus.subscription import EVERY_SUBJECT

DEPTH_MAX: Final = 16
"""Subjects from the top of a hierarchy to its deepest child; an event is matched under each of them."""


class Hierarchy:
    """Declared parents of subjects; a subject without a parent is the top of its own hierarchy."""

    def __init__(self, parents: Mapping[str, str]) -> None:
        """Create the hierarchies from the parent of each child.

        :raises ConfigurationError: a cycle, more than ``DEPTH_MAX`` levels, or ``*`` as child or parent
        """
        self.parents = dict(parents)
        self._lineages = {child: _lineage(child, parents) for child in parents}

    def lineage(self, subject: str) -> tuple[str, ...]:
        """Return ``subject``, its parent and so on up to the top.

        An event is matched with the subscriptions to each of these subjects, and with those to every subject.
        """
        return self._lineages.get(subject) or (subject,)

    def below(self, subject: str) -> tuple[str, ...]:
        """Return ``subject`` and all subjects below it: a subscription to it receives the events of each."""
        return (subject, *(child for child, lineage in self._lineages.items() if subject in lineage[1:]))

    def top(self, subject: str) -> str:
        """Return the top of the hierarchy of ``subject``."""
        lineage = self._lineages.get(subject)
        return lineage[-1] if lineage else subject


def _lineage(child: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    found = [child]
    while (above := parents.get(found[-1])) is not None:
        if above in found:
            raise ConfigurationError(f"parents: {above!r} is its own ancestor; remove one parent of the cycle")
        found.append(above)
        if len(found) > DEPTH_MAX:
            raise ConfigurationError(f"parents: {child!r} has more than {DEPTH_MAX - 1} ancestors; remove some")
    if EVERY_SUBJECT in found:
        raise ConfigurationError(f"parents: {EVERY_SUBJECT!r} means every subject and can be neither child nor parent")
    return tuple(found)
