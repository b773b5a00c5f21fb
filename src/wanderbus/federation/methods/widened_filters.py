"""Filters of one type, in place of which everything of the type is wanted if they are too many (SPEC M-01)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.interest_set import Wanted
from wanderbus.federation.methods.filter_bounds import FILTERS_MAX
from wanderbus.filters.normal import Conjunction

Filters = dict[Hashable, Wanted]


def everything(type: str) -> Interest:
    """Return the interest in all events of a type."""
    return Interest(type, Conjunction((), ()))


class WidenedFilters:
    """Filters of ``type`` by id. A receiver takes ``filters_max``; its events are filtered again where they arrive.

    The filters are used again once a quarter of them is gone.
    """

    def __init__(self, type: str, filters_max: int = FILTERS_MAX) -> None:
        self.filters: Filters = {}
        self.is_wide = False
        self._filters_max = filters_max
        self._everything = everything(type)

    def effective(self) -> Filters:
        """Return what is wanted in place of the filters, or the filters themselves."""
        return self._wide() if self.is_wide else dict(self.filters)

    def update(self, added: Mapping[Hashable, Wanted], removed: Iterable[Hashable]) -> tuple[Filters, list[Hashable]]:
        """Remove and add filters; return what to add and to remove where the filters are sent."""
        before = self.effective()
        for id in removed:
            self.filters.pop(id, None)
        self.filters |= added
        bound = self._filters_max * 3 // 4 if self.is_wide else self._filters_max
        self.is_wide = len(self.filters) > bound
        after = self.effective()
        return (
            {id: wanted for id, wanted in after.items() if before.get(id) != wanted},
            [id for id in before if id not in after],
        )

    def _wide(self) -> Filters:
        return {self._everything: (self._everything.subject, (self._everything.conjunction,))}
