"""Index of subscriptions: finds those whose subject and filter an event satisfies (SPEC A-03, B-01; DESIGN 7.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from wanderbus.broker.interest.filter_bytes import FilterBytes
from wanderbus.broker.interest.filter_work import FilterWork
from wanderbus.broker.interest.index_entries import IndexEntry, entries_of
from wanderbus.channels.hierarchy import Hierarchy
from wanderbus.errors import FilterError
from wanderbus.event import Event
from wanderbus.filters import Filter
from wanderbus.matching import SCANNED_MAX, Index, Kernel
from wanderbus.subscription import EVERY_SUBJECT, Subscription

COMPILED_FROM_EVENTS: Final = 2_000
"""Events that numpy matches before the compiled kernel is requested; they cost about as much as loading that kernel.

Loading takes one to four seconds of processor and 130 MB, and saves half a millisecond for each event.
"""


Lineage = Callable[[str], tuple[str, ...]]
"""Function that returns a subject, its parent and so on."""


def lineage_of(parents: Mapping[str, str]) -> Lineage:
    """Return the lineage of subjects with these parents."""
    return Hierarchy(parents).lineage


class Matcher:
    """The index of the subscriptions, which can match several coming events in one batch.

    The result for an event is the same as if it were matched alone, also if subscriptions were added or removed since.
    """

    def __init__(self, kernel: Kernel | None, work: FilterWork, lineage: Lineage | None = None) -> None:
        """Create an empty index.

        Without a ``kernel`` it evaluates expressions one by one until there is one; ``work`` bounds their cost. An
        event matches under every subject of its ``lineage``; None if subjects have no parents (SPEC J-13).
        """
        self.work = work
        self._lineage = lineage
        self.bytes = FilterBytes()
        """Memory of the filters."""
        self._index = Index(kernel or "scan", work.holds)
        self._every = Index(kernel or "scan", work.holds)
        """Index of the subscriptions to every subject, as if that were one subject."""
        self._kernel = kernel or "scan"
        self._next: Kernel | None = "numpy" if kernel is None else "numba" if kernel == "numpy" else None
        """The kernel to request next."""
        self._matched = 0
        """Events that the numpy kernel has matched."""
        self.is_kernel_due = False
        """True if these events are so many that :meth:`wanted_kernel` returns another kernel."""
        self._prematched: dict[int, tuple[Event, list[str]]] = {}
        """Events with their matches, by object identity; holding the event keeps its identity unique."""
        self._removed: set[str] = set()
        """Entries removed since those events were matched."""
        self._steps: dict[str, tuple[str, int]] = {}
        """Subscription and step of each entry of a pattern."""
        self._entries: dict[str, tuple[str, ...]] = {}
        """Entries of each subscription to a pattern."""

    def add(self, subscription: Subscription, entries: Sequence[IndexEntry]) -> None:
        """Add a subscription with its entries."""
        self.prematch(())
        for name, subject, interest in self._counted(subscription, entries):
            index = self._every if subject == EVERY_SUBJECT else self._index
            index.add(name, subject, interest)

    def add_many(self, subscriptions: Iterable[Subscription]) -> list[tuple[Subscription, FilterError]]:
        """Add all of these; return those whose expressions cannot be parsed, with the error."""
        readable: list[tuple[str, str, Filter]] = []
        unreadable: list[tuple[Subscription, FilterError]] = []
        for each in subscriptions:
            try:
                entries = entries_of(each)
            except FilterError as error:
                unreadable.append((each, error))
                continue
            readable += self._counted(each, entries)
        self.prematch(())
        self._index.add_many([each for each in readable if each[1] != EVERY_SUBJECT])
        self._every.add_many([each for each in readable if each[1] == EVERY_SUBJECT])
        return unreadable

    def _counted(self, subscription: Subscription, entries: Sequence[IndexEntry]) -> Iterator[tuple[str, str, Filter]]:
        """Account for the entries of a subscription; yield each with its name."""
        for subject, interest, step in entries:
            name = subscription.id
            if step is not None:
                name = f"{subscription.id}#{step}"
                self._steps[name] = subscription.id, step
                self._entries[subscription.id] = (*self._entries.get(subscription.id, ()), name)
            self.bytes.put(name, subscription.owner, interest.bytes)
            self.work.put(name, subscription.owner, interest.work)
            yield name, subject, interest.filter

    def remove(self, identity: str) -> None:
        """Remove a subscription; does nothing for an unknown one."""
        for entry in self._entries.pop(identity, (identity,)):
            self._steps.pop(entry, None)
            self._index.remove(entry)
            self._every.remove(entry)
            self.bytes.drop(entry)
            self.work.drop(entry)
            if self._prematched:
                self._removed.add(entry)

    def prematch(self, events: Sequence[Event]) -> None:
        """Match ``events`` in one batch, which costs a fraction of single matching; discard earlier results."""
        self._removed.clear()
        self.work.forget()
        found = self._match(events) if events else []
        self._prematched = {id(event): (event, ids) for event, ids in zip(events, found, strict=True)}

    def matching(self, event: Event) -> list[str]:
        """Return the ids of the entries whose subject and filter ``event`` satisfies, in no order.

        They include the undecided ones, which :meth:`FilterWork.take_undecided` returns.
        """
        _, found = self._prematched.pop(id(event), (event, None))
        if found is None:
            [found] = self._match([event])
        elif self._removed:
            found = [identity for identity in found if identity not in self._removed]
        return found

    def steps_of(self, found: Sequence[str]) -> dict[str, list[str]]:
        """Return the entries of patterns among those found, by subscription; none if there are no patterns."""
        steps: dict[str, list[str]] = {}
        if self._steps:
            for entry in found:
                if entry in self._steps:
                    steps.setdefault(self._steps[entry][0], []).append(entry)
        return steps

    def leaves(self, entries: Sequence[str]) -> int:
        """Return a bit for the step of each of these entries of one pattern."""
        return sum(1 << self._steps[each][1] for each in entries)

    def wanted_kernel(self) -> Kernel | None:
        """Return the kernel to request now; each kernel is returned once."""
        match self._next:
            case "numpy" if max(len(self._index), len(self._every)) > SCANNED_MAX:
                self._next = "numba"
                return "numpy"
            case "numba" if self._kernel == "numpy" and self._matched >= COMPILED_FROM_EVENTS:
                self._next, self.is_kernel_due = None, False
                return "numba"
        return None

    @property
    def kernel(self) -> Kernel:
        """Return the kernel in use."""
        return self._kernel

    def use(self, kernel: Kernel) -> None:
        """Match by ``kernel`` from now on."""
        self._kernel = kernel
        self._index.use(kernel)
        self._every.use(kernel)

    def _match(self, events: Sequence[Event]) -> list[list[str]]:
        if self._kernel == "numpy":
            self._matched += len(events)
            self.is_kernel_due = self._next is not None and self._matched >= COMPILED_FROM_EVENTS
        found = self._index.match(events)
        if self._lineage is not None:
            self._match_ancestors(events, found, self._lineage)
        if not len(self._every):
            return found
        of_every = self._every.match([msgspec.structs.replace(each, subject=EVERY_SUBJECT) for each in events])
        return [[*some, *others] for some, others in zip(found, of_every, strict=True)]

    def _match_ancestors(self, events: Sequence[Event], found: list[list[str]], lineage: Lineage) -> None:
        """Add the entries for the ancestors of each event's subject to those ``found`` for the subject itself."""
        places = [(place, above) for place, each in enumerate(events) for above in lineage(each.subject)[1:]]
        if places:
            more = self._index.match([msgspec.structs.replace(events[at], subject=above) for at, above in places])
            for (place, _), entries in zip(places, more, strict=True):
                found[place] = [*found[place], *entries]
