"""An operator's hook for devices that disconnect, reconnect and leave (SPEC G-24).

The hook is one pure function, registered when the broker is made. It returns its decision as data. The broker carries
the decision out and writes it to the log, so a restart does not call the hook for past changes.
"""

from __future__ import annotations

from typing import Final

from wanderbus.broker.device_changes import AS_ALWAYS, DeviceChange, Handling, Hook
from wanderbus.limits import REASON_CHARACTERS_MAX

GRACE_S_MAX: Final = 10 * 366 * 86_400.0
"""A longer grace is refused, because it would overflow the broker's clock."""


class DisconnectionHook:
    """The hook of one broker, if any, and the count of its failures; a failure changes nothing."""

    def __init__(self, hook: Hook | None = None) -> None:
        self._hook = hook
        self.failed = 0
        """Number of times that the hook raised, or returned an invalid value."""

        self.last_failure = ""
        """The last failure, as one line of text."""

    @property
    def is_registered(self) -> bool:
        """Return whether a hook is registered."""
        return self._hook is not None

    def decide(self, change: DeviceChange) -> Handling:
        """Return the hook's decision about ``change``."""
        if self._hook is None:
            return AS_ALWAYS
        try:
            return _checked(self._hook(change))
        except Exception as error:
            self.failed += 1
            self.last_failure = f"disconnection hook: {type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
            return AS_ALWAYS


def _checked(handling: object) -> Handling:
    if handling is None:
        return AS_ALWAYS
    if not isinstance(handling, Handling):
        raise TypeError(f"the hook returned {type(handling).__name__}; return a Handling or None")
    if handling.grace_s is not None and not 0 <= handling.grace_s <= GRACE_S_MAX:
        raise ValueError(f"grace_s is {handling.grace_s}; it must be from 0 to {GRACE_S_MAX:.0f}")
    return handling
