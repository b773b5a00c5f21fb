"""The broker as one machine: links open and close, agents ask, the log confirms, the clock ticks.

It knows nothing of how a link is made (SPEC A-08, X14: dialogs and addresses are the business of the layer
that owns it), and nothing of files: records go out as :class:`Append` and come back as :class:`Appended`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from wanderbus import records
from wanderbus.broker import protocol
from wanderbus.broker.config import BrokerConfig
from wanderbus.broker.journal import Append, Journal
from wanderbus.broker.links import Link, Links, SendOnLink
from wanderbus.broker.publishing import Publishing
from wanderbus.broker.state import BrokerState, DeviceRow, device_key, session_key
from wanderbus.broker.subscribing import Subscriptions
from wanderbus.errors import RemoteProtocolError
from wanderbus.machine import (
    CancelTimer,
    ClockRead,
    Input,
    Output,
    SetTimer,
    TimerFired,
)

__all__ = [
    "Append",
    "Appended",
    "Broker",
    "DeviceBound",
    "LinkClosed",
    "LinkOpened",
    "MessageArrived",
    "SendOnLink",
    "ServerStarted",
    "UserStatusChanged",
]


_SESSION_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class ServerStarted(Input, frozen=True):
    """The server begins to serve; first input after a start or restart."""


class LinkOpened(Input, frozen=True):
    """A data channel to ``device`` of the authenticated ``user`` is open; an earlier one of it is over."""

    link: int
    user: str
    device: str


class LinkClosed(Input, frozen=True):
    """A data channel is gone, because of ``reason``: sending failed, or its session was ended (SPEC G-02)."""

    link: int
    reason: str


class DeviceBound(Input, frozen=True):
    """Signalling state to be kept for a device, opaque here, empty for none; its data goes to ``address``."""

    user: str
    device: str
    address: str
    binding: bytes


class MessageArrived(Input, frozen=True):
    """``payload`` arrived on ``link``."""

    link: int
    payload: bytes


class Appended(Input, frozen=True):
    """Every record below offset ``durable`` is on disk."""

    durable: int


class UserStatusChanged(Output, frozen=True):
    """The User Status of ``user`` is ``CONNECTED`` or ``DISCONNECTED`` now (SPEC E-07)."""

    user: str
    status: str


class Broker:
    """Sessions, subscriptions, matching and queues of one server; ``step`` as every machine."""

    def __init__(self, state: BrokerState, config: BrokerConfig) -> None:
        self.state = state
        self._config = config
        self._journal = Journal(state)
        self._links = Links(state, self._journal, config)
        self._subscriptions = Subscriptions(state, self._journal, self._links, config)
        self._publishing = Publishing(state, self._journal, self._links, self._subscriptions, config)

    def status(self, user: str) -> str:
        """Return the User Status of ``user``: CONNECTED while any of the user's devices can be reached."""
        return self._links.status(user)

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        for given in inputs:
            match given:
                case MessageArrived(link=identity, payload=payload):
                    self._arrived(identity, payload, now)
                case Appended(durable=durable):
                    self._journal.appended(durable)
                case ClockRead(wall_us=wall_us):
                    self.state.wall_us = max(self.state.wall_us, wall_us)
                case LinkOpened():
                    self._opened(given, now)
                case LinkClosed(link=identity, reason=reason):
                    if link := self._links.get(identity):
                        self._closed(link, reason, now)
                case DeviceBound():
                    self._bound(given)
                case TimerFired(key=("grace", user, device)):
                    self._grace_over(str(user), str(device), now)
                case ServerStarted():
                    self._started(now)
        return self._journal.drain()

    def _write(self, record: records.AnyRecord, *, urgent: bool = False) -> None:
        self._journal.write(record, urgent=urgent)

    def _started(self, now: float) -> None:
        self._write(
            records.Started(at_us=self.state.wall_us, server=self.state.server),
            urgent=True,
        )
        for row in self.state.devices.values():
            self._journal.say(self._grace_timer(row, now))

    def _bound(self, bound: DeviceBound) -> None:
        if bound.binding or device_key(bound.user, bound.device) in self.state.devices:
            record = records.Bound(
                at_us=self.state.wall_us,
                user=bound.user,
                device=bound.device,
                address=bound.address,
                binding=bound.binding,
            )
            self._write(record)

    def _opened(self, opened: LinkOpened, now: float) -> None:
        before = self._links.status(opened.user)
        if previous := self._links.of_device(opened.user, opened.device):
            self._links.close(previous)
        self._links.open(opened.link, opened.user, opened.device)
        self._set_status(opened.user, opened.device, "CONNECTED", "session established", now)
        self._report(opened.user, before)

    def _closed(self, link: Link, reason: str, now: float) -> None:
        before = self._links.status(link.user)
        self._links.close(link)
        self._set_status(link.user, link.device, "DISCONNECTED", reason, now)
        self._report(link.user, before)

    def _report(self, user: str, before: str) -> None:
        if (status := self._links.status(user)) != before:
            self._journal.say(UserStatusChanged(user, status))

    def _set_status(self, user: str, device: str, status: str, reason: str, now: float) -> None:
        row = self.state.devices.get(device_key(user, device))
        if row and row.status == status:
            return
        self._write(
            records.StatusChanged(
                at_us=self.state.wall_us,
                user=user,
                device=device,
                status=status,
                reason=reason,
            )
        )
        row = self.state.devices[device_key(user, device)]
        self._journal.say(
            CancelTimer(("grace", user, device)) if status == "CONNECTED" else self._grace_timer(row, now)
        )

    def _grace_timer(self, row: DeviceRow, now: float) -> SetTimer:
        away_us = self.state.wall_us - (row.away_since_us if row.away_since_us is not None else self.state.wall_us)
        return SetTimer(
            ("grace", row.user, row.device),
            now + max(0.0, self._config.device_grace_s - away_us / 1e6),
        )

    def _grace_over(self, user: str, device: str, now: float) -> None:
        """A device away for too long leaves, unless it is the session's last (SPEC X40)."""
        row = self.state.devices.get(device_key(user, device))
        if row is None or row.status == "CONNECTED":
            return
        session = self.state.sessions.get(session_key(user, row.session))
        if session and session.devices == [device]:
            self._journal.say(SetTimer(("grace", user, device), now + self._config.device_grace_s))
        else:
            self._left(user, row.session, device, "grace")

    def _leave(self, link: Link, session: str, request: int) -> None:
        before = self._links.status(link.user)
        self._links.close(link)
        self._left(link.user, session, link.device, "asked")
        self._links.say(link, protocol.Done(request, ()))
        self._report(link.user, before)

    def _left(self, user: str, session: str, device: str, reason: str) -> None:
        self._write(
            records.Left(
                at_us=self.state.wall_us,
                user=user,
                session=session,
                device=device,
                reason=reason,
            ),
            urgent=reason == "asked",
        )
        if row := self.state.sessions.get(session_key(user, session)):
            self._links.pump(row)

    def _arrived(self, identity: int, payload: bytes, now: float) -> None:
        link = self._links.get(identity)
        if link is None:
            return
        try:
            message = protocol.decode_from_agent(payload)
        except RemoteProtocolError as error:
            self._closed(link, str(error), now)
            return
        if isinstance(message, protocol.Attach):
            self._attach(link, message)
            return
        if link.session is None:
            return
        match message:
            case protocol.Publish():
                row = self.state.devices[device_key(link.user, link.device)]
                self._publishing.publish(link, row.epoch, message)
            case protocol.Take(number=number):
                self._take(link, number)
            case protocol.Leave(request=request):
                self._leave(link, link.session, request)
            case protocol.Inspect() | protocol.Peek() | protocol.Purge() | protocol.Kick():
                self._links.say(link, protocol.RequestRefused(message.request, "only an operator may ask for that"))
            case _:
                self._subscriptions.answer(link, message)

    def _attach(self, link: Link, message: protocol.Attach) -> None:
        if link.session is not None:
            return
        if refusal := self._no_place(link, message.session):
            self._links.say(link, refusal)
            return
        self._write(
            records.Attached(
                at_us=self.state.wall_us,
                user=link.user,
                session=message.session,
                device=link.device,
                epoch=message.epoch,
                redelivered_through=self._redelivered_through(link, message),
            ),
            urgent=True,
        )
        session = self.state.sessions[session_key(link.user, message.session)]
        if not message.keep:
            self._subscriptions.discard(link.user, session.name, link.device)
            self._took(link, session.name, session.next - 1)
        elif message.resume and message.resume.epoch == session.epoch:
            self._took(link, session.name, min(message.resume.number, session.next - 1))
        cursor = self.state.devices[device_key(link.user, link.device)].cursor
        self._links.attach(link, session.name, cursor)
        self._links.say(link, protocol.Attachment(session.epoch, cursor))
        self._links.pump(session)

    def _no_place(self, link: Link, name: str) -> protocol.RequestRefused | None:
        """Return why this link cannot join the session ``name``, or None if it can."""
        if not _SESSION_NAME.fullmatch(name):
            reason = "a session's name has 1 to 64 letters, digits, dots, dashes or underscores"
            return protocol.RequestRefused(0, reason)
        session = self.state.sessions.get(session_key(link.user, name))
        if session is None:
            count = sum(row.user == link.user for row in self.state.sessions.values())
            limit, most = "sessions_max", self._config.sessions_max
        elif link.device not in session.devices:
            count = len(session.devices)
            limit, most = "devices_max", self._config.devices_max
        else:
            return None
        if count < most:
            return None
        return protocol.RequestRefused(0, f"{limit} is {most}, and it is reached", limit=limit)

    def _redelivered_through(self, link: Link, message: protocol.Attach) -> int:
        """Return up to where an earlier life of this agent may have shown notifications to its application."""
        row = self.state.devices[device_key(link.user, link.device)]
        if message.epoch == row.epoch:
            return row.redelivered_through
        return 0 if message.resume else self._links.handed(link.user, message.session, link.device)

    def _take(self, link: Link, number: int) -> None:
        assert link.session is not None
        if number <= link.sent:
            self._took(link, link.session, number)
            self._links.pump(self.state.sessions[session_key(link.user, link.session)])

    def _took(self, link: Link, session: str, number: int) -> None:
        if number > self.state.devices[device_key(link.user, link.device)].cursor:
            self._write(
                records.Took(
                    at_us=self.state.wall_us,
                    user=link.user,
                    session=session,
                    device=link.device,
                    number=number,
                )
            )
