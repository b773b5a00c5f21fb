"""Filters of a subject that may be used under a lease: by a publishing agent, or by its server at a leader (SPEC N-02).

A lease begins with the request for it, by the clock of the side that has made the request, and ends a margin earlier
than on the side that has granted it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from wanderbus.errors import FilterError

if TYPE_CHECKING:
    from wanderbus.filters import Filter
    from wanderbus.protocol import Filters

LEASE_MARGIN: Final = 0.1
"""Part of a lease that is not used, because the clocks of both sides run at different rates."""

RENEWED_AFTER: Final = 0.4
"""Part of a lease after which it is renewed, if it is still needed."""

RETRY_S: Final = 60.0
"""Time after which a request is repeated that was answered without filters, or not at all."""


class LeasedFilters(msgspec.Struct):
    """Filters of a subject, None while they are unknown, and the times of the lease."""

    number: int
    """Number of the last request."""
    asked_at: float
    is_asked: bool = True
    """True while that request has no answer."""
    filters: tuple[Filter, ...] | None = None
    until: float = 0.0
    renew_at: float = 0.0

    @property
    def ask_at(self) -> float:
        """Return the time from which on the filters are requested again, if they are needed."""
        return self.asked_at + RETRY_S if self.is_asked else self.renew_at

    def ask(self, number: int, now: float) -> None:
        """Note that the filters were requested under ``number``."""
        self.number, self.asked_at, self.is_asked = number, now, True

    def begin_earlier(self, by_s: float) -> None:
        """Let the request, and the lease, begin ``by_s`` seconds earlier: for so long the clock stood still."""
        self.asked_at -= by_s
        self.until -= by_s
        self.renew_at -= by_s

    def arrived(self, given: Filters, now: float) -> bool:
        """Use what has arrived, and return whether it is the answer to the last request.

        Unreadable filters let every event be published, as no filters do.
        """
        is_answer = self.is_asked and given.number == self.number
        if is_answer:
            self.is_asked = False
            self.until = self.asked_at + (1 - LEASE_MARGIN) * given.lease_s
            self.renew_at = self.asked_at + RENEWED_AFTER * given.lease_s
        if is_answer or self.filters is not None:
            self.filters = _read(given.expressions)
        if self.filters is None:
            self.renew_at = now + RETRY_S
        return is_answer


def _read(expressions: tuple[str, ...] | None) -> tuple[Filter, ...] | None:
    if expressions is None:
        return None
    from wanderbus.filters import parse  # only agents that hold back events load it

    try:
        return tuple(parse(each) for each in expressions)
    except FilterError:
        return None
