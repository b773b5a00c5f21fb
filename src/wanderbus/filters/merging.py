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

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final, Literal, get_args

from wanderbus.errors import ConfigurationError
from wanderbus.event import Event
from wanderbus.filters import Filter, eci
from wanderbus.filters.merging_adaptive import adaptive
from wanderbus.filters.merging_perfect import Structure, distinct_uncovered, imperfect, perfect, structure_of
from wanderbus.filters.merging_results import Change, Counted
from wanderbus.filters.normal import Conjunction, NormalForm
from wanderbus.filters.normalising import normal_form, to_node

Mode = Literal["perfect", "imperfect", "adaptive"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

PRECISION_MIN: Final = 0.9
"""Precision of adaptive merging if none is given."""

Merging = Callable[[Collection[Conjunction]], list[Conjunction]]


class MergedSet:
    """A set of filters by id, and its merged form: always equal to merging all of them from scratch (SPEC B-12).

    An update merges again only the structures that it affects, and only if it adds or removes a conjunction that no
    other filter has. Many filters in one :meth:`update` cost each structure one merge. The memory is that of the
    filters' normal forms, and is released as filters are removed.
    """

    def __init__(
        self, mode: Mode = "perfect", *, precision_min: float = PRECISION_MIN, events: Iterable[Event] = ()
    ) -> None:
        """Begin empty; only ``adaptive`` uses ``precision_min`` and the sample of ``events``.

        Raises :class:`ConfigurationError` for another mode or a precision outside 0 to 1.
        """
        self._merging = merging_of(mode, precision_min, events)
        self._forms: dict[Hashable, NormalForm] = {}
        self._groups: dict[Structure, _Group] = {}

    def __len__(self) -> int:
        """Return how many merged conjunctions there are."""
        return sum(len(group.merged) for group in self._groups.values())

    def add(self, id: Hashable, added: Filter | NormalForm) -> Change:
        """Add a filter, in the place of one with the same ``id``; return what changed in the merged set."""
        return self.update({id: added})

    def remove(self, id: Hashable) -> Change:
        """Remove the filter of ``id``; return what changed. Raises :class:`KeyError` if there is none."""
        return self.update(removed=[id])

    def update(
        self, added: Mapping[Hashable, Filter | NormalForm] | None = None, removed: Iterable[Hashable] = ()
    ) -> Change:
        """Remove and add filters at once; return what changed. Raises :class:`KeyError` for an unknown removed id."""
        forms = {id: _form_of(each) for id, each in (added or {}).items()}
        leaving = dict.fromkeys(removed)
        for id in leaving:
            if id not in self._forms:
                raise KeyError(id)
        touched: dict[Structure, None] = {}
        for id in (*leaving, *(id for id in forms if id in self._forms and id not in leaving)):
            for conjunction in self._forms.pop(id):
                self._count(conjunction, -1, touched)
        self._forms |= forms
        for form in forms.values():
            for conjunction in form:
                self._count(conjunction, +1, touched)
        changes = [self._merged_anew(structure) for structure in touched]
        return Change(
            tuple(each for change in changes for each in change.added),
            tuple(each for change in changes for each in change.removed),
        )

    def conjunctions(self) -> list[Conjunction]:
        """Return the merged set."""
        return [each for group in self._groups.values() for each in group.merged]

    def filters(self) -> list[Filter]:
        """Return the merged set as filters."""
        return [filter_of(each) for each in self.conjunctions()]

    def _count(self, conjunction: Conjunction, by: int, touched: dict[Structure, None]) -> None:
        structure = structure_of(conjunction)
        group = self._groups.get(structure)
        if group is None:
            group = self._groups[structure] = _Group()
        count = group.counts[conjunction] = group.counts.get(conjunction, 0) + by
        if not count:
            del group.counts[conjunction]
        if count == max(by, 0):
            touched[structure] = None

    def _merged_anew(self, structure: Structure) -> Change:
        group = self._groups[structure]
        before = dict.fromkeys(group.merged)
        group.merged = self._merging(group.counts)
        if not group.counts:
            del self._groups[structure]
        after = dict.fromkeys(group.merged)
        return Change(
            tuple(each for each in after if each not in before), tuple(each for each in before if each not in after)
        )


class _Group:
    """The conjunctions of one structure, the number of filters that have each, and their merged form."""

    __slots__ = ("counts", "merged")

    def __init__(self) -> None:
        self.counts: dict[Conjunction, int] = {}
        self.merged: Sequence[Conjunction] = ()


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


def uncovered_conjunctions(conjunctions: Iterable[Conjunction]) -> list[Conjunction]:
    """Return those of ``conjunctions`` that no other of the same structure covers: the set without merging."""
    return _merged(conjunctions, distinct_uncovered)


def _merged(conjunctions: Iterable[Conjunction], merging: Merging) -> list[Conjunction]:
    groups: dict[Structure, list[Conjunction]] = {}
    for each in conjunctions:
        groups.setdefault(structure_of(each), []).append(each)
    return [each for group in groups.values() for each in merging(group)]


def merging_of(mode: Mode, precision_min: float = PRECISION_MIN, events: Iterable[Event] = ()) -> Merging:
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
            return lambda conjunctions: adaptive(conjunctions, precision_min, sample)
    raise ConfigurationError(f"unknown mode of merging {mode!r}; use one of {', '.join(MODES)}")


def counted(originals: Iterable[Filter], merged: Iterable[Filter], events: Iterable[Event]) -> Counted:
    """Count which of ``events`` match some of ``originals``, some of ``merged``, and both."""
    before, after = list(originals), list(merged)
    found: Counter[tuple[bool, bool]] = Counter(
        (any(each.matches(event) for each in before), any(each.matches(event) for each in after)) for event in events
    )
    both = found[True, True]
    return Counted(both + found[True, False], both + found[False, True], both)


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
