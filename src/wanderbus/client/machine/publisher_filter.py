"""Filter of a publishing agent: decides which events nobody wants, by filters that the broker has sent (SPEC N-02).

Filters may be used under a lease, which begins when the agent requests them; a publish renews it. Without filters of
a subject, every event of it is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wanderbus import protocol
from wanderbus.limits import PUBLISHER_FILTER_WORK_MAX
from wanderbus.protocol.leased_filters import LeasedFilters

if TYPE_CHECKING:
    from wanderbus.client.machine.bounded_filters import BoundedFilters
    from wanderbus.event import Event
    from wanderbus.filters import Filter

SUBJECTS_MAX: Final = 256
"""Subjects whose filters an agent has or requests; it sends every event of further ones."""


class PublisherFilter:
    """Filters of the subjects that this agent publishes to; :meth:`take_unsent` returns the messages to the broker."""

    def __init__(self) -> None:
        self._subjects: dict[str, LeasedFilters] = {}
        self._bounded: dict[str, tuple[tuple[Filter, ...], BoundedFilters]] = {}
        """Filters of each subject as they came, and as they are evaluated."""
        self._unsent: list[protocol.FilterMessage] = []
        self._number = 0
        self._examined = 0
        """Events since the last report to the broker."""
        self._held_back = 0
        self._suspended_s = 0.0
        self._is_ended = False

    def holds_back(self, encoded: bytes, suspended_s: float, now: float) -> bool:
        """Return whether nobody wants an event, for certain; request filters of its subject if they are needed.

        ``suspended_s`` is the time for which the device was suspended so far, while ``now`` stood still.
        """
        if suspended_s > self._suspended_s:
            self._suspended_s = suspended_s
            self.forget()
        if self._is_ended:
            return False
        event = protocol.decode_event(encoded)
        known = self._subjects.get(event.subject)
        if known is not None and known.filters is not None and known.until <= now:
            known.filters = None
        is_wanted = known is None or known.filters is None or self._may_match(known.filters, event)
        self._examined += 1
        self._held_back += not is_wanted
        self._renew(event.subject, known, now)
        return not is_wanted

    def arrived(self, filters: protocol.Filters, now: float) -> None:
        """Use ``filters`` from now on, and confirm them; unknown or unreadable ones let every event be sent."""
        known = self._subjects.get(filters.subject)
        if known is not None:
            known.arrived(filters, now)
        self._unsent.append(protocol.ConfirmFilters(filters.subject, filters.version))

    def take_unsent(self) -> list[protocol.FilterMessage]:
        """Return the messages to the broker since the last call."""
        unsent, self._unsent = self._unsent, []
        return unsent

    def forget(self) -> None:
        """Forget all filters and requests; every event is sent until the broker has answered again.

        The counts of unsent requests become part of the next report.
        """
        self._subjects.clear()
        self._bounded.clear()
        for each in self._unsent:
            if not isinstance(each, protocol.ConfirmFilters):
                self._examined += each.examined
                self._held_back += each.held_back
        self._unsent.clear()

    def end(self) -> None:
        """Hold back nothing any more, and let the broker know."""
        if not self._is_ended:
            self.forget()
            self._is_ended = True
            self._unsent.append(protocol.ReleaseFilters(self._examined, self._held_back))
            self._examined = self._held_back = 0

    def _may_match(self, filters: tuple[Filter, ...], event: Event) -> bool:
        """Return whether filters match an event, or take more than their units of work for it: then it is sent."""
        given, bounded = self._bounded.get(event.subject, (None, None))
        if bounded is None or given is not filters:
            # Only agents that hold back events load it.
            from wanderbus.client.machine.bounded_filters import BoundedFilters

            bounded = BoundedFilters(filters, PUBLISHER_FILTER_WORK_MAX)
            self._bounded[event.subject] = filters, bounded
        return bounded.may_match(event.attributes)

    def _renew(self, subject: str, known: LeasedFilters | None, now: float) -> None:
        if known is not None and now < known.ask_at:
            return
        if known is None:
            if len(self._subjects) >= SUBJECTS_MAX:
                self._drop_unused(now)
            if len(self._subjects) >= SUBJECTS_MAX:
                return
            known = self._subjects[subject] = LeasedFilters(0, now)
        self._number += 1
        known.ask(self._number, now)
        self._unsent.append(protocol.RequestFilters(self._number, subject, self._examined, self._held_back))
        self._examined = self._held_back = 0

    def _drop_unused(self, now: float) -> None:
        """Forget the subjects whose lease has run out, or whose request may be repeated."""
        for subject, each in list(self._subjects.items()):
            if max(each.until, each.renew_at, each.ask_at) <= now:
                del self._subjects[subject]
                self._bounded.pop(subject, None)
