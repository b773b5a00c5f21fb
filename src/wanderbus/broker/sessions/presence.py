"""Presence: the status of devices and users, and how devices join and leave sessions (SPEC E, X14, X40)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final, Literal

from wanderbus import protocol, records
from wanderbus.broker.basics import Basics
from wanderbus.broker.device_changes import AS_ALWAYS, DeviceChange, Handling
from wanderbus.broker.disconnection import DisconnectionHook
from wanderbus.broker.messages import DevicesDoubted, UserStatusChanged
from wanderbus.broker.readers import Link
from wanderbus.broker.sessions.session_ends import SessionEnds
from wanderbus.broker.sessions.visitor_limit import UserDevice, VisitorLimit, limit_reached
from wanderbus.broker.state.rows import DeviceRow, SessionRow, device_key, session_key
from wanderbus.machine import CancelTimer, SetTimer

LOOK_AGAIN_S: Final = 60.0
"""Least pause before the last device of a session is checked again."""

_FOR_GOOD: Final = frozenset(("asked", "kicked"))
"""Reasons of devices that do not return, so that nobody will renew the ended subscriptions of their session."""


class Presence:
    """Opens and closes links, keeps each device's status, and ends the membership of devices away for too long."""

    def __init__(self, basics: Basics, hook: DisconnectionHook, ends: SessionEnds) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._queue_limits = basics.queue_limits
        self._hook = hook
        self._grace_s = basics.config.device_grace_s
        self._sessions_max = basics.config.sessions_max
        self._members_max = basics.config.devices_max
        self._devices_max = basics.config.user_devices_max
        self._ends = ends
        self._visitors = VisitorLimit(basics.state, basics.config)
        self._servers = basics.servers

    def start(self) -> None:
        """Start the grace timer of every device: none is connected yet."""
        for row in self._state.devices.values():
            self._journal.emit(self._grace_timer(row))

    def take_over(self, session: SessionRow) -> None:
        """Start the grace timer of each device of an imported session."""
        for device in session.devices:
            self._journal.emit(self._grace_timer(self._state.devices[device_key(session.user, device)]))

    def refusal(
        self,
        user: str,
        device: str,
        others: int = 0,
        present: Iterable[UserDevice] = (),
        *,
        is_server: bool = False,
    ) -> protocol.RequestRefused | None:
        """Return the reason of a refusal, None if ``device`` may have a link.

        ``others`` counts further devices of the user that the layer below knows, attached or not; ``present`` are the
        devices of all users there. A user that is reserved for a server ``is_server``, and no other user is. At the
        bound, the user's device that is away for longest gives way, if there is one.
        """
        refusal = self._servers.refusal(user, is_server=is_server)
        if is_server or refusal:
            return refusal
        if device_key(user, device) in self._state.devices:
            return None
        if max(self._count(user), others) >= self._devices_max and self._idle(user) is None:
            return limit_reached("user_devices_max", self._devices_max)
        return self._visitors.refusal(user, device, chain(present, self._links.devices))

    def twin_refusal(self, link: Link, epoch: int) -> protocol.RequestRefused | None:
        """Return the refusal of an agent that comes back after another one of its device, None otherwise.

        An agent that ended never comes back, so both are running: the state directory of the device was copied.
        """
        device = self._state.devices.get(link.key)
        if link.reads_whole or device is None or epoch not in device.former:
            return None
        reason = (
            f"another agent with the same device {link.device} is running: the state directory was copied; "
            "give each device its own"
        )
        return protocol.RequestRefused(0, reason, limit=protocol.DEVICE_USED_TWICE)

    def _count(self, user: str) -> int:
        """Return the number of a user's devices: members of sessions, and connected ones in none."""
        members = sum(len(session.devices) for session in self._state.sessions_of(user))
        return members + sum(not self._state.devices[link.key].session for link in self._links.of_user(user))

    def _idle(self, user: str) -> DeviceRow | None:
        return self._ends.idle_device(self._state.sessions_of(user))

    def opened(self, link: int, user: str, device: str, *, unattended: bool = False, is_server: bool = False) -> None:
        """Open a device's new link, which replaces its previous one; refuse one device too many."""
        if refusal := self.refusal(user, device, is_server=is_server):
            self._links.refuse(link, user, refusal)
            self._journal.emit(DevicesDoubted(user))
            return
        if is_server:
            self._servers.opened(user)
        before = self._links.status(user)
        if device_key(user, device) not in self._state.devices:
            while not is_server and self._count(user) >= self._devices_max and (idle := self._idle(user)):
                self.left(user, idle.session, idle.device, "user_devices_max")
        if previous := self._links.of_device(user, device):
            self._links.close(previous)
        is_foreign = self._servers.is_foreign(user)
        self._links.open(link, user, device, unattended=unattended, reads_whole=is_server, is_foreign=is_foreign)
        self._set_status(user, device, "CONNECTED", "session established")
        self._report(user, before)

    def closed(self, link: Link, reason: str) -> None:
        """Close a link that is gone, and mark its device as disconnected."""
        before = self._links.status(link.user)
        self._links.close(link)
        self._set_status(link.user, link.device, "DISCONNECTED", reason)
        self._report(link.user, before)

    def leave(self, link: Link, session: str, request: int) -> None:
        """Serve a device's request to leave its session permanently."""
        before = self._links.status(link.user)
        self._links.close(link)
        if link.is_foreign:
            self.forget_servers((link.user,), "asked")
        self.left(link.user, session, link.device, "asked")
        self._links.send(link, protocol.Done(request, ()))
        self._report(link.user, before)

    def left(self, user: str, session: str, device: str, reason: str) -> None:
        """End a membership, unless the operator's hook has done so; the caller has closed the links."""
        if (leaving := self._state.devices.get(device_key(user, device))) is None:
            return
        change = self._change("left", leaving, reason)
        self._journal.write(
            records.Left(
                at_us=self._state.wall_us,
                user=user,
                session=session,
                device=device,
                reason=reason,
            ),
            urgent=reason != "grace",
        )
        self._links.forget(session_key(user, session), device_key(user, device))
        self._forget_former(user)
        if change is not None:
            self._hook.decide(change)
        former = self._state.sessions.get(session_key(user, session))
        if former is not None:
            self._ends.let_go(former, device, is_gone=True)
            if reason in _FOR_GOOD or not former.ended:
                self._ends.remove(former)

    def forget_servers(self, users: Iterable[str], reason: str = "left_domain") -> None:
        """Remove the sessions of servers that have left the domain: nobody reads there, and no event is to wait.

        The same is done for a foreign domain that is connected no longer.
        """
        for session in [each for user in users for each in self._state.sessions_of(user)]:
            self._ends.end_subscriptions(session)
            for device in list(session.devices):
                self.left(session.user, session.name, device, reason)
            self._ends.give_up(session)
            self._servers.forget(session.user)

    def make_room(self, link: Link, name: str) -> protocol.RequestRefused | None:
        """Make room for the device of ``link`` in its session ``name``; return the refusal if everything is in use."""
        refusal = self._make_room(link, name)
        if refusal is not None:
            self._journal.emit(DevicesDoubted(link.user))
        return refusal

    def _make_room(self, link: Link, name: str) -> protocol.RequestRefused | None:
        session = self._state.sessions.get(session_key(link.user, name))
        if session is None:
            return self._make_session_room(link, name)
        if link.device not in session.devices and len(session.devices) >= self._members_max:
            if (idle := self._ends.idle_device([session])) is None:
                return limit_reached("devices_max", self._members_max)
            self.left(link.user, name, idle.device, "devices_max")
        return None

    def _make_session_room(self, link: Link, name: str) -> protocol.RequestRefused | None:
        if name == protocol.OPERATIONS:
            return None
        former = self._state.sessions.get(session_key(link.user, self._state.devices[link.key].session))
        if len(self._ends.counted(link.user)) - self._leaves_behind(link, former) < self._sessions_max:
            return None
        if (unused := self._ends.unused(link.user, self._is_overdue)) is None:
            return limit_reached("sessions_max", self._sessions_max)
        for device in list(unused.devices):
            self.left(link.user, unused.name, device, "sessions_max")
        if self._state.sessions.get(unused.key) is unused:
            self._ends.give_up(unused)
        return None

    def _leaves_behind(self, link: Link, former: SessionRow | None) -> bool:
        """Return whether the session ``former`` is over once its last device has moved to another one."""
        if former is None or former.devices != [link.device] or former.ended:
            return False
        return not self._ends.holds_something(former)

    def moved(self, link: Link, former: SessionRow | None, session: SessionRow) -> None:
        """Tidy up after a device has moved from the session ``former``, if any, to another one."""
        if former is None or former is session:
            return
        self._links.forget(former.key, link.key)
        self._ends.let_go(former, link.device, is_gone=True)
        if not former.ended:
            self._ends.remove(former)

    def reason_of_removal(self, link: Link) -> str:
        """Return why the device of a link was removed from its session since it was attached, "" if it was not."""
        former = self._state.former.get(link.user)
        return "" if former is None else former.reasons.get(link.device, "")

    def _is_overdue(self, row: DeviceRow) -> bool:
        return row.status == "DISCONNECTED" and self._grace_left_s(row) <= 0

    def _forget_former(self, user: str) -> None:
        """Bound the removed devices whose repeated publishes are still recognised."""
        former = self._state.former.get(user)
        if former and (beyond := former.devices[: -self._devices_max]):
            forgotten = records.Forgotten(
                at_us=self._state.wall_us, devices=tuple([(user, device) for device in beyond])
            )
            self._journal.write(forgotten, urgent=False)

    def grace_over(self, user: str, device: str) -> None:
        """End the membership of a device away for too long (SPEC X40).

        The last one of a session stays as long as the session holds something. The broker's clock decides how long it
        was away; that clock may run slower than the timer.
        """
        row = self._state.devices.get(device_key(user, device))
        if row is None or row.status == "CONNECTED":
            return
        session = self._state.sessions.get(session_key(user, row.session))
        if session and session.devices == [device] and self._grace_left_s(row) <= 0:
            self._ends.let_go(session, device, is_gone=False)
        if session and session.devices == [device] and self._ends.holds_something(session):
            self._journal.emit(SetTimer(("grace", user, device), self._links.now + self._look_again_s(row)))
        elif self._grace_left_s(row) > 0:
            self._journal.emit(self._grace_timer(row))
        else:
            self.left(user, row.session, device, "grace")

    def _report(self, user: str, before: str) -> None:
        if (status := self._links.status(user)) != before:
            self._journal.emit(UserStatusChanged(user, status))

    def _set_status(self, user: str, device: str, status: str, reason: str) -> None:
        row = self._state.devices.get(device_key(user, device))
        if row and row.status == status:
            return
        change = self._change("reconnected" if status == "CONNECTED" else "disconnected", row, reason)
        handling = AS_ALWAYS if change is None else self._hook.decide(change)
        self._journal.write(
            records.StatusChanged(
                at_us=self._state.wall_us,
                user=user,
                device=device,
                status=status,
                reason=reason,
                grace_s=handling.grace_s if status == "DISCONNECTED" else None,
            ),
            urgent=False,
        )
        if status == "CONNECTED":
            self._journal.emit(CancelTimer(("grace", user, device)))
        elif row and row.session:
            self._journal.emit(self._grace_timer(row))
        if row is not None and change is not None:
            self._carry_out(handling, row, change)

    def _change(
        self, change: Literal["disconnected", "reconnected", "left"], row: DeviceRow | None, reason: str
    ) -> DeviceChange | None:
        """Return the argument for the hook, None if there is no hook or the device is in no session."""
        if not self._hook.is_registered or row is None or not row.session:
            return None
        session = self._state.sessions[session_key(row.user, row.session)]
        return DeviceChange(
            change=change,
            user=row.user,
            session=row.session,
            device=row.device,
            reason=reason,
            now_us=self._state.wall_us,
            away_s=self._away_s(row),
            waiting=session.waiting,
            waiting_bytes=session.queued_bytes,
            others_connected=any(link.device != row.device for link in self._links.of_user(row.user)),
        )

    def _carry_out(self, handling: Handling, row: DeviceRow, change: DeviceChange) -> None:
        if handling.drop_waiting:
            self._queue_limits.discard(self._state.sessions[session_key(row.user, change.session)], row.device, "hook")
        if handling.leave and change.change == "disconnected":
            self.left(row.user, change.session, row.device, "hook")

    def _grace_timer(self, row: DeviceRow) -> SetTimer:
        return SetTimer(("grace", row.user, row.device), self._links.now + self._grace_left_s(row))

    def _grace_left_s(self, row: DeviceRow) -> float:
        return max(0.0, self._grace_of(row) - self._away_s(row))

    def _grace_of(self, row: DeviceRow) -> float:
        return self._grace_s if row.grace_s is None else row.grace_s

    def _look_again_s(self, row: DeviceRow) -> float:
        """Return the pause until the last device of a session is checked again; it stays until another one joins."""
        return max(self._grace_of(row), min(self._grace_s, LOOK_AGAIN_S))

    def _away_s(self, row: DeviceRow) -> float:
        return 0.0 if row.away_since_us is None else (self._state.wall_us - row.away_since_us) / 1e6
