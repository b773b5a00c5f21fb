"""Kinds of restriction that an operator adds to those of :mod:`wanderbus.subscription` (SPEC H-10).

A kind consists of two pure functions, registered under a name when the broker is made. The broker writes its decision
to the log with the event, so a kind is never called twice for one event, not even after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping

from wanderbus.broker.restrictions.restriction_kinds import Asked, Kind
from wanderbus.errors import Refused
from wanderbus.limits import REASON_CHARACTERS_MAX
from wanderbus.subscription import Custom


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
