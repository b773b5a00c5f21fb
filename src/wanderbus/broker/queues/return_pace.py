"""Pace of what waits for devices that return: it takes the time that nobody else needs (SPEC U-03).

A device is sent a slice, and the next one after the input that has arrived meanwhile: on an idle server a backlog is as
fast as live notifications. While others are active, slices are short, and pauses leave them most of the time. Devices
that return together take turns.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from wanderbus.broker.readers import Link
from wanderbus.broker.state.journal import Journal
from wanderbus.machine import SetTimer
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.tokens import bucket_of_slices

TIMER: Final = ("pace",)
"""Key of the timer of the next slice."""

SHARE: Final = 0.2
"""Part of the time for all returning devices while others are active."""

ACTIVE_S: Final = 1.0
"""Time for which a link counts as active after a request."""

ALONE_TURNS: Final = 4
"""Turns that make one slice while no other link is active."""

PAUSE_S_MAX: Final = 0.1
"""Longest pause between two slices."""

EACH_S: Final = 100e-6
"""Duration of one notification until slices were measured."""

SERVERS: Final = -1
"""Stands for the links of other servers."""


class ReturnPace:
    """Permits notifications of backlogs, one slice of one link at a time."""

    def __init__(self, journal: Journal, config: BrokerConfig) -> None:
        self.now = 0.0
        """The monotonic second of the current step."""
        self._journal = journal
        self._per_s_max = config.backlog_per_s
        self._turn_units = config.turn_units
        self._turn: int | None = None
        """Link that is sent the present slice; None between two slices."""
        self._left = 0.0
        """Units that are left of it."""
        self._sent = 0
        self._began_at: float | None = None
        """Start of the slice; None once its duration is known."""
        self._is_waiting = False
        """True from the start of a slice until the end of the pause after it."""
        self._coming: dict[int, Link] = {}
        """Links that have more to send, the next one first; one that is closed by then sends nothing in its slice."""
        self._each_s = EACH_S
        """Recent duration of one notification, with all work that followed it in its step."""
        self._last = self._before = (0, -ACTIVE_S)
        """The two links that were active last, each with the time."""

    def begin_step(self, now: float) -> None:
        """Begin a step at monotonic second ``now``."""
        self.now = now

    def note(self, link: int) -> None:
        """Count a link as active."""
        if link != self._last[0]:
            self._before = self._last
        self._last = (link, self.now)

    def is_contested(self, own: Container[int]) -> bool:
        """Return whether a link besides the ``own`` ones is active."""
        since = self.now - ACTIVE_S
        return any(at > since and link not in own for link, at in (self._last, self._before))

    def pause_s(self, events: int, own: Container[int]) -> float:
        """Return the pause after so many events of the past, which the ``own`` links receive."""
        least_s = 0.0 if self._per_s_max is None else events / self._per_s_max
        return max(least_s, events * self._each_s / SHARE) if self.is_contested(own) else least_s

    def may_send(self, link: Link, units: float) -> bool:
        """Return whether the next notification of a link's backlog may be sent now; if not, it gets another slice."""
        if self._turn != link.link or self._left <= 0:
            if self._is_waiting:
                self._coming[link.link] = link
                return False
            self._begin(link)
        if self._per_s_max is not None:
            if link.pace is None:
                link.pace = bucket_of_slices(self._per_s_max)
            if not link.pace.take(self.now):
                self._journal.emit(SetTimer(("pace", link.link), link.pace.full_at()))
                return False
        self._left -= units
        self._sent += 1
        return True

    def timer_fired(self) -> Link | None:
        """Make the pause after a slice, or begin the next one; return its link if there is one."""
        if self._began_at is not None and self._turn is not None:
            duration_s, self._began_at = self.now - self._began_at, None
            if self._sent:
                self._each_s += (duration_s / self._sent - self._each_s) / 8
            if duration_s > 0 and self.is_contested((self._turn,)):
                self._set(self.now + min(duration_s * (1 / SHARE - 1), PAUSE_S_MAX))
                return None
        self._is_waiting, self._turn = False, None
        if not self._coming:
            return None
        link = self._coming.pop(next(iter(self._coming)))
        self._begin(link)
        return link

    def _begin(self, link: Link) -> None:
        turns = 0.5 if self.is_contested((link.link,)) else ALONE_TURNS
        self._turn, self._left, self._sent = link.link, turns * self._turn_units, 0
        self._began_at = self.now
        self._set(self.now)

    def _set(self, at: float) -> None:
        self._is_waiting = True
        self._journal.emit_now(SetTimer(TIMER, at))
