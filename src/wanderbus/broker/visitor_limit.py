"""Bounds on the users and devices of each other domain, so that none can fill the broker (SPEC D-13)."""

from __future__ import annotations

from collections.abc import Iterable

from wanderbus import protocol
from wanderbus.broker.state.state import BrokerState
from wanderbus.parameters.broker import BrokerConfig

UserDevice = tuple[str, str]
"""A user, and the name of a device."""


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
        domain = user.rpartition("@")[2]
        if not self._domain or domain in (self._domain, user):
            return None
        suffix = f"@{domain}"
        devices = {(row.user, row.device) for row in self._state.devices.values() if row.user.endswith(suffix)}
        devices |= {each for each in present if each[0].endswith(suffix)}
        devices.discard((user, device))
        users = {row.user for row in self._state.sessions.values() if row.user.endswith(suffix)}
        users |= {other for other, _ in devices}
        if user not in users and len(users) >= self._users_max:
            return protocol.limit_reached("domain_users_max", self._users_max)
        if len(devices) >= self._devices_max:
            return protocol.limit_reached("domain_devices_max", self._devices_max)
        return None
