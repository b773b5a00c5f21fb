"""Drain: a server moves all its sessions to other servers, some at a time, and tries again what fails (decision 0142).

Whether the server drains is part of its durable state, so a restart goes on with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from wanderbus.broker.sessions.drain import is_used, moves_in_drain
from wanderbus.broker.sessions.handover_messages import MoveSession, SessionMoveEnded
from wanderbus.broker.state.rows import SessionRow, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.machine import SetTimer
from wanderbus.peers.handover.leaving_sessions import MOVE_S, LeavingSessions
from wanderbus.peers.handover.move_pace import MovePace
from wanderbus.peers.handover.placement import server_for
from wanderbus.peers.open_links import OpenLinks

TIMER: Final = "drain"
"""Key of the timer that looks for sessions to move."""

MOVES_MIN: Final = 64
"""Sessions that may be on their way at once when a drain begins, and later at least."""

MOVES_MAX: Final = 512
"""Largest number of them, which is reached while the targets answer in time."""

LATE_S: Final = 0.2
"""A move that takes longer than the shortest one by this time waits for others."""

USED_MOVES: Final = 3
"""Sessions with a connected device on their way for each one that may be without a server: they are ready once those
before them have come back. The longer a session waits, the more it has to read of the target's log."""

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
        self._pace = MovePace(MOVES_MIN, MOVES_MAX, LATE_S, MOVE_S)
        self._used: set[str] = set()
        """Sessions on their way that had a connected device."""

    def timer_fired(self) -> None:
        """Look for sessions that came meanwhile."""
        self._is_timer_set = False

    def ended(self, ended: SessionMoveEnded, now: float) -> None:
        """Leave a session alone for a while whose move has failed, and a server that has refused it."""
        key = session_key(ended.user, ended.session)
        self._used.discard(key)
        if ended.reason:
            self._pace.forget(key)
            self._failed[key] = now + RETRY_S
        else:
            self._pace.end(key, now)
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
        while open_servers and self._coming:
            session = self._state.sessions.get(self._coming[0])
            if session is not None and not self._has_room(session, now):
                break
            self._coming.popleft()
            if session is None or session.is_fenced or (session.user, session.name) in self._leaving:
                continue
            target = server_for(session.user, open_servers)
            assert target is not None, open_servers
            self._leaving.begin(MoveSession(session.user, session.name, target, "drain"))
            if (session.user, session.name) not in self._leaving:
                continue
            if is_used(self._state, session):
                self._used.add(session.key)
            else:
                self._pace.begin(session.key, now)

    def _has_room(self, session: SessionRow, now: float) -> bool:
        """Return whether a session may leave now: devices that are on their way back do not wait for the others."""
        if is_used(self._state, session):
            return len(self._used) < USED_MOVES * self._leaving.returning_max
        return not self._used and not self._leaving.are_returning and self._pace.has_room(now)

    def _look(self, now: float) -> None:
        """List the sessions to move: those that nobody uses come last."""
        self._failed = {key: until for key, until in self._failed.items() if until > now}
        sessions = [
            each
            for each in self._state.sessions.values()
            if moves_in_drain(each, self._is_server) and each.key not in self._failed
        ]
        sessions.sort(key=lambda each: not is_used(self._state, each))
        self._coming = deque(each.key for each in sessions)
