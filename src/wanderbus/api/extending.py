"""Names for code of an operator that runs in the broker (SPEC H-10, G-24); docs/extending.md says what it may do."""

from wanderbus.broker.custom import Asked, Kind, Parameters
from wanderbus.broker.disconnection import DeviceChange, Handling, Hook

__all__ = ["Asked", "DeviceChange", "Handling", "Hook", "Kind", "Parameters"]
