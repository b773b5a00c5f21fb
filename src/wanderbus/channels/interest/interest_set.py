"""Interest of a server: its local filters, and the smaller set that it sends (SPEC B-10, B-12, J-03, J-10).

An interest that the sent set covers is only attached to what covers it: it costs no merging and no message, and becomes
visible again when that goes. The others are merged by :class:`wanderbus.filters.merging.MergedSet`, separately for each
subject, and the result is covered again, because merging compares only filters of one structure.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, Literal, get_args

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.covering_set import CoveringSet, InterestChange
from wanderbus.errors import ConfigurationError
from wanderbus.filters import Filter
from wanderbus.filters.merging import PRECISION_MIN, MergedSet, uncovered_conjunctions
from wanderbus.filters.normal import Conjunction, NormalForm
from wanderbus.filters.normalising import normal_form

InterestMode = Literal["none", "perfect", "imperfect", "adaptive"]
MODES: Final[tuple[InterestMode, ...]] = get_args(InterestMode)
"""Modes of merging; covering applies in all of them."""

Wanted = tuple[str | None, Filter | NormalForm]
"""Subject of a local filter, None for every subject, and the filter or its normal form."""


class InterestSet:
    """Local filters by id, and the interests that no other of them covers, after merging.

    ``precision_min`` is the estimated precision from which adaptive merging starts.
    """

    def __init__(self, mode: InterestMode = "perfect", *, precision_min: float = PRECISION_MIN) -> None:
        """Begin empty. Raises :class:`ConfigurationError` for another mode or a precision outside 0 to 1."""
        if mode not in MODES:
            raise ConfigurationError(f"unknown mode of merging {mode!r}; use one of {', '.join(MODES)}")
        self._mode = mode
        self._precision_min = precision_min
        self._local: dict[Hashable, dict[Interest, None]] = {}
        self._counts: dict[Interest, int] = {}
        self._covered: dict[Interest, None] = {}
        """Local interests that are only attached to what covers them; all of them without merging."""
        self._merged: dict[str | None, dict[Interest, None]] = {}
        """The other local interests, which are merged, by subject."""
        self._merging: dict[str | None, MergedSet] = {}
        self._sent = CoveringSet()
        self._new_merging()

    def __contains__(self, id: object) -> bool:
        """Return whether there is a local filter with this ``id``."""
        return id in self._local

    def ids(self) -> list[Hashable]:
        """Return the ids of the local filters."""
        return list(self._local)

    def sent(self) -> list[Interest]:
        """Return the interests to send."""
        return self._sent.uncovered()

    def update(self, added: Mapping[Hashable, Wanted], removed: Iterable[Hashable] = ()) -> InterestChange:
        """Remove and add local filters at once; return how the interests to send change.

        A filter replaces one with the same id. Raises :class:`KeyError` for an unknown removed id.
        """
        forms = {id: _interests(*wanted) for id, wanted in added.items()}
        leaving = dict.fromkeys(removed)
        for id in leaving:
            if id not in self._local:
                raise KeyError(id)
        leaving |= dict.fromkeys(id for id in forms if id in self._local)
        counts = self._counts
        touched: dict[Interest, bool] = {}
        for by, ids in ((-1, [self._local.pop(id) for id in leaving]), (+1, list(forms.values()))):
            for each in chain.from_iterable(ids):
                touched.setdefault(each, each in counts)
                counts[each] = counts.get(each, 0) + by
        self._local |= forms
        gone = [each for each, was_there in touched.items() if was_there and not counts[each]]
        new = [each for each, was_there in touched.items() if not was_there and counts[each]]
        for each in touched:
            if not counts[each]:
                del counts[each]
        self._remove(gone)
        self._add(new)
        return self._settled()

    def set_precision(self, subject: str | None, precision_min: float) -> InterestChange:
        """Merge the interests of ``subject`` again, to an estimated precision; return how those to send change."""
        if subject not in self._merging:
            return InterestChange()
        before = self._merging[subject].conjunctions()
        after = self._merging[subject] = self._new_merging(precision_min)
        after.update({each: (each.conjunction,) for each in self._merged[subject]})
        kept = set(before) & set(now := after.conjunctions())
        self._apply(subject, [each for each in now if each not in kept], [each for each in before if each not in kept])
        return self._settled()

    def _new_merging(self, precision_min: float | None = None) -> MergedSet:
        mode = "perfect" if self._mode == "none" else self._mode
        return MergedSet(mode, precision_min=self._precision_min if precision_min is None else precision_min)

    def _remove(self, gone: Iterable[Interest]) -> None:
        merged: dict[str | None, list[Interest]] = {}
        for each in gone:
            if each in self._covered:
                del self._covered[each]
                self._sent.remove(each)
            else:
                merged.setdefault(each.subject, []).append(each)
        for subject, several in merged.items():
            for each in several:
                del self._merged[subject][each]
            self._merge(subject, (), several)

    def _add(self, new: Iterable[Interest]) -> None:
        merged: dict[str | None, list[Interest]] = {}
        for each in new:
            if self._mode == "none" or self._sent.coverer(each) is not None:
                self._covered[each] = None
                self._sent.add(each)
            else:
                merged.setdefault(each.subject, []).append(each)
        for subject, several in merged.items():
            uncovered = set(uncovered_conjunctions([each.conjunction for each in several]))
            self._merge_too(subject, [each for each in several if each.conjunction in uncovered])
            for each in several:
                if each.conjunction not in uncovered:
                    self._covered[each] = None
                    self._sent.add(each)

    def _merge_too(self, subject: str | None, several: Sequence[Interest]) -> None:
        self._merged.setdefault(subject, {}).update(dict.fromkeys(several))
        self._merge(subject, several, ())

    def _merge(self, subject: str | None, added: Sequence[Interest], removed: Sequence[Interest]) -> None:
        merging = self._merging.setdefault(subject, self._new_merging())
        change = merging.update({each: (each.conjunction,) for each in added}, removed)
        if not self._merged[subject]:
            del self._merged[subject], self._merging[subject]
        self._apply(subject, change.added, change.removed)

    def _apply(self, subject: str | None, added: Iterable[Conjunction], removed: Iterable[Conjunction]) -> None:
        for each in added:
            self._sent.add(Interest(subject, each))
        for each in removed:
            self._sent.remove(Interest(subject, each))

    def _settled(self) -> InterestChange:
        """Merge what is no longer covered; return the change of the sent interests."""
        while self._mode != "none":
            exposed: dict[str | None, list[Interest]] = {}
            for each in self._sent.exposed():
                if each in self._covered:
                    exposed.setdefault(each.subject, []).append(each)
            if not exposed:
                break
            for subject, several in exposed.items():
                self._merge_too(subject, several)
                for each in several:
                    del self._covered[each]
                    self._sent.remove(each)
        return self._sent.take_change()


def _interests(subject: str | None, wanted: Filter | NormalForm) -> dict[Interest, None]:
    form = wanted if isinstance(wanted, tuple) else normal_form(wanted)
    return dict.fromkeys(Interest(subject, each) for each in form)
