"""Names for an operator's extensions that run in the broker (SPEC H-10, G-23, G-24); see docs/extending.md."""

from wanderbus.broker.disconnection import DeviceChange, Handling, Hook
from wanderbus.broker.queues.queue_policies import Policy, Queue, Waiting
from wanderbus.broker.restrictions.custom_restrictions import Asked, Kind, Parameters

__all__ = ["Asked", "DeviceChange", "Handling", "Hook", "Kind", "Parameters", "Policy", "Queue", "Waiting"]
