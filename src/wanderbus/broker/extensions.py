"""Extensions of the operator, whose failures are reported."""

from __future__ import annotations

from wanderbus.broker.disconnection import DisconnectionHook
from wanderbus.broker.messages import ExtensionFailed
from wanderbus.broker.queues.queue_policies import QueuePolicies
from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.state.journal import Journal


class Extensions:
    """Kinds of restriction, queue policies, and the hook for devices; without any of them, its empty default."""

    def __init__(
        self, kinds: CustomRestrictions | None, policies: QueuePolicies | None, hook: DisconnectionHook | None
    ) -> None:
        self.kinds = kinds or CustomRestrictions()
        self.policies = policies or QueuePolicies()
        self.hook = hook or DisconnectionHook()
        self._reported: dict[CustomRestrictions | QueuePolicies | DisconnectionHook, int]
        self._reported = {self.kinds: 0, self.policies: 0, self.hook: 0}
        """Number of failures of each that were reported."""

    def report_failures(self, journal: Journal) -> None:
        """Report each extension that has failed since the last call."""
        for extension, reported in self._reported.items():
            if extension.failed > reported:
                self._reported[extension] = extension.failed
                journal.emit(ExtensionFailed(extension.failed, extension.last_failure))
