"""Operator's hook for disconnections, and its treatment of each device (SPEC G-24)."""

from __future__ import annotations

from typing import Final, Literal
from zlib import crc32

from wanderbus.broker.device_changes import DeviceChange, Handling

GRACE_S: Final = 36_000.0
"""Longest absence of devices of the kind ``grace``."""

STALE_S: Final = 3_600.0
"""Age from which notifications for absent devices of the kind ``drop`` are dropped."""

Treatment = Literal["always", "grace", "drop", "leave", "fault"]

_TREATMENTS: Final[tuple[Treatment, ...]] = ("always", "always", "always", "grace", "drop", "leave", "fault")


def treatment_of(user: str, device: str) -> Treatment:
    """Return the hook's treatment of a device: always the same."""
    return _TREATMENTS[crc32(f"{user}/{device}".encode()) % len(_TREATMENTS)]


def handled(change: DeviceChange) -> Handling | None:
    """Decide for the broker; the hook fails for some devices, which changes nothing."""
    treatment = treatment_of(change.user, change.device)
    if change.change != "disconnected":
        is_stale = change.change == "reconnected" and treatment == "drop" and change.away_s > STALE_S
        return Handling(drop_waiting=is_stale)
    match treatment:
        case "grace":
            return Handling(grace_s=GRACE_S)
        case "drop":
            return Handling(drop_waiting=True)
        case "leave":
            return Handling(leave=change.others_connected)
        case "fault":
            raise RuntimeError("a fault of the operator's")
    return None
