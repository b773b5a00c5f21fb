"""Transfer of a session's end point to a dormant instance of its application, mostly on another device (SPEC L-07).

A dormant instance is a request that waits: the broker answers it when the end point of the session comes. A transfer
has three steps, each of which may be repeated after a crash:

1. The devices that read the session are sent nothing more. Their applications finish what they have, and acknowledge.
2. The dormant instance is started by the answer to its request.
3. It joins the session, and begins behind what was acknowledged. Then the former devices are no members any more.

In a domain, the instance may wait at another server: that of the session asks all others before, and lets that one
start it. The instance is led to the session as every device is.

If it does not join, the former devices stay members: nothing is lost, and the application can be started again there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wanderbus import protocol
from wanderbus.broker.basics import Basics
from wanderbus.broker.readers import Link
from wanderbus.broker.sessions.handover_messages import (
    ASK_S,
    DORMANT_MAX,
    OthersAsked,
    SessionFound,
    SessionQuestion,
    SessionReported,
    SessionWanted,
)
from wanderbus.broker.sessions.presence import Presence
from wanderbus.broker.state.rows import SessionRow, session_key
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.errors import LimitExceeded, Refused
from wanderbus.machine import SetTimer

STOP_S_MAX: Final = 10.0
"""Time for the present instance to acknowledge what it has; the next one gets the rest marked as redelivered."""

JOIN_S_MAX: Final = 30.0
"""Time for the dormant instance to join."""

REASON: Final = "transferred"


class _Transfer:
    """A transfer that goes on."""

    def __init__(self, link: Link, request: protocol.TransferSession, leaving: list[str], until: float) -> None:
        self.asker = link, request
        self.server: str | None = None
        """Server at which the dormant instance waits, "" for this one; None as long as the others are asked."""
        self.waiting: set[str] = set()
        """Instances of the session that wait elsewhere."""
        self.leaving = leaving
        """Devices that are members until the dormant instance has joined."""
        self.links: set[int] = set()
        """Links of the session before the dormant instance was started."""
        self.stopped: set[str] = set()
        """Devices that had a link when the transfer began: they are no dormant instances."""
        self.until = until
        self.started: tuple[str, int] | None = None
        """Device and request that the start has answered; ("", 0) if another server has started the instance."""


class Transfers:
    """Knows the dormant instances, and transfers end points to them."""

    def __init__(self, basics: Basics, presence: Presence, subscriptions: Subscriptions) -> None:
        self._state = basics.state
        self._is_alone = basics.channels is None
        self._journal = basics.journal
        self._links = basics.links
        self._presence = presence
        self._subscriptions = subscriptions
        self._dormant: dict[str, dict[tuple[str, str], tuple[Link, protocol.AwaitTransfer]]] = {}
        """Dormant instances of each user, by session and name."""
        self._transfers: dict[str, _Transfer] = {}
        """By the key of the session."""
        self._former: dict[str, tuple[Link, str]] = {}
        """Former devices that are still connected, by their keys, each with its link and session."""

    def wait(self, link: Link, request: protocol.AwaitTransfer) -> None:
        """Register a dormant instance of the link's own user, until its link closes; the answer starts it."""
        if not protocol.SESSION_NAME.fullmatch(request.name):
            raise Refused("a dormant instance has a name of 1 to 64 letters, digits, dots, dashes or underscores")
        waiting = {each: found for each, found in self._of(link.user).items() if self._links.is_open(found[0])}
        place = request.session, request.name
        if place in waiting and waiting[place][0] is not link:
            raise Refused(f"another device waits as {request.name!r} already; give this one another name")
        if sum(other is link for other, _ in waiting.values()) >= DORMANT_MAX and place not in waiting:
            raise LimitExceeded(f"{DORMANT_MAX} dormant instances wait on this connection already", "dormant_max")
        waiting[place] = link, request
        self._dormant[link.user] = waiting
        key = session_key(link.user, request.session)
        transfer = self._transfers.get(key)
        if transfer is None or transfer.started is None or transfer.asker[1].to != request.name:
            return
        if transfer.started == (link.device, request.request):
            self._start(key, transfer)  # the answer was lost with its link
        else:
            self._fail(key, f"the instance {request.name!r} has ended without joining the session")

    def begin(self, link: Link, request: protocol.TransferSession) -> None:
        """Begin a transfer, or wait for the end of the one that was requested before; raise its refusal."""
        key = session_key(request.user, request.session)
        session = self._state.sessions.get(key)
        if session is None or session.is_fenced:
            owner = session.next_owner if session is not None else ""
            place = f"{owner} has it" if owner else "list the sessions of every server"
            raise Refused(f"{request.user} has no session {request.session!r} here; {place}")
        if (running := self._transfers.get(key)) is not None:
            if running.asker[1].to != request.to or self._links.is_open(running.asker[0]):
                raise Refused(f"the session {request.session!r} is on its way to {running.asker[1].to!r} already")
            running.asker = link, request
            return
        is_here = self._waiting(request.user, request.session, request.to) is not None
        if not is_here and self._is_alone:
            raise Refused(_absence(request, self._names(request.user, request.session)))
        if request.device is not None and request.device not in session.devices:
            raise Refused(f"the session {request.session!r} has no device {request.device!r}; list the sessions")
        leaving = list(session.devices) if request.device is None else [request.device]
        transfer = self._transfers[key] = _Transfer(link, request, leaving, self._links.now + ASK_S)
        if is_here:
            self._stop(key, transfer, "")
        else:
            self._journal.emit(OthersAsked(_question(request)))
            self._journal.emit(SetTimer(("transfer", key), transfer.until))

    def wanted(self, given: SessionWanted) -> None:
        """Tell another server whether a session is here, and which dormant instances of it wait; start one."""
        asked = given.question
        names = self._names(asked.user, asked.session)
        if asked.starts:
            self._start_here(asked.user, asked.session, asked.name)
        found = (asked.name,) if asked.name in names else tuple(names[:DORMANT_MAX])
        key = session_key(asked.user, asked.session)
        session = self._state.sessions.get(key)
        is_here = session is not None and not session.is_fenced and not session.is_empty
        self._journal.emit(SessionFound(given.server, asked, found, is_here or key in self._state.awaited))

    def reported(self, given: SessionReported) -> None:
        """Take the word of another server about the instance to which a session is to be transferred."""
        asked = given.question
        key = session_key(asked.user, asked.session)
        transfer = self._transfers.get(key)
        if transfer is None or transfer.asker[1].to != asked.name:
            return
        if transfer.server is None:
            transfer.waiting.update(given.names)
            if asked.name in given.names:
                self._stop(key, transfer, given.server)
        elif asked.starts and transfer.server == given.server and asked.name not in given.names:
            self._fail(key, f"the dormant instance {asked.name!r} has gone")

    def _stop(self, key: str, transfer: _Transfer, server: str) -> None:
        """Stop the readers of the present devices: the dormant instance waits at ``server``."""
        transfer.server, transfer.until = server, self._links.now + STOP_S_MAX
        transfer.stopped = {each.device for each in self._links.of_session(key)}
        for each in self._links.of_session(key):
            self.opened(each)
        self._journal.emit(SetTimer(("transfer", key), transfer.until))

    def opened(self, link: Link) -> None:
        """Stop the readers of a link whose session is about to be transferred: they get nothing more."""
        transfer = self._transfers.get(session_key(link.user, link.session or ""))
        if transfer is None or link.device not in transfer.leaving or link.device not in transfer.stopped:
            return
        for reader in link.readers():
            if not reader.is_stopped and (row := self._state.known(reader.subscription)) is not None:
                reader.is_stopped = True
                self._links.send(link, protocol.SubscriptionEnded(row.subscription, protocol.TRANSFERRED))

    def go_on(self) -> None:
        """Take the next step of each transfer for which that is possible now."""
        for key in list(self._transfers):
            self._go_on(key, self._transfers[key])
        for key, (link, session) in list(self._former.items()):
            if not self._links.is_open(link):
                del self._former[key]
                self._remove(link.user, session, link.device)

    def _go_on(self, key: str, transfer: _Transfer) -> None:
        session, is_late = self._state.sessions.get(key), self._links.now >= transfer.until
        if session is None or session.is_fenced:
            self._fail(key, "it is over, or has moved to another server")
        elif transfer.started is not None:
            if joined := self._joined(key, transfer):
                self._complete(session, transfer, joined)
            elif is_late:
                self._fail(key, f"the instance was started, and has not joined within {JOIN_S_MAX:g} s")
        elif transfer.server is None:
            if is_late:
                names = {*transfer.waiting, *self._names(session.user, session.name)}
                self._fail(key, _absence(transfer.asker[1], sorted(names)))
        elif is_late or not self._is_busy(key, transfer):
            self._start(key, transfer)

    def _is_busy(self, key: str, transfer: _Transfer) -> bool:
        """Return whether an application still has what it has not acknowledged."""
        links = [each for each in self._links.of_session(key) if each.device in transfer.leaving]
        return any(reader.unacknowledged is not None for each in links for reader in each.readers())

    def _start(self, key: str, transfer: _Transfer) -> None:
        _, asked = transfer.asker
        transfer.links = {each.link for each in self._links.of_session(key)}
        transfer.until = self._links.now + JOIN_S_MAX
        if transfer.server:
            transfer.started = "", 0
            self._journal.emit(OthersAsked(_question(asked, starts=True), transfer.server))
        elif (started := self._start_here(asked.user, asked.session, asked.to)) is None:
            self._fail(key, f"the dormant instance {asked.to!r} has gone")
            return
        else:
            transfer.started = started
        self._journal.emit(SetTimer(("transfer", key), transfer.until))

    def _joined(self, key: str, transfer: _Transfer) -> str | None:
        """Return the device that has joined since the start, unless it is one that was stopped."""
        for each in self._links.of_session(key):
            if each.link not in transfer.links and each.device not in transfer.stopped:
                return each.device
        return None

    def _complete(self, session: SessionRow, transfer: _Transfer, joined: str) -> None:
        del self._transfers[session.key]
        former = [each for each in transfer.leaving if each != joined and each in session.devices]
        self._subscriptions.hand_on(session, former, joined)
        for device in former:
            link = self._links.of_device(session.user, device)
            if link is None:
                self._remove(session.user, session.name, device)
            else:
                self._former[link.key] = link, session.name
        asked = transfer.asker[1]
        row = _row(asked.user, asked.session, asked.to)
        self._answer(transfer, protocol.Listing(asked.request, (row,)))

    def _remove(self, user: str, session: str, device: str) -> None:
        """End a former membership, unless the device has come back, or is in another session."""
        row = self._state.sessions.get(session_key(user, session))
        if row is not None and device in row.devices and self._links.of_device(user, device) is None:
            self._presence.left(user, session, device, REASON)

    def _fail(self, key: str, reason: str) -> None:
        transfer = self._transfers.pop(key)
        whole = f"the session is not transferred: {reason}; what waits is kept for the next device that reads it"
        request = transfer.asker[1].request
        self._answer(transfer, protocol.RequestRefused(request, protocol.shortened(whole)))

    def _answer(self, transfer: _Transfer, answer: protocol.BrokerMessage) -> None:
        if self._links.is_open(transfer.asker[0]):
            self._links.send(transfer.asker[0], answer)

    def _of(self, user: str) -> dict[tuple[str, str], tuple[Link, protocol.AwaitTransfer]]:
        return self._dormant.get(user, {})

    def _waiting(self, user: str, session: str, name: str) -> tuple[Link, protocol.AwaitTransfer] | None:
        """Return a dormant instance and its request, None unless it waits here."""
        found = self._of(user).get((session, name))
        return found if found is not None and self._links.is_open(found[0]) else None

    def _start_here(self, user: str, session: str, name: str) -> tuple[str, int] | None:
        """Start a dormant instance; return its device and request, None unless it waits here."""
        if (found := self._waiting(user, session, name)) is None:
            return None
        del self._dormant[user][session, name]
        link, request = found
        self._links.send(link, protocol.Listing(request.request, (_row(user, session, name),)))
        return link.device, request.request

    def _names(self, user: str, session: str) -> list[str]:
        """Return the dormant instances of a session that wait here."""
        waiting = self._of(user).items()
        return sorted(name for (each, name), (link, _) in waiting if each == session and self._links.is_open(link))


def _row(user: str, session: str, name: str) -> dict[str, str]:
    return {"user": user, "session": session, "name": name}


def _question(request: protocol.TransferSession, *, starts: bool = False) -> SessionQuestion:
    return SessionQuestion(request.user, request.session, request.to, starts)


def _absence(request: protocol.TransferSession, names: Sequence[str]) -> str:
    """Return that the requested instance does not wait, and which do."""
    shown = f"waiting: {', '.join(names)}" if names else "none waits; start 'wanderbus session dormant' there"
    return f"no dormant instance {request.to!r} waits for the session {request.session!r} ({shown})"
