"""CustomRestrictions of restriction that an operator adds to those of :mod:`wanderbus.subscription` (SPEC H-10).

A kind consists of two pure functions, registered under a name when the broker is made. The broker writes its decision
to the log with the event, so a kind is never called twice for one event, not even after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from wanderbus.errors import Refused
from wanderbus.event import Event
from wanderbus.limits import REASON_CHARACTERS_MAX
from wanderbus.subscription import Custom

Parameters = Mapping[str, Any]
"""Parameters of a subscription for a kind: texts, numbers and booleans by name."""


class Asked(msgspec.Struct, frozen=True):
    """The argument of a kind: one event that a subscription matches, with the times and the owner's status.

    Times are microseconds since the Unix epoch: ``now_us`` by the broker's own clock, which is never set,
    ``received_us`` by the wall clock as it was read, ``last_us`` of the subscription's last notification by the
    broker's own. ``away`` is whether the owner is DISCONNECTED.
    """

    now_us: int
    received_us: int
    last_us: int | None
    away: bool
    event: Event


def _anything(_parameters: Parameters) -> None:
    """Accept any parameters."""


class Kind(msgspec.Struct, frozen=True):
    """A kind of restriction: ``allows`` returns whether a notification may be generated now.

    ``check`` raises :class:`Refused` for invalid parameters when a subscription is submitted.
    """

    allows: Callable[[Parameters, Asked], bool]
    check: Callable[[Parameters], None] = _anything


class CustomRestrictions:
    """The kinds of one broker, and the count of failures of each.

    A kind that raises an error, or is no longer registered, blocks the notification: only an explicit permission lets
    it pass (SPEC H-03). The log names the restriction, and ``failures`` counts the failure.
    """

    def __init__(self, kinds: Mapping[str, Kind] | None = None) -> None:
        self._kinds = dict(kinds or {})
        self.failures: dict[str, int] = {}
        """Number of failures of each kind, by its name."""

        self.last_failure = ""
        """The last failure, as one line of text."""

    @property
    def failed(self) -> int:
        """Return the number of failures of all kinds."""
        return sum(self.failures.values())

    def check(self, restriction: Custom) -> None:
        """Raise :class:`Refused` for an unknown kind, or for parameters that it does not accept."""
        kind = self._kinds.get(restriction.kind)
        if kind is None:
            known = ", ".join(sorted(self._kinds)) or "none"
            raise Refused(f"unknown kind of restriction {restriction.kind!r} (this broker has: {known})")
        try:
            kind.check(restriction.parameters)
        except Refused:
            raise
        except Exception as error:
            raise Refused(
                f"a restriction of kind {restriction.kind!r} does not accept these parameters: {error}"
            ) from error

    def allows(self, restriction: Custom, asked: Asked) -> bool:
        """Return whether ``restriction`` lets a notification be generated."""
        name = restriction.kind
        try:
            return bool(self._kinds[name].allows(restriction.parameters, asked))
        except Exception as error:
            self.failures[name] = self.failures.get(name, 0) + 1
            self.last_failure = f"restriction {name!r}: {type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
            return False
