"""Names for an operator's extensions that run in the broker (SPEC H-10, G-23, G-24); see docs/extending.md."""

from wanderbus.broker.device_changes import DeviceChange, Handling, Hook
from wanderbus.broker.queues.policy_arguments import Policy, Queue
from wanderbus.broker.queues.waiting_notification import Waiting
from wanderbus.broker.restrictions.restriction_kinds import Asked, Kind, Parameters

__all__ = ["Asked", "DeviceChange", "Handling", "Hook", "Kind", "Parameters", "Policy", "Queue", "Waiting"]
