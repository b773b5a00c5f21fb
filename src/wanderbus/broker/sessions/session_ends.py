"""End of sessions that nobody uses: what is over is removed, and the oldest unused one gives way (SPEC J-05).

A session is over once it has no devices, no subscriptions, and nothing that waits. It is removed when its last device
says that it will not return, when it was discarded, and otherwise once its ended subscriptions cannot be renewed any
more. At a bound, sessions and devices that nobody uses give way to new ones: those that hold nothing first, then those
whose devices are all away for longer than the grace period. A session with a live subscription never gives way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from wanderbus import protocol
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.state.rows import DeviceRow, SessionRow, device_key
from wanderbus.broker.subscriptions import Subscriptions

LOOKED_AT_MAX: Final = 500
"""Sessions without devices that one sweep looks at."""


class SessionEnds:
    """Decides which sessions are over, and which give way."""

    def __init__(self, basics: Basics, subscriptions: Subscriptions, engine: EngineEvents) -> None:
        self._state = basics.state
        self._links = basics.links
        self._subscriptions = subscriptions
        self._engine = engine
        self._servers = basics.servers

    def holds_something(self, session: SessionRow) -> bool:
        """Return whether a session is in use without any device that is connected.

        It has a live subscription, a notification that waits or may still come, or an advertisement of a device.
        """
        if session.waiting or self._is_needed(session):
            return True
        ended = (self._state.tombstones[identity] for identity in session.ended)
        if any(row.history or self._engine.is_coming(row) for row in ended):
            return True
        return any(self._state.advertisements.of_device(session.user, device) for device in session.devices)

    def _is_needed(self, session: SessionRow) -> bool:
        """Return whether a session cannot be removed even if what waits there, or may still come, is given up.

        The owner epoch of a session that has moved between servers tells a repeated export from a new one.
        """
        return bool(session.subscriptions) or session.owner_epoch > 1 or self._servers.reserves(session.user)

    def let_go(self, session: SessionRow, device: str, *, is_gone: bool) -> None:
        """End the subscriptions that only ``device`` holds, which has left the session or is away for too long."""
        self._subscriptions.let_go(session, device, is_gone=is_gone)

    def remove(self, session: SessionRow) -> bool:
        """Remove a session if it is over, with those of its ended subscriptions that could still be renewed."""
        if session.devices or self.holds_something(session):
            return False
        self.give_up(session)
        return True

    def give_up(self, session: SessionRow) -> None:
        """Remove a session without devices, and what waits there."""
        self._links.release(session)
        self._subscriptions.forget_session(session)

    def end_subscriptions(self, session: SessionRow) -> None:
        """End all subscriptions of a session that nobody will read."""
        for identity in list(session.subscriptions):
            self._subscriptions.end(self._state.subscriptions[identity].subscription, "asked")

    def sweep(self) -> None:
        """Remove sessions that are over and whose ended subscriptions cannot be renewed any more.

        Those that stay are looked at again after all others.
        """
        memberless = self._state.memberless
        for key in list(islice(memberless, LOOKED_AT_MAX)):
            session = self._state.sessions[key]
            if session.ended or not self.remove(session):
                memberless[key] = memberless.pop(key)

    def counted(self, user: str) -> list[SessionRow]:
        """Return the sessions of a user that count for ``sessions_max``.

        The session of operators' requests does not, so a user at the bound can still list and end sessions; nor does
        one that another server owns.
        """
        sessions = self._state.sessions_of(user)
        return [each for each in sessions if each.name != protocol.OPERATIONS and not each.is_fenced]

    def unused(self, user: str, is_overdue: Callable[[DeviceRow], bool]) -> SessionRow | None:
        """Return the session of ``user`` that gives way to another one, None if all are in use."""
        self._subscriptions.end_expired_of(user)
        unused = [each for each in self.counted(user) if not self._is_connected(each)]
        free = [each for each in unused if not self.holds_something(each)]
        if not free:
            free = [each for each in unused if not self._is_needed(each) and all(map(is_overdue, self._devices(each)))]
        return min(free, key=self._last_used_us, default=None)

    def idle_device(self, sessions: Iterable[SessionRow]) -> DeviceRow | None:
        """Return the device that is away for longest, None if there is none that may give way.

        The last device of a session stays as long as the session holds something (SPEC X40).
        """
        away = [
            row
            for session in sessions
            if len(session.devices) > 1 or not self.holds_something(session)
            for row in self._devices(session)
            if row.away_since_us is not None and row.status == "DISCONNECTED"
        ]
        return min(away, key=_away_since_us, default=None)

    def _is_connected(self, session: SessionRow) -> bool:
        return any(row.status == "CONNECTED" for row in self._devices(session))

    def _devices(self, session: SessionRow) -> list[DeviceRow]:
        return [self._state.devices[device_key(session.user, device)] for device in session.devices]

    def _last_used_us(self, session: SessionRow) -> int:
        return max(map(_away_since_us, self._devices(session)), default=0)


def _away_since_us(row: DeviceRow) -> int:
    return row.away_since_us or 0
