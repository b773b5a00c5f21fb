"""Drain: a server moves all its sessions to other servers, some at a time, and tries again what fails (decision 0142).

Whether the server drains is part of its durable state, so a restart goes on with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from wanderbus.broker.sessions.drain import moves_in_drain
from wanderbus.broker.sessions.handover_messages import MoveSession, SessionMoveEnded
from wanderbus.broker.state.rows import SessionRow, device_key, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.machine import SetTimer
from wanderbus.peers.handover.leaving_sessions import LeavingSessions
from wanderbus.peers.handover.placement import server_for
from wanderbus.peers.open_links import OpenLinks

TIMER: Final = "drain"
"""Key of the timer that looks for sessions to move."""

MOVES_MAX: Final = 64
"""Sessions that are on their way at once: the acknowledgements of the targets set the rate."""

USED_MOVES_MAX: Final = 1
"""The same for a session with a connected device: devices that call the next server at once wait for each other."""

LOOK_S: Final = 0.5
"""Pause until the server looks again for sessions that came meanwhile, or whose move has failed."""

RETRY_S: Final = 5.0
"""Pause before a session whose move has failed is tried again."""

REFUSED_S: Final = 30.0
"""Time for which a server that has refused a session is offered no other one."""


class Draining:
    """Begins moves while this server drains.

    :param is_server: whether a user stands for another server
    :param leaving: carries the moves out
    """

    def __init__(
        self,
        state: BrokerState,
        is_server: Callable[[str], bool],
        links: OpenLinks,
        leaving: LeavingSessions,
        emit: Callable[[SetTimer], None],
    ) -> None:
        self._state = state
        self._is_server = is_server
        self._links = links
        self._leaving = leaving
        self._emit = emit
        self._coming: deque[str] = deque()
        """Keys of the sessions to move next."""
        self._failed: dict[str, float] = {}
        """Sessions whose move has failed, and servers that have refused one, each until when it is left alone."""
        self._is_timer_set = False

    def timer_fired(self) -> None:
        """Look for sessions that came meanwhile."""
        self._is_timer_set = False

    def ended(self, ended: SessionMoveEnded, now: float) -> None:
        """Leave a session alone for a while whose move has failed, and a server that has refused it."""
        if ended.reason:
            self._failed[session_key(ended.user, ended.session)] = now + RETRY_S
        if ended.has_refused:
            self._failed[ended.target] = now + REFUSED_S

    def go_on(self, now: float) -> None:
        """Begin as many moves as may be under way, if this server drains."""
        if not self._state.is_draining or not self._leaving.has_all_links:
            return
        if not self._is_timer_set:
            if not self._coming:
                self._look(now)
            self._is_timer_set = True
            self._emit(SetTimer(TIMER, now + LOOK_S))
        targets = self._leaving.targets & self._links.servers
        open_servers = [each for each in targets if self._failed.get(each, now) <= now]
        while open_servers and self._coming and len(self._leaving) < MOVES_MAX:
            session = self._state.sessions.get(self._coming[0])
            if session is not None and self._is_used(session) and len(self._leaving) >= USED_MOVES_MAX:
                break
            self._coming.popleft()
            if session is None or session.is_fenced or (session.user, session.name) in self._leaving:
                continue
            target = server_for(session.user, open_servers)
            assert target is not None, open_servers
            self._leaving.begin(MoveSession(session.user, session.name, target, "drain"))

    def _look(self, now: float) -> None:
        """List the sessions to move: those that nobody uses come last."""
        self._failed = {key: until for key, until in self._failed.items() if until > now}
        sessions = [
            each
            for each in self._state.sessions.values()
            if moves_in_drain(each, self._is_server) and each.key not in self._failed
        ]
        sessions.sort(key=lambda each: not self._is_used(each))
        self._coming = deque(each.key for each in sessions)

    def _is_used(self, session: SessionRow) -> bool:
        """Return whether a device of a session is connected."""
        rows = (self._state.devices.get(device_key(session.user, device)) for device in session.devices)
        return any(row is not None and row.status == "CONNECTED" for row in rows)
