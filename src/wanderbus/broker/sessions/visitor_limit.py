"""Bounds on the users and devices of each other domain, so that none can fill the broker (SPEC D-13)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wanderbus import protocol
from wanderbus.broker.state.state import BrokerState
from wanderbus.hosts import domain_of
from wanderbus.parameters.broker import BrokerConfig

UserDevice = tuple[str, str]
"""A user, and the name of a device."""


_WAYS_OUT: Final = {
    "sessions_max": "'wanderbus sessions' lists your sessions, and 'wanderbus discard' ends one that you do not need",
    "devices_max": "every device of the session is connected: close one, or give another session",
    "user_devices_max": "'wanderbus sessions' lists your devices: close one",
    "domain_users_max": "the operator of the server can raise it, or remove users of your domain",
    "domain_devices_max": "close another device of your domain, or ask the operator of the server to raise it",
}
"""Instruction for a user who has met a bound on sessions and devices, by its name."""


def limit_reached(limit: str, most: int) -> protocol.RequestRefused:
    """Return the refusal of an attachment because of a bound on ``most`` of something, with the way out."""
    return protocol.RequestRefused(0, f"{limit} is {most}, and it is reached; {_WAYS_OUT[limit]}", limit=limit)


class VisitorLimit:
    """The bounds of each other domain; users of the server's own domain are not counted."""

    def __init__(self, state: BrokerState, config: BrokerConfig) -> None:
        self._state = state
        self._domain = config.domain
        self._users_max = config.domain_users_max
        self._devices_max = config.domain_devices_max

    def refusal(self, user: str, device: str, present: Iterable[UserDevice]) -> protocol.RequestRefused | None:
        """Return the reason of a refusal if a new ``device`` of ``user`` exceeds its domain's bounds, else None.

        ``present`` are devices that other layers know of; they may not have attached.
        """
        domain = domain_of(user)
        if not self._domain or domain in (self._domain, user):
            return None
        suffix = f"@{domain}"
        devices = {(row.user, row.device) for row in self._state.devices.values() if row.user.endswith(suffix)}
        devices |= {each for each in present if each[0].endswith(suffix)}
        devices.discard((user, device))
        users = {row.user for row in self._state.sessions.values() if row.user.endswith(suffix)}
        users |= {other for other, _ in devices}
        if user not in users and len(users) >= self._users_max:
            return limit_reached("domain_users_max", self._users_max)
        if len(devices) >= self._devices_max:
            return limit_reached("domain_devices_max", self._devices_max)
        return None
