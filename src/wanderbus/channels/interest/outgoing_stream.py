"""Sender of a stream of interest to several servers, each of which may get a part of it (SPEC J-10, K-05, K-07).

A change has one version for all servers; a server to which it does not apply gets no message, and the next message
names the version that it follows there. What is not confirmed is repeated until the link fails; a new link begins with
the sender's position, and a receiver that is not there asks for the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.channels.interest.messages import (
    FromReceiver,
    FromSender,
    InterestChanged,
    InterestConfirmed,
    InterestPosition,
    InterestRefused,
    InterestRequested,
    InterestWhole,
    Message,
    NumberedFilter,
    Stream,
)
from wanderbus.machine import Output

RETRY_S: Final = 1.0
"""Time after which unconfirmed messages are repeated for the first time; it doubles up to :data:`RETRY_S_MAX`."""

RETRY_S_MAX: Final = 30.0

PENDING_MAX: Final = 32
"""Number of unconfirmed changes of one server from which the whole is sent in their place."""

Selects = Callable[[str, Interest], bool]
"""Function: whether a server is to have an interest."""


class SendToServer(Output, frozen=True):
    """Send ``message`` to the server of this name."""

    server: str
    message: Message


class Fenced(Output, frozen=True):
    """A later ``incarnation`` of this sender is known to a receiver: this one must stop."""

    stream: Stream
    incarnation: int


class OutgoingStream:
    """One stream, and what each server has of it.

    ``incarnation`` must be higher than that of every earlier sender of the stream.
    """

    def __init__(self, stream: Stream, incarnation: int, selects: Selects = lambda server, interest: True) -> None:
        self.stream = stream
        self.incarnation = incarnation
        self.version = 0
        self.is_fenced = False
        self._selects = selects
        self._numbers: dict[Interest, int] = {}
        self._last_number = 0
        self._links: dict[str, _Link] = {}

    def change(self, change: InterestChange, now: float) -> list[Output]:
        """Apply ``change`` as the next version; nothing is sent to a server to which nothing changes."""
        if not change:
            return []
        self.version += 1
        gone = [(each, self._numbers.pop(each)) for each in change.removed]
        for each in change.added:
            self._last_number += 1
            self._numbers[each] = self._last_number
        outputs: list[Output] = []
        for server, link in self._links.items():
            added = [each for each in change.added if self._selects(server, each)]
            outputs += self._change(server, link, added, [number for _, number in gone if number in link.sent], now)
        return outputs

    def select_again(self, server: str, now: float) -> list[Output]:
        """Send ``server`` how its part has changed, because it is selected differently now."""
        link = self._links.get(server)
        if link is None:
            return []
        wanted = {number: each for each, number in self._numbers.items() if self._selects(server, each)}
        added = [each for number, each in wanted.items() if number not in link.sent]
        removed = [number for number in link.sent if number not in wanted]
        if added or removed:
            self.version += 1
        return self._change(server, link, added, removed, now)

    def expect(self, server: str) -> None:
        """Let ``server`` count as alive: nothing is effective before it has confirmed."""
        link = self._links.get(server)
        if link is None:
            link = self._links[server] = _Link()
        if not link.is_alive:
            link.is_alive = True
            link.unconfirmed_from = 0

    def link_up(self, server: str, now: float) -> list[Output]:
        """Begin with ``server`` on a new link; what it confirmed on another one no longer counts."""
        self.expect(server)
        link = self._links[server]
        sent = {number for each, number in self._numbers.items() if self._selects(server, each)}
        if sent != link.sent:
            self.version += 1
            link.sent, link.last = sent, self.version
        link.is_up = True
        link.unconfirmed_from = 0
        link.pending = {link.last: InterestPosition(self.stream, self.incarnation, link.last)}
        return self._send(server, link, now)

    def link_down(self, server: str, *, is_dead: bool) -> None:
        """Stop sending to ``server``; its part is kept up to date.

        Unless it ``is_dead``, it still counts as alive. A dead server must not use its table before a new link is up.
        """
        link = self._links.get(server)
        if link is not None:
            link.is_up = False
            link.is_alive = link.is_alive and not is_dead
            link.pending = {}

    def forget(self, server: str) -> None:
        """Forget a server that has left the domain."""
        self._links.pop(server, None)

    def receive(self, server: str, message: FromReceiver, now: float) -> list[Output]:
        """Take a message of the receiver at ``server``."""
        link = self._links.get(server)
        if link is None or not link.is_up:
            return []
        match message:
            case InterestRefused(incarnation=incarnation) if incarnation > self.incarnation:
                self.is_fenced = True
                return [Fenced(self.stream, incarnation)]
            case InterestConfirmed(incarnation=self.incarnation, version=version):
                link.confirm(version)
            case InterestRequested():
                return self._send_whole(server, link, now)
            case _:
                pass
        return []

    def repeat(self, now: float) -> list[Output]:
        """Repeat what has not been confirmed in time."""
        outputs: list[Output] = []
        for server, link in self._links.items():
            if link.pending and now >= link.repeat_at:
                retry_s = min(2 * link.retry_s, RETRY_S_MAX)
                outputs += self._send(server, link, now)
                link.retry_s, link.repeat_at = retry_s, now + retry_s
        return outputs

    def repeat_at(self) -> float | None:
        """Return when :meth:`repeat` is due; None if everything is confirmed."""
        return min((link.repeat_at for link in self._links.values() if link.pending), default=None)

    def is_effective(self, version: int) -> bool:
        """Return whether every server that is alive has confirmed all changes up to ``version``."""
        return all(link.has_confirmed(version) for link in self._links.values() if link.is_alive)

    def is_effective_at(self, server: str, version: int) -> bool:
        """Return whether ``server`` has confirmed all changes up to ``version``, or gets nothing of this stream."""
        link = self._links.get(server)
        return link is None or link.has_confirmed(version)

    def _change(self, server: str, link: _Link, added: list[Interest], removed: list[int], now: float) -> list[Output]:
        if not added and not removed:
            return []
        previous, link.last = link.last, self.version
        link.sent.difference_update(removed)
        link.sent.update(self._numbers[each] for each in added)
        if link.unconfirmed_from is None:
            link.unconfirmed_from = self.version
        if not link.is_up:
            return []
        if len(link.pending) >= PENDING_MAX:
            return self._send_whole(server, link, now)
        filters = tuple([NumberedFilter.of(self._numbers[each], each) for each in added])
        message = InterestChanged(self.stream, self.incarnation, self.version, previous, filters, tuple(removed))
        if not link.pending:
            link.retry_s, link.repeat_at = RETRY_S, now + RETRY_S
        link.pending[self.version] = message
        return [SendToServer(server, message)]

    def _send_whole(self, server: str, link: _Link, now: float) -> list[Output]:
        filters = [NumberedFilter.of(number, each) for each, number in self._numbers.items() if number in link.sent]
        if link.unconfirmed_from is None:
            link.unconfirmed_from = 0
        link.pending = {link.last: InterestWhole(self.stream, self.incarnation, link.last, tuple(filters))}
        return self._send(server, link, now)

    def _send(self, server: str, link: _Link, now: float) -> list[Output]:
        link.retry_s, link.repeat_at = RETRY_S, now + RETRY_S
        return [SendToServer(server, message) for message in link.pending.values()]


class _Link:
    """Part of the stream that one server has."""

    __slots__ = ("is_alive", "is_up", "last", "pending", "repeat_at", "retry_s", "sent", "unconfirmed_from")

    def __init__(self) -> None:
        self.is_alive = False
        self.is_up = False
        self.sent: set[int] = set()
        """Numbers of the interests of its part."""
        self.last = 0
        """Version of the last change of its part."""
        self.pending: dict[int, FromSender] = {}
        """Unconfirmed messages by version, in order; the whole stands for all versions before it."""
        self.unconfirmed_from: int | None = None
        """Lowest version that is not confirmed; None if all are."""
        self.retry_s = RETRY_S
        self.repeat_at = 0.0

    def has_confirmed(self, version: int) -> bool:
        """Return whether all changes up to ``version`` are confirmed."""
        return self.unconfirmed_from is None or version < self.unconfirmed_from

    def confirm(self, version: int) -> None:
        """Forget what is confirmed."""
        confirmed = [each for each in self.pending if each <= version]
        for each in confirmed:
            del self.pending[each]
        if confirmed:
            self.unconfirmed_from = next(iter(self.pending), None)
            self.retry_s = RETRY_S
