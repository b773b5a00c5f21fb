"""Sessions that follow their devices: each moves to the server that is near to them, once they stay there (SPEC L-01).

A device that changes its address tells its server by re-INVITE, as always. If the new address is in a network of
another server, this one begins a move of the session to it, and the device follows the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wanderbus.broker.sessions.handover_messages import DeviceLocated, MoveSession, SessionMoveEnded
from wanderbus.broker.state.rows import SessionRow, device_key, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.machine import SetTimer
from wanderbus.peers.handover.leaving_sessions import LeavingSessions
from wanderbus.server_networks import ServerNetworks

TIMER: Final = "follow"
"""Key of the timer that looks where devices are."""

SETTLED_S: Final = 2.0
"""Time for which a device has to stay at an address before its session follows: one that passes by moves nothing."""

RETRY_S: Final = 30.0
"""Pause before a session whose move has failed is tried again."""


class Following:
    """Begins moves of sessions whose devices are near to another server.

    :param leaving: carries the moves out
    """

    def __init__(
        self,
        state: BrokerState,
        networks: ServerNetworks,
        leaving: LeavingSessions,
        emit: Callable[[SetTimer], None],
    ) -> None:
        self._state = state
        self._networks = networks
        self._leaving = leaving
        self._emit = emit
        self._due: dict[str, float] = {}
        """Devices at another address, by key, and when the session of each follows."""
        self._moving: dict[str, str] = {}
        """The device for which each session moves; both are keys."""
        self._is_timer_set = False

    def located(self, located: DeviceLocated, now: float) -> None:
        """Note that a device is at an address; it may be the one where it was."""
        key = device_key(located.user, located.device)
        if self._networks.nearest(located.host) not in ("", self._state.server):
            self._due[key] = now + SETTLED_S
            self._set_timer(now)
        else:
            self._due.pop(key, None)

    def ended(self, ended: SessionMoveEnded, now: float) -> None:
        """Try a session again after a while that has not moved."""
        device = self._moving.pop(session_key(ended.user, ended.session), None)
        if device is not None and ended.reason:
            self._due[device] = now + RETRY_S
            self._set_timer(now)

    def timer_fired(self, now: float) -> None:
        """Begin the moves that are due."""
        self._is_timer_set = False
        for device in [key for key, at in self._due.items() if at <= now]:
            del self._due[device]
            self._follow(device)
        if self._due:
            self._set_timer(now)

    def _follow(self, key: str) -> None:
        device = self._state.devices.get(key)
        session = None if device is None else self._state.sessions.get(session_key(device.user, device.session))
        if device is None or device.status != "CONNECTED" or session is None or session.is_fenced or session.is_visit:
            return
        target = self._nearest(key)
        is_here = self._state.server in map(self._nearest, self._connected(session))
        if not is_here and target in self._leaving.targets and (session.user, session.name) not in self._leaving:
            self._moving[session.key] = key
            self._leaving.begin(MoveSession(session.user, session.name, target, "network"))

    def _connected(self, session: SessionRow) -> list[str]:
        keys = [device_key(session.user, device) for device in session.devices]
        return [key for key in keys if (row := self._state.devices.get(key)) and row.status == "CONNECTED"]

    def _nearest(self, key: str) -> str:
        """Return the server that is near to a device, "" if none is."""
        host, _, _ = (self._state.devices[key].address or "").rpartition(":")
        return self._networks.nearest(host)

    def _set_timer(self, now: float) -> None:
        if not self._is_timer_set:
            self._is_timer_set = True
            self._emit(SetTimer(TIMER, now + SETTLED_S))
