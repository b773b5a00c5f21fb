"""Index of the broker: finds the subscriptions that an event matches (SPEC A-03, B-01, J-04; DESIGN 7.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

from wanderbus.event import Event
from wanderbus.filters import Filter, parse
from wanderbus.matching.scan import Judge, ScanIndex

if TYPE_CHECKING:
    from numpy import ndarray

    from wanderbus.matching.table import EventTable, RowJudge

Kernel = Literal["numba", "numpy", "scan"]
"""Kernels: compiled loops; the same on whole arrays; a scan of all filters, for few filters and without numpy."""

SCANNED_MAX: Final = 16
"""Largest number of filters for which a scan is faster than any other kernel."""

MOVED_AT_ONCE: Final = 32
"""Filters that one add or match moves from the scan to the kernel: a millisecond or two."""


class Index:
    """A changing set of filters, each with a subject and an id that the caller chooses."""

    def __init__(self, kernel: Kernel | None = None, judge: Judge | None = None) -> None:
        """Use ``kernel``, or the fastest installed one once there are more than :data:`SCANNED_MAX` filters.

        Loading a kernel takes a second or more. A caller that cannot wait begins with ``scan`` and calls :meth:`use`
        once the kernel is loaded. ``judge`` evaluates the filters that have to be evaluated.
        """
        self._kernel = kernel
        self._few: dict[str, tuple[str, Filter]] = {}
        """Filters that are scanned until they move to a kernel."""
        self._judge = judge
        self._scan = ScanIndex(judge)
        self._engine: Any = None if kernel in (None, "scan") else _engine(kernel, judge)

    def __len__(self) -> int:
        return len(self._scan) + (0 if self._engine is None else len(self._engine))

    def add(self, id: str, subject: str, filter: Filter) -> None:
        """Match events of ``subject`` against ``filter`` from now on; replaces an earlier filter with this ``id``."""
        if id in self._few:
            del self._few[id]
            self._scan.remove(id)
        if self._engine is not None:
            self._engine.add(id, subject, filter)
            if self._few:
                self._move()
            return
        self._scan.add(id, subject, filter)
        self._few[id] = (subject, filter)
        if self._kernel is None and len(self._few) > SCANNED_MAX:
            self.use(best_kernel())

    def add_many(self, several: Iterable[tuple[str, str, Filter]]) -> None:
        """Do the same for each (id, subject, filter), in a fraction of the time if they are many.

        This settles the index: nothing is rebuilt while events are matched. It takes some tenths of a second for each
        ten thousand filters; a caller that must not block so long calls :meth:`add`.
        """
        added = list(several)
        if self._engine is None and (self._kernel == "scan" or len(added) + len(self) <= SCANNED_MAX):
            for each in added:
                self.add(*each)
            return
        if self._engine is None:
            self.use(self._kernel or best_kernel())
        for id, _, _ in added:
            if self._few.pop(id, None):
                self._scan.remove(id)
        while self._few:
            self._move()
        self._engine.add_many(added)

    def remove(self, id: str) -> None:
        """Remove the filter with this ``id``, if there is one."""
        if self._few.pop(id, None):
            self._scan.remove(id)
        elif self._engine is not None:
            self._engine.remove(id)

    def match(self, events: Sequence[Event]) -> list[list[str]]:
        """Return for each event the ids of the filters that it matches, in no particular order."""
        if self._engine is None:
            return self._scan.match(events)
        self._move()
        found: list[list[str]] = self._engine.match(events)
        if self._few:
            for ids, more in zip(found, self._scan.match(events), strict=True):
                ids += more
        return found

    def match_table(
        self, table: EventTable, judge: RowJudge | None = None
    ) -> tuple[ndarray[Any, Any], ndarray[Any, Any]]:
        """Return the places, in :meth:`ids`, of the filters that the rows of a table match, row by row, and the end of
        each row's; needs numpy. ``judge`` evaluates the filters that have to be evaluated.
        """
        self._put_in_engine()
        slots, ends = self._engine.match_table(table, judge)
        return slots, ends

    def ids(self) -> list[str | None]:
        """Return the ids of the filters by the places that :meth:`match_table` returns; None for an unused place."""
        self._put_in_engine()
        ids: list[str | None] = self._engine.ids()
        return ids

    def use(self, kernel: Kernel) -> None:
        """Match with ``kernel`` from now on; scanned filters move to it step by step, with each add and match.

        Switching from one kernel to another is immediate. Filters in an earlier kernel are never scanned again.
        """
        if kernel == "scan":
            self._kernel = kernel if self._engine is None else self._kernel
            return
        self._kernel = kernel
        if self._engine is None:
            self._engine = _engine(kernel, self._judge)
        else:
            self._engine.use(_kernel(kernel))

    def _move(self) -> None:
        for _ in range(min(len(self._few), MOVED_AT_ONCE)):
            id, (subject, filter) = self._few.popitem()
            self._scan.remove(id)
            self._engine.add(id, subject, filter)

    def arrays(self) -> dict[str, ndarray[Any, Any]]:
        """Return the index as flat arrays, for a worker that has no filters; needs numpy.

        Filters that are evaluated are included as text.
        """
        self._put_in_engine()
        arrays: dict[str, ndarray[Any, Any]] = self._engine.arrays()
        return arrays

    def _put_in_engine(self) -> None:
        """Move all filters to the kernel; ``ValueError`` without one."""
        if self._kernel is None:
            self.use(best_kernel())
        if self._kernel == "scan":
            raise ValueError("an index that scans has no arrays; install wanderbus[server], and let it use numpy")
        while self._few:
            self._move()

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, ndarray[Any, Any]], kernel: Kernel | None = None) -> Index:
        """Return the index whose :meth:`arrays` these are; the arrays are copied, and the index can be changed."""
        index = cls()
        index._kernel = kernel or best_kernel()
        index._engine = import_module("wanderbus.matching.engine").Engine.from_arrays(arrays, _kernel(index._kernel))
        return index


def best_kernel() -> Kernel:
    """Return the fastest kernel that is installed."""
    if find_spec("numpy") is None:
        return "scan"
    return "numpy" if find_spec("numba") is None else "numba"


def load_kernel(best: Kernel = "numba") -> Kernel:
    """Load ``best``, or the next fastest kernel that works, and return its name; an index may be used meanwhile.

    numpy takes a tenth of a second and 12 MB; numba takes a second and 130 MB, and ten seconds if its cache is empty:
    then it compiles.
    """
    kernels: tuple[Kernel, ...] = ("numba", "numpy")
    for kernel in kernels[kernels.index(best) :] if best in kernels else ():
        try:
            _try_out(Index(kernel))
        except Exception:  # not installed, or broken in any other way: the next kernel does the same
            continue
        return kernel
    return "scan"


def _try_out(index: Index) -> None:
    """Call everything once: the first call of a compiled function takes some milliseconds more than later ones."""
    for number in range(2 * SCANNED_MAX):
        index.add(str(number), "", parse(f"a == {number} or b prefix 'x{number}' and c > {number}"))
        index.match([Event("", {"a": number, "b": ["x1", "x2"]}), Event("", {"a": number})])
    index.arrays()


def _engine(kernel: Any, judge: Judge | None) -> Any:
    return import_module("wanderbus.matching.engine").Engine(_kernel(kernel), judge)


def _kernel(kernel: str) -> Any:
    return import_module(f"wanderbus.matching.kernel_{kernel}")
