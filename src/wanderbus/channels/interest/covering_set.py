"""Set of interests that knows which of them no other covers (SPEC B-02, J-10)."""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.channels.interest.covering_index import CoveringIndex, Interest
from wanderbus.work import UNCOUNTED, WorkBudget

ORPHANS_MAX: Final = 64
"""Attached interests up to which they are placed again at once when what covers them is removed."""

_PLACED: Final = 2_000
"""Units of work to place an interest, besides the search for what covers it."""


class InterestChange(msgspec.Struct, frozen=True):
    """Interests that a set gained and lost at once: what other servers must receive in one message."""

    added: tuple[Interest, ...] = ()
    removed: tuple[Interest, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


class CoveringSet:
    """Interests, each uncovered or attached to an uncovered one that covers it.

    Of two that cover each other the one that came first is uncovered. A covering that is not found within the units
    left of ``work`` stays unknown: both are uncovered. What covered more than :data:`ORPHANS_MAX` others stays when it
    is removed, until :meth:`go_on` has placed all of them: never is less wanted than before.
    """

    def __init__(self) -> None:
        self._counts: dict[Interest, int] = {}
        self._attached: dict[Interest, dict[Interest, None]] = {}
        self._coverers: dict[Interest, Interest] = {}
        self._index = CoveringIndex()
        self._changed: dict[Interest, bool] = {}
        self._retired: dict[Interest, None] = {}
        """Removed interests that still have attached ones."""

    def __len__(self) -> int:
        """Return the number of uncovered interests."""
        return len(self._attached)

    def uncovered(self) -> list[Interest]:
        """Return the uncovered interests."""
        return list(self._attached)

    @property
    def is_settled(self) -> bool:
        """Return whether :meth:`go_on` has nothing to do."""
        return not self._retired

    def coverer(self, interest: Interest, work: WorkBudget = UNCOUNTED) -> Interest | None:
        """Return an uncovered interest that is equal to ``interest`` or covers it; None if there is none."""
        if interest in self._attached:
            return interest
        return self._coverers.get(interest) or self._index.coverer(interest, work)

    def add(self, interest: Interest, work: WorkBudget = UNCOUNTED) -> None:
        """Add ``interest``; added several times it must be removed as often."""
        count = self._counts[interest] = self._counts.get(interest, 0) + 1
        if interest in self._retired:
            del self._retired[interest]
            self._index.add(interest)
        elif count == 1:
            self._place(interest, work)

    def remove(self, interest: Interest, work: WorkBudget = UNCOUNTED) -> None:
        """Remove ``interest`` once; the interests that it alone covered become uncovered.

        Raises :class:`KeyError` if it is not in the set.
        """
        self._counts[interest] -= 1
        if self._counts[interest]:
            return
        del self._counts[interest]
        coverer = self._coverers.pop(interest, None)
        if coverer is not None:
            del self._attached[coverer][interest]
            return
        self._index.remove(interest)
        self._retired[interest] = None
        orphans = list(self._attached[interest])
        if len(orphans) <= ORPHANS_MAX:
            for each in orphans:
                self._place_again(each, work)
            self._end(interest)

    def go_on(self, work: WorkBudget) -> None:
        """Place interests again that removed ones covered, until ``work`` has no units left."""
        while self._retired and work.left:
            interest = next(iter(self._retired))
            if attached := self._attached[interest]:
                self._place_again(next(iter(attached)), work)
            else:
                self._end(interest)

    def _place_again(self, orphan: Interest, work: WorkBudget) -> None:
        work.done += _PLACED
        del self._attached[self._coverers.pop(orphan)][orphan]
        self._place(orphan, work)

    def _end(self, retired: Interest) -> None:
        del self._retired[retired], self._attached[retired]
        self._note(retired, is_added=False)

    def exposed(self) -> list[Interest]:
        """Return the interests that have become uncovered since the last :meth:`take_change`."""
        return [each for each, is_added in self._changed.items() if is_added]

    def take_change(self) -> InterestChange:
        """Return how the uncovered interests have changed since the last call."""
        changed, self._changed = self._changed, {}
        return InterestChange(
            tuple([each for each, is_added in changed.items() if is_added]),
            tuple([each for each, is_added in changed.items() if not is_added]),
        )

    def _place(self, interest: Interest, work: WorkBudget) -> None:
        coverer = self._index.coverer(interest, work)
        if coverer is not None:
            self._attach(interest, coverer)
            return
        covered = self._index.covered(interest, work)
        self._attached[interest] = {}
        self._index.add(interest)
        self._note(interest, is_added=True)
        for each in covered:
            for one in (each, *self._conceal(each)):
                self._attach(one, interest)

    def _attach(self, interest: Interest, coverer: Interest) -> None:
        self._coverers[interest] = coverer
        self._attached[coverer][interest] = None

    def _conceal(self, interest: Interest) -> list[Interest]:
        """Remove an uncovered interest from the uncovered ones; return those attached to it."""
        self._index.remove(interest)
        self._note(interest, is_added=False)
        return list(self._attached.pop(interest))

    def _note(self, interest: Interest, *, is_added: bool) -> None:
        # An interest that comes and goes within one change is not in it.
        if self._changed.pop(interest, is_added) is is_added:
            self._changed[interest] = is_added
