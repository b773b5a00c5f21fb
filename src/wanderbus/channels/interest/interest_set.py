"""Interest of a server: its local filters, and the smaller set that it sends (SPEC B-10, B-12, J-03, J-10).

An interest that the sent set covers is only attached to what covers it: it costs no merging and no message, and becomes
visible again when that goes. The others are merged by :class:`wanderbus.filters.merging.MergedSet`, separately for each
subject, and the result is covered again, because merging compares only filters of one structure.

A change takes at most :data:`wanderbus.limits.MERGE_WORK_MAX` units of work for each filter: whoever subscribes chooses
the filter, and all others wait. What is not compared or merged within them stays as it is. This costs messages, and
loses no event. What a removed filter covered is placed again in several turns, and a subject is merged in several turns
to another precision.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, Literal, get_args

from wanderbus import limits
from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.covering_set import CoveringSet, InterestChange
from wanderbus.channels.interest.interest_forms import interest_form
from wanderbus.errors import ConfigurationError
from wanderbus.filters import Filter
from wanderbus.filters.ast import Node
from wanderbus.filters.merging import PRECISION_MIN, MergedSet, uncovered_conjunctions
from wanderbus.filters.normal import Conjunction, NormalForm
from wanderbus.work import WorkBudget

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
        self._due: dict[str | None, None] = {}
        """Subjects that have to be merged to another precision."""
        self._sent = CoveringSet()
        self._residuals: dict[Node, tuple[Node, int]] = {}
        """The one object for equal residuals, so that they are compared by identity, and how many interests have it."""
        self._work = WorkBudget()
        """Work of the present change."""
        self.exceeded = 0
        """Number of changes for which the units of work did not suffice."""
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

    def update(
        self, added: Mapping[Hashable, Wanted], removed: Iterable[Hashable] = (), work: WorkBudget | None = None
    ) -> InterestChange:
        """Remove and add local filters at once; return how the interests to send change.

        A filter replaces one with the same id. Raises :class:`KeyError` for an unknown removed id. If the set is not
        :attr:`is_settled` afterwards, :meth:`go_on` has to be called. The units left of ``work``, if it is given, bound
        the change in place of the usual ones.
        """
        leaving = dict.fromkeys(removed)
        self._begin(len(added) + len(leaving), work)
        forms = {id: self._interests(*wanted) for id, wanted in added.items()}
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
        for each in new:
            self._count_residuals(each, +1)
        for each in touched:
            if not counts[each]:
                del counts[each]
        for each in gone:
            self._count_residuals(each, -1)
        self._remove(gone)
        self._add(new)
        return self._settled()

    def __len__(self) -> int:
        """Return the number of different local interests."""
        return len(self._counts)

    @property
    def is_settled(self) -> bool:
        """Return whether all that removed filters covered is placed again, and all is merged to the set precision."""
        return self._sent.is_settled and not self._due

    @property
    def units(self) -> float:
        """Units of work of the last change."""
        return self._work.done

    def go_on(self) -> InterestChange:
        """Place and merge some more of what a change left for later; return how the interests to send change."""
        self._begin(1)
        placing = WorkBudget(limits.MERGE_WORK_MAX / 2)
        self._sent.go_on(placing)
        self._work.done += placing.done
        self._merge_due()
        return self._settled()

    def set_precision(self, subjects: Iterable[str | None], precision_min: float) -> InterestChange:
        """Merge the interests of ``subjects`` again, to an estimated precision; return how those to send change.

        Many take several turns: if the set is not :attr:`is_settled` afterwards, :meth:`go_on` has to be called.
        """
        for subject in subjects:
            if (merging := self._merging.get(subject)) is not None:
                merging.set_precision(precision_min)
                self._due[subject] = None
        return self.go_on()

    def _merge_due(self) -> None:
        """Merge subjects to their set precision until half of the units of a turn are done."""
        while self._due and self._work.done < limits.MERGE_WORK_MAX / 2:
            subject = next(iter(self._due))
            merging = self._merging.get(subject)
            if merging is None or merging.is_settled:
                del self._due[subject]
                continue
            change = merging.go_on(self._work)
            self._apply(subject, change.added, change.removed)

    def _new_merging(self) -> MergedSet:
        mode = "perfect" if self._mode == "none" else self._mode
        return MergedSet(mode, precision_min=self._precision_min, weight_max=limits.MERGE_WEIGHT_MAX)

    def _begin(self, filters: int, work: WorkBudget | None = None) -> None:
        """Begin a change of so many filters."""
        self._work = WorkBudget(limits.MERGE_WORK_MAX * max(1, filters)) if work is None else work

    def _interests(self, subject: str | None, wanted: Filter | NormalForm) -> dict[Interest, None]:
        form = wanted if isinstance(wanted, tuple) else interest_form(wanted, self._work)
        return dict.fromkeys(Interest(subject, self._shared(each)) for each in form)

    def _shared(self, conjunction: Conjunction) -> Conjunction:
        """Return ``conjunction`` with the objects that others have for equal residuals."""
        if not conjunction.residuals:
            return conjunction
        shared = [self._residuals.get(node, (node, 0))[0] for node in conjunction.residuals]
        return Conjunction(conjunction.filters, tuple(shared))

    def _count_residuals(self, interest: Interest, by: int) -> None:
        for node in interest.conjunction.residuals:
            shared, count = self._residuals.get(node, (node, 0))
            if count + by:
                self._residuals[shared] = shared, count + by
            else:
                del self._residuals[node]

    def _remove(self, gone: Iterable[Interest]) -> None:
        merged: dict[str | None, list[Interest]] = {}
        for each in gone:
            if each in self._covered:
                del self._covered[each]
                self._sent.remove(each, self._work)
            else:
                merged.setdefault(each.subject, []).append(each)
        for subject, several in merged.items():
            for each in several:
                del self._merged[subject][each]
            self._merge(subject, (), several)

    def _add(self, new: Iterable[Interest]) -> None:
        merged: dict[str | None, list[Interest]] = {}
        for each in new:
            if self._mode == "none" or self._sent.coverer(each, self._work) is not None:
                self._covered[each] = None
                self._sent.add(each, self._work)
            else:
                merged.setdefault(each.subject, []).append(each)
        for subject, several in merged.items():
            uncovered = set(uncovered_conjunctions([each.conjunction for each in several], self._work))
            self._merge_too(subject, [each for each in several if each.conjunction in uncovered])
            for each in several:
                if each.conjunction not in uncovered:
                    self._covered[each] = None
                    self._sent.add(each, self._work)

    def _merge_too(self, subject: str | None, several: Sequence[Interest]) -> None:
        self._merged.setdefault(subject, {}).update(dict.fromkeys(several))
        self._merge(subject, several, ())

    def _merge(self, subject: str | None, added: Sequence[Interest], removed: Sequence[Interest]) -> None:
        merging = self._merging.setdefault(subject, self._new_merging())
        change = merging.update({each: (each.conjunction,) for each in added}, removed, self._work)
        if not self._merged[subject]:
            del self._merged[subject], self._merging[subject]
        self._apply(subject, change.added, change.removed)

    def _apply(self, subject: str | None, added: Iterable[Conjunction], removed: Iterable[Conjunction]) -> None:
        for each in added:
            self._sent.add(Interest(subject, each), self._work)
        for each in removed:
            self._sent.remove(Interest(subject, each), self._work)

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
                    self._sent.remove(each, self._work)
        self.exceeded += not self._work.left
        return self._sent.take_change()
