"""Queue policies that an operator adds to the bounds of the broker (SPEC G-23).

A policy is one pure function, registered under a name when the broker is made. A subscription names it, or the settings
name one for all. The broker calls it for each queued notification; it returns the numbers to drop from that
subscription's queue. The log stores them as drops, so a restart does not call a policy for past notifications.
"""

from __future__ import annotations

from collections.abc import Mapping

from wanderbus.broker.queues.policy_arguments import Policy, Queue
from wanderbus.errors import Refused
from wanderbus.limits import REASON_CHARACTERS_MAX


class QueuePolicies:
    """The policies of one broker, and the count of failures of each; a failure drops nothing."""

    def __init__(self, policies: Mapping[str, Policy] | None = None) -> None:
        self._policies = dict(policies or {})
        self.failures: dict[str, int] = {}
        """Number of failures of each policy, by its name."""

        self.last_failure = ""
        """The last failure, as one line of text."""

    @property
    def failed(self) -> int:
        """Return the number of failures of all policies."""
        return sum(self.failures.values())

    def check(self, name: str | None) -> None:
        """Raise :class:`Refused` for an unknown policy."""
        if name is not None and name not in self._policies:
            known = ", ".join(sorted(self._policies)) or "none"
            raise Refused(f"unknown queue policy {name!r} (this broker has: {known})")

    def choose(self, name: str, queue: Queue) -> list[int]:
        """Return the numbers that the policy ``name`` drops from ``queue``, in order."""
        shown = {each.number for each in (*queue.oldest, *queue.newest)}
        try:
            chosen = set(self._policies[name](queue))
            if unknown := chosen - shown:
                raise ValueError(f"the policy dropped {min(unknown)!r}, which is not among the given numbers")
            return sorted(chosen)
        except Exception as error:
            self.failures[name] = self.failures.get(name, 0) + 1
            self.last_failure = f"queue policy {name!r}: {type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
            return []
