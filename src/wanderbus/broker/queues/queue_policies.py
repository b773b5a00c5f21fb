"""Queue policies that an operator adds to the bounds of the broker (SPEC G-23).

A policy is one pure function, registered under a name when the broker is made. A subscription names it, or the settings
do for all. It is asked each time that a notification is queued, and answers with the numbers of notifications to drop
from that subscription's queue. They are written to the log as drops, so a restart asks no policy about the past.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from wanderbus.errors import Refused
from wanderbus.event import Event
from wanderbus.limits import REASON_CHARACTERS_MAX
from wanderbus.protocol import decode_event

SHOWN_MAX: Final = 32
"""Notifications at each end of a queue that a policy is shown."""


class Waiting:
    """A notification that waits: its number, when its event was published at the broker, and how many bytes it takes.

    ``at_us`` is microseconds since the Unix epoch by the broker's clock.
    """

    def __init__(self, number: int, at_us: int, data: bytes) -> None:
        self.number = number
        self.at_us = at_us
        self.size = len(data)
        self._data = data

    @cached_property
    def event(self) -> Event:
        """The event, decoded when it is first asked for."""
        return decode_event(self._data)


class Queue(msgspec.Struct, frozen=True):
    """What a policy is asked about: the queue of ``subscription``, to which one notification was just added.

    ``oldest`` and ``newest`` are up to :data:`SHOWN_MAX` of what waits at either end, each in order; they overlap in a
    short queue. ``over`` is the bound that is exceeded, None for none: if nothing is dropped, ``when_full`` decides.
    """

    subscription: str
    now_us: int
    waiting: int
    waiting_bytes: int
    over: str | None
    oldest: Sequence[Waiting]
    newest: Sequence[Waiting]


Policy = Callable[[Queue], Collection[int]]
"""Returns the numbers to drop, of those it is shown."""


class Policies:
    """The policies that one broker knows, and how often each has failed; a failure drops nothing."""

    def __init__(self, policies: Mapping[str, Policy] | None = None) -> None:
        self._policies = dict(policies or {})
        self.failures: dict[str, int] = {}
        """How often a policy could not decide, by its name."""

        self.last_failure = ""
        """The last failure, in a line for people."""

    @property
    def failed(self) -> int:
        """Return how often any policy could not decide."""
        return sum(self.failures.values())

    def check(self, name: str | None) -> None:
        """Raise :class:`Refused` for a policy that is not known."""
        if name is not None and name not in self._policies:
            known = ", ".join(sorted(self._policies)) or "none"
            raise Refused(f"no queue policy is called {name!r}; this broker knows {known}")

    def choose(self, name: str, queue: Queue) -> list[int]:
        """Return the numbers that the policy ``name`` drops from ``queue``, in order."""
        shown = {each.number for each in (*queue.oldest, *queue.newest)}
        try:
            chosen = set(self._policies[name](queue))
            if unknown := chosen - shown:
                raise ValueError(f"it drops {min(unknown)!r}, which it was not shown")
            return sorted(chosen)
        except Exception as error:
            self.failures[name] = self.failures.get(name, 0) + 1
            self.last_failure = f"queue policy {name!r}: {type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
            return []
