"""Set of interests that knows which of them no other covers (SPEC B-02, J-10)."""

from __future__ import annotations

import msgspec

from wanderbus.channels.interest.covering_index import CoveringIndex, Interest


class InterestChange(msgspec.Struct, frozen=True):
    """Interests that a set gained and lost at once: what other servers must receive in one message."""

    added: tuple[Interest, ...] = ()
    removed: tuple[Interest, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


class CoveringSet:
    """Interests, each uncovered or attached to an uncovered one that covers it.

    Of two that cover each other the one that came first is uncovered.
    """

    def __init__(self) -> None:
        self._counts: dict[Interest, int] = {}
        self._attached: dict[Interest, dict[Interest, None]] = {}
        self._coverers: dict[Interest, Interest] = {}
        self._index = CoveringIndex()
        self._changed: dict[Interest, bool] = {}

    def __len__(self) -> int:
        """Return the number of uncovered interests."""
        return len(self._attached)

    def uncovered(self) -> list[Interest]:
        """Return the uncovered interests."""
        return list(self._attached)

    def coverer(self, interest: Interest) -> Interest | None:
        """Return an uncovered interest that is equal to ``interest`` or covers it; None if there is none."""
        if interest in self._attached:
            return interest
        return self._coverers.get(interest) or self._index.coverer(interest)

    def add(self, interest: Interest) -> None:
        """Add ``interest``; added several times it must be removed as often."""
        count = self._counts[interest] = self._counts.get(interest, 0) + 1
        if count == 1:
            self._place(interest)

    def remove(self, interest: Interest) -> None:
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
        orphans = self._conceal(interest)
        for each in orphans:
            del self._coverers[each]
        for each in orphans:
            self._place(each)

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

    def _place(self, interest: Interest) -> None:
        coverer = self._index.coverer(interest)
        if coverer is not None:
            self._attach(interest, coverer)
            return
        covered = self._index.covered(interest)
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
