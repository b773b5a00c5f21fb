"""Merging: fewer filters for the same events, by structure, once or incrementally (SPEC B-04 to B-12, S-04).

Filters are merged as the conjunctions of their normal forms; those of one structure, that is of the same names, types
and quantifiers and the same residuals, with one another and with no others. Filters of different subjects do not belong
in one set. Three modes:

========= ==============================================================================================
perfect   matches exactly the events that some of the filters match (:mod:`.merging_perfect`)
imperfect one filter for each structure: misses none of them, and lets others through
adaptive  between the two: fuses what costs least, while the precision as estimated stays at or above a bound
          (:mod:`.merging_adaptive`)
========= ==============================================================================================
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol, get_args

from wanderbus import limits
from wanderbus.errors import ConfigurationError
from wanderbus.event import Event
from wanderbus.filters import Filter, eci
from wanderbus.filters.merging_adaptive import adaptive
from wanderbus.filters.merging_perfect import Structure, distinct_uncovered, imperfect, perfect, structure_of
from wanderbus.filters.merging_results import MergedChange, PrecisionCounts
from wanderbus.filters.normal import Conjunction, NormalForm
from wanderbus.filters.normalising import normal_form, to_node
from wanderbus.filters.weights import weight_of
from wanderbus.work import UNCOUNTED, WorkBudget, WorkExceeded

Mode = Literal["perfect", "imperfect", "adaptive"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

PRECISION_MIN: Final = 0.9
"""Precision of adaptive merging if none is given."""


class MergeFunction(Protocol):
    """Function that merges conjunctions of one structure; raises :class:`WorkExceeded` beyond the units of ``work``."""

    def __call__(self, conjunctions: Collection[Conjunction], work: WorkBudget = ...) -> list[Conjunction]:
        """Return the merged form of ``conjunctions``."""


class MergedSet:
    """A set of filters by id, and its merged form: always equal to merging all of them from scratch (SPEC B-12).

    An update merges again only the structures that it affects, and only if it adds or removes a conjunction that no
    other filter has. Many filters in one :meth:`update` cost each structure one merge. The memory is that of the
    filters' normal forms, and is released as filters are removed.

    With ``weight_max`` the conjunctions of one structure are in blocks of at most this weight, each merged by itself,
    so that an update costs no more with many of them; a conjunction that weighs more is not merged.
    """

    def __init__(
        self,
        mode: Mode = "perfect",
        *,
        precision_min: float = PRECISION_MIN,
        events: Iterable[Event] = (),
        weight_max: float = math.inf,
    ) -> None:
        """Begin empty; only ``adaptive`` uses ``precision_min`` and the sample of ``events``.

        Raises :class:`ConfigurationError` for another mode or a precision outside 0 to 1.
        """
        self._mode: Mode = mode
        self._events = tuple(events)
        self._precision = precision_min
        self._merging = merging_of(mode, precision_min, self._events)
        self._weight_max = weight_max
        self._forms: dict[Hashable, NormalForm] = {}
        self._groups: dict[_Block, _Group] = {}
        self._blocks: dict[Conjunction, _Block] = {}
        """Block of each conjunction, if there may be several of one structure."""
        self._roomy: dict[Structure, int] = {}
        """Number of the block of each structure to which conjunctions are added."""
        self._numbers: dict[Structure, int] = {}
        """Number of blocks of each structure."""
        self._due: dict[_Block, None] = {}
        """Blocks that are merged to another precision than that of now."""

    def __len__(self) -> int:
        """Return how many merged conjunctions there are."""
        return sum(len(group.merged) for group in self._groups.values())

    def add(self, id: Hashable, added: Filter | NormalForm) -> MergedChange:
        """Add a filter, in the place of one with the same ``id``; return what changed in the merged set."""
        return self.update({id: added})

    def remove(self, id: Hashable) -> MergedChange:
        """Remove the filter of ``id``; return what changed. Raises :class:`KeyError` if there is none."""
        return self.update(removed=[id])

    def update(
        self,
        added: Mapping[Hashable, Filter | NormalForm] | None = None,
        removed: Iterable[Hashable] = (),
        work: WorkBudget = UNCOUNTED,
    ) -> MergedChange:
        """Remove and add filters at once; return what changed. Raises :class:`KeyError` for an unknown removed id.

        A structure, or a block of one, that takes more than the units left of ``work`` is not merged.
        """
        forms = {id: _form_of(each) for id, each in (added or {}).items()}
        leaving = dict.fromkeys(removed)
        for id in leaving:
            if id not in self._forms:
                raise KeyError(id)
        touched: dict[_Block, None] = {}
        for id in (*leaving, *(id for id in forms if id in self._forms and id not in leaving)):
            for conjunction in self._forms.pop(id):
                self._count(conjunction, -1, touched)
        self._forms |= forms
        for form in forms.values():
            for conjunction in form:
                self._count(conjunction, +1, touched)
        changes = [self._remerged(block, work) for block in touched]
        return MergedChange(
            tuple(each for change in changes for each in change.added),
            tuple(each for change in changes for each in change.removed),
        )

    def set_precision(self, precision_min: float) -> None:
        """Merge to another estimated precision from now on; what is merged already stays until :meth:`go_on`."""
        self._precision = precision_min
        self._merging = merging_of(self._mode, precision_min, self._events)
        self._due = dict.fromkeys(self._groups)

    @property
    def is_settled(self) -> bool:
        """Return whether everything is merged to the precision of now."""
        return not self._due

    def go_on(self, work: WorkBudget) -> MergedChange:
        """Merge one more block to the precision of now, within the units for a filter; count them in ``work``.

        A block that takes more stays as it is if it is precise enough, otherwise it is not merged.
        """
        if not self._due:
            return MergedChange()
        block = next(iter(self._due))
        group = self._groups[block]
        former, precision = group.merged, group.precision
        group.is_costly = False
        own = WorkBudget(limits.MERGE_WORK_MAX)
        change = self._remerged(block, own)
        work.done += own.done
        if own.left or precision < self._precision:
            return change
        group.merged, group.precision = former, precision
        return MergedChange()

    def conjunctions(self) -> list[Conjunction]:
        """Return the merged set."""
        return [each for group in self._groups.values() for each in group.merged]

    def filters(self) -> list[Filter]:
        """Return the merged set as filters."""
        return [filter_of(each) for each in self.conjunctions()]

    def _count(self, conjunction: Conjunction, by: int, touched: dict[_Block, None]) -> None:
        block = self._block_of(conjunction)
        group = self._groups.get(block)
        if group is None:
            group = self._groups[block] = _Group()
            self._numbers[block[0]] = self._numbers.get(block[0], 0) + 1
        count = group.counts[conjunction] = group.counts.get(conjunction, 0) + by
        if not count:
            del group.counts[conjunction]
        if count == max(by, 0):
            touched[block] = None
            if self._weight_max != math.inf:
                self._weigh(conjunction, by, block, group)

    def _block_of(self, conjunction: Conjunction) -> _Block:
        """Return the block of a conjunction; a new one comes to the last of its structure if there is room."""
        if self._weight_max == math.inf:
            return structure_of(conjunction), 0
        if (block := self._blocks.get(conjunction)) is not None:
            return block
        structure = structure_of(conjunction)
        block = structure, self._roomy.get(structure, 0)
        while (group := self._groups.get(block)) and group.weight + weight_of(conjunction) > self._weight_max:
            block = structure, block[1] + 1
        self._roomy[structure] = block[1]
        return block

    def _weigh(self, conjunction: Conjunction, by: int, block: _Block, group: _Group) -> None:
        structure, number = block
        group.weight += by * weight_of(conjunction)
        group.is_costly &= by > 0
        if by > 0:
            self._blocks[conjunction] = block
            return
        del self._blocks[conjunction]
        if number < self._roomy.get(structure, 0) and group.weight < self._weight_max / 2:
            self._roomy[structure] = number

    def _remerged(self, block: _Block, work: WorkBudget) -> MergedChange:
        self._due.pop(block, None)
        group = self._groups[block]
        before = dict.fromkeys(group.merged)
        group.merged, group.precision = self._merged(group, work), self._precision
        if not group.counts:
            self._delete(block)
        after = dict.fromkeys(group.merged)
        return MergedChange(
            tuple(each for each in after if each not in before), tuple(each for each in before if each not in after)
        )

    def _delete(self, block: _Block) -> None:
        structure, _ = block
        del self._groups[block]
        self._numbers[structure] -= 1
        if not self._numbers[structure]:
            del self._numbers[structure]
            self._roomy.pop(structure, None)

    def _merged(self, group: _Group, work: WorkBudget) -> Sequence[Conjunction]:
        if group.is_costly or (group.weight > self._weight_max and len(group.counts) < 2):
            return list(group.counts)
        whole = work.left
        merged = within(self._merging, group.counts, work)
        group.is_costly = not work.left and whole >= limits.MERGE_WORK_MAX / 2
        return merged


_Block = tuple[Structure, int]
"""A structure, and the number of the block of its conjunctions."""


class _Group:
    """The conjunctions of one block, the number of filters that have each, and their merged form."""

    __slots__ = ("counts", "is_costly", "merged", "precision", "weight")

    def __init__(self) -> None:
        self.counts: dict[Conjunction, int] = {}
        self.is_costly = False
        """True if merging took too much work; it is tried again once a conjunction is removed."""
        self.merged: Sequence[Conjunction] = ()
        self.precision = 1.0
        """Estimated precision that the merged form keeps."""
        self.weight = 0


def merge(
    filters: Iterable[Filter],
    mode: Mode = "perfect",
    *,
    precision_min: float = PRECISION_MIN,
    events: Iterable[Event] = (),
) -> list[Filter]:
    """Return the merged form of ``filters`` of one subject; a filter that merges with none is returned as given.

    Only ``adaptive`` uses ``precision_min`` and the sample of ``events``. Raises :class:`ConfigurationError` for
    another mode or a precision outside 0 to 1.
    """
    merging = merging_of(mode, precision_min, events)
    given: dict[Conjunction, Filter] = {}
    conjunctions: dict[Conjunction, None] = {}
    for each in filters:
        form = normal_form(each)
        conjunctions |= dict.fromkeys(form)
        if len(form) == 1:
            given.setdefault(form[0], each)
    return [given.get(each) or filter_of(each) for each in _merged(conjunctions, merging)]


def merge_conjunctions(
    conjunctions: Iterable[Conjunction],
    mode: Mode = "perfect",
    *,
    precision_min: float = PRECISION_MIN,
    events: Iterable[Event] = (),
) -> list[Conjunction]:
    """Return the merged form of ``conjunctions`` of normal forms; see :func:`merge`."""
    return _merged(conjunctions, merging_of(mode, precision_min, events))


def uncovered_conjunctions(conjunctions: Iterable[Conjunction], work: WorkBudget = UNCOUNTED) -> list[Conjunction]:
    """Return those of ``conjunctions`` that no other of the same structure covers: the set without merging.

    All of a structure that takes more than the units left of ``work`` are returned.
    """
    return _merged(conjunctions, distinct_uncovered, work)


def _merged(
    conjunctions: Iterable[Conjunction], merging: MergeFunction, work: WorkBudget = UNCOUNTED
) -> list[Conjunction]:
    groups: dict[Structure, list[Conjunction]] = {}
    for each in conjunctions:
        groups.setdefault(structure_of(each), []).append(each)
    return [each for group in groups.values() for each in within(merging, group, work)]


def within(merging: MergeFunction, conjunctions: Collection[Conjunction], work: WorkBudget) -> list[Conjunction]:
    """Return the merged form of ``conjunctions``, or themselves if that takes more than the units left of ``work``."""
    if not work.left:
        return list(conjunctions)
    try:
        return merging(conjunctions, work)
    except WorkExceeded:
        return list(conjunctions)


def merging_of(mode: Mode, precision_min: float = PRECISION_MIN, events: Iterable[Event] = ()) -> MergeFunction:
    """Return the function that merges conjunctions of one structure.

    Raises :class:`ConfigurationError` for another mode or a precision outside 0 to 1.
    """
    if not 0.0 <= precision_min <= 1.0:
        raise ConfigurationError(f"precision_min must be from 0 to 1, not {precision_min}")
    match mode:
        case "perfect":
            return perfect
        case "imperfect":
            return imperfect
        case "adaptive":
            sample = tuple(events)
            return lambda conjunctions, work=UNCOUNTED: adaptive(conjunctions, precision_min, sample, work)
    raise ConfigurationError(f"unknown mode of merging {mode!r}; use one of {', '.join(MODES)}")


def counted(originals: Iterable[Filter], merged: Iterable[Filter], events: Iterable[Event]) -> PrecisionCounts:
    """Count which of ``events`` match some of ``originals``, some of ``merged``, and both."""
    before, after = list(originals), list(merged)
    found: Counter[tuple[bool, bool]] = Counter(
        (any(each.matches(event) for each in before), any(each.matches(event) for each in after)) for event in events
    )
    both = found[True, True]
    return PrecisionCounts(both + found[True, False], both + found[False, True], both)


def precision(originals: Iterable[Filter], merged: Iterable[Filter], events: Iterable[Event]) -> float:
    """Return the share of ``events`` matching some of ``merged`` that some of ``originals`` match too (SPEC B-08)."""
    return counted(originals, merged, events).precision


def recall(originals: Iterable[Filter], merged: Iterable[Filter], events: Iterable[Event]) -> float:
    """Return the share of ``events`` matching some of ``originals`` that some of ``merged`` match too."""
    return counted(originals, merged, events).recall


def filter_of(conjunction: Conjunction) -> Filter:
    """Return ``conjunction`` as a filter, with its text in ECI."""
    root = to_node((conjunction,))
    return Filter(eci.write(root), "eci", root)


def _form_of(each: Filter | NormalForm) -> NormalForm:
    return tuple(dict.fromkeys(each if isinstance(each, tuple) else normal_form(each)))
