"""Kinds of restriction that an operator adds to those of :mod:`wanderbus.subscription` (SPEC H-10).

A kind is two pure functions, registered under a name when the broker is made. What it decides is written to the log
with the event, so no kind is ever asked twice about one event, not after a restart either.
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
"""What a subscription says to a kind: texts, numbers and booleans by name."""


class Asked(msgspec.Struct, frozen=True):
    """What a kind is asked about: one event that a subscription matches, and the circumstances.

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
    """Take any parameters."""


class Kind(msgspec.Struct, frozen=True):
    """A kind of restriction: ``allows`` tells whether a notification may be generated now.

    ``check`` raises :class:`Refused` for parameters that make no sense, when a subscription is submitted.
    """

    allows: Callable[[Parameters, Asked], bool]
    check: Callable[[Parameters], None] = _anything


class Kinds:
    """The kinds that one broker knows, and how often each has failed.

    A kind that raises, or that is registered no longer, forbids: a restriction passes only if it says so (SPEC H-03).
    The log names it as what forbade, and ``failures`` counts it here.
    """

    def __init__(self, kinds: Mapping[str, Kind] | None = None) -> None:
        self._kinds = dict(kinds or {})
        self.failures: dict[str, int] = {}
        """How often a kind could not decide, by its name."""

        self.last_failure = ""
        """The last one, in a line for people."""

    @property
    def failed(self) -> int:
        """Return how often any kind could not decide."""
        return sum(self.failures.values())

    def check(self, restriction: Custom) -> None:
        """Raise :class:`Refused` for a kind that is not known, or for parameters that it does not take."""
        kind = self._kinds.get(restriction.kind)
        if kind is None:
            known = ", ".join(sorted(self._kinds)) or "none"
            raise Refused(f"no kind of restriction is called {restriction.kind!r}; this broker knows {known}")
        try:
            kind.check(restriction.parameters)
        except Refused:
            raise
        except Exception as error:
            raise Refused(
                f"a restriction of kind {restriction.kind!r} does not take these parameters: {error}"
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
