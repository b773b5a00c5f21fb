"""Merged filters of all subscriptions to one subject, and the agents that use them (SPEC N-02)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from wanderbus.broker.interest.filter_watch import Watch
from wanderbus.channels.interest.interest_set import InterestSet, Wanted
from wanderbus.filters import Filter
from wanderbus.filters.merging import filter_of
from wanderbus.filters.normal import NormalForm
from wanderbus.work import WorkBudget

SUBSCRIPTIONS_MAX: Final = 256
"""Subscriptions of a subject up to which its filters are merged for agents; beyond it they publish every event."""

CONJUNCTIONS_MAX: Final = 1_024
"""Conjunctions of these filters up to which they are merged."""

EXPRESSIONS_CHARACTERS_MAX: Final = 16_384
"""Length of all merged expressions of a subject, up to which they are sent to agents."""


class SubjectFilter:
    """Merged filters of one subject; merging is perfect, so they match exactly what the subscriptions match.

    With ``is_leaders`` they are those that the leader of the subject has sent.
    """

    def __init__(self, version: int, *, is_leaders: bool = False) -> None:
        self.is_leaders = is_leaders
        self.version = version
        self.widened = version
        """Version of the last change that made the filters match more."""
        self.watches: dict[int, Watch] = {}
        """Watches by link."""
        self._merged = InterestSet("perfect")
        self._ids: dict[str, int] = {}
        """Number of filters of each subscription."""
        self._leaders: tuple[str, ...] | None = None
        """Expressions that the leader has sent last."""
        self._is_too_large = False
        self._expressions: tuple[str, ...] | None = ()
        self._is_written = True

    def add(
        self, subscriptions: Iterable[tuple[str, Sequence[Filter | NormalForm]]], version: int, work: WorkBudget
    ) -> None:
        """Add subscriptions with their filters; ``version`` is that of the change, if there is one.

        Beyond the units of ``work`` every event is published, as with too many subscriptions.
        """
        if self._is_too_large:
            return
        added: dict[Hashable, Wanted] = {}
        for identity, filters in subscriptions:
            self._ids[identity] = len(filters)
            added |= {(identity, place): (None, each) for place, each in enumerate(filters)}
        if len(self._ids) > SUBSCRIPTIONS_MAX:
            self.give_up(version)
            return
        if self._merged.update(added, (), work):
            self._is_written = False
            self.version = self.widened = version
        if not work.left or len(self._merged) > CONJUNCTIONS_MAX:
            self.give_up(version)

    def remove(self, identity: str, version: int, work: WorkBudget) -> None:
        """Remove a subscription; the filters that agents have match more from then on, until they ask again."""
        count = self._ids.pop(identity, 0)
        if not count or self._is_too_large:
            return
        if self._merged.update({}, [(identity, at) for at in range(count)], work):
            self._is_written = False
            self.version = version
        if not work.left:
            self.give_up(version)

    def replace(self, filters: Sequence[Filter] | None, version: int, work: WorkBudget) -> None:
        """Use what the leader has sent in place of its earlier filters; None lets every event be published."""
        if filters is None:
            self.give_up(version)
            return
        texts = tuple(each.text for each in filters)
        if texts == self._leaders:
            return
        former, self._leaders = list(self._ids), texts
        self.add([(str(version), filters)], version, work)
        for each in former:
            self.remove(each, version, work)

    @property
    def expressions(self) -> tuple[str, ...] | None:
        """Return the merged filters in ECI, None if they are too many or too long."""
        if not self._is_too_large and not self._merged.is_settled and self._merged.go_on():
            self._is_written = False
        if not self._is_written:
            self._is_written = True
            self._expressions = tuple(filter_of(each.conjunction).text for each in self._merged.sent())
            if sum(map(len, self._expressions)) > EXPRESSIONS_CHARACTERS_MAX:
                self.give_up(self.version)
        return self._expressions

    @property
    def oldest(self) -> int:
        """Version of the oldest filters that some agent may use."""
        return min(each.oldest for each in self.watches.values())

    def unconfirmed(self, version: float) -> list[Watch]:
        """Return the watches whose agents may use filters older than ``version``."""
        return [each for each in self.watches.values() if each.oldest < version]

    def give_up(self, version: int) -> None:
        """Let every event be published from ``version`` on."""
        self._is_too_large = self._is_written = True
        self._expressions = None
        self._merged = InterestSet("perfect")
        self.version = self.widened = version
