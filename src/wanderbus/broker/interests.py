"""What subscriptions are interested in: which of them an event satisfies (SPEC A-03, B-01; DESIGN 7.4)."""

from __future__ import annotations

from collections.abc import Sequence

from wanderbus import filters
from wanderbus.event import Event
from wanderbus.machine import Output
from wanderbus.matching import SCANNED_MAX, Index, Kernel
from wanderbus.subscription import Subscription


class KernelWanted(Output, frozen=True):
    """There are so many subscriptions that trying each is slow: load a kernel, which takes seconds, and tell of it."""


class Interests:
    """The index of the subscriptions, which looks ahead: events that came together are matched together.

    What an event matches is what it would match if it were asked alone, whatever was added and removed meanwhile.
    """

    def __init__(self, kernel: Kernel | None) -> None:
        """Without a ``kernel``, expressions are tried in turn until there is one."""
        self._index = Index(kernel or "scan")
        self._is_wanting = kernel is None
        self._foreseen: dict[int, tuple[Event, list[str]]] = {}
        """What events match, by their identities, which are theirs alone as long as they are here."""
        self._removed: set[str] = set()
        """Subscriptions that were removed since that was found out."""

    def add(self, subscription: Subscription) -> None:
        """Match events against this subscription; raises :class:`FilterError` if its expression cannot be read."""
        interest = filters.parse(subscription.expression, subscription.language)
        self.foresee(())
        self._index.add(subscription.id, subscription.subject, interest)

    def remove(self, identity: str) -> None:
        """Forget a subscription; no harm if it is not there."""
        self._index.remove(identity)
        if self._foreseen:
            self._removed.add(identity)

    def foresee(self, events: Sequence[Event]) -> None:
        """Match ``events`` together, which costs a fraction of one by one; forget what was foreseen of others."""
        self._removed.clear()
        found = self._index.match(events) if events else []
        self._foreseen = {id(event): (event, ids) for event, ids in zip(events, found, strict=True)}

    def matching(self, event: Event) -> list[str]:
        """Return the ids of the subscriptions whose subject and expression ``event`` satisfies, in order of making."""
        _, found = self._foreseen.pop(id(event), (event, None))
        if found is None:
            [found] = self._index.match([event])
        elif self._removed:
            found = [identity for identity in found if identity not in self._removed]
        # The index knows no order, and what is said of them has one: their numbers', of which shorter ones are less.
        found.sort()
        found.sort(key=len)
        return found

    def wants_kernel(self) -> bool:
        """Return whether it is time to ask for a kernel, once."""
        is_time = self._is_wanting and len(self._index) > SCANNED_MAX
        self._is_wanting &= not is_time
        return is_time

    def use(self, kernel: Kernel) -> None:
        """Match by ``kernel`` from now on."""
        self._index.use(kernel)
