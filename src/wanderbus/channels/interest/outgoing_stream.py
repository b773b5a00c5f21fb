"""Sender of a stream of interest to several servers, each of which may get a part of it (SPEC J-10, K-05, K-07).

A change has one version for all servers; a server to which it does not apply gets no message, and the next message
names the version that it follows there. What is not confirmed is repeated until the link fails; a new link begins with
the sender's position, and a receiver that is not there asks for the whole.

With multicast, a change for several servers is one datagram. It is repaired on the links, and while something is
unconfirmed there, the link carries what follows: a datagram would overtake it (:mod:`~.multicast`).
"""

from __future__ import annotations

import math
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
from wanderbus.channels.interest.multicast import CONFIRM_S, Multicast, SendToMany
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

    ``incarnation`` must be higher than that of every earlier sender of the stream. Without ``multicast`` links carry
    everything.
    """

    def __init__(
        self,
        stream: Stream,
        incarnation: int,
        selects: Selects = lambda server, interest: True,
        multicast: Multicast | None = None,
    ) -> None:
        self.stream = stream
        self.incarnation = incarnation
        self.version = 0
        self.is_fenced = False
        self._selects = selects
        self._multicast = multicast
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
        return outputs if self._multicast is None else self._to_many(self._multicast, outputs, now)

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
        position = InterestPosition(self.stream, self.incarnation, link.last, link.confirmed)
        link.replace_pending({link.last: position})
        return self._send(server, link, now)

    def link_down(self, server: str, *, is_dead: bool) -> None:
        """Stop sending to ``server``; its part is kept up to date.

        Unless it ``is_dead``, it still counts as alive. A dead server must not use its table before a new link is up.
        """
        link = self._links.get(server)
        if link is not None:
            link.is_up = False
            link.is_alive = link.is_alive and not is_dead
            link.replace_pending({})

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
            case InterestConfirmed(incarnation=self.incarnation):
                return self._confirm(server, link, message, now)
            case InterestRequested():
                return self._send_whole(server, link, now)
            case _:
                pass
        return []

    def repeat(self, now: float) -> list[Output]:
        """Repeat what has not been confirmed in time."""
        outputs: list[Output] = []
        for server, link in self._links.items():
            if any(now >= at for at in link.due.values()):
                outputs += self._repair(server, link, now)
            elif link.is_link_used and now >= link.repeat_at:
                retry_s = min(2 * link.retry_s, RETRY_S_MAX)
                outputs += self._send(server, link, now)
                link.retry_s, link.repeat_at = retry_s, now + retry_s
        return outputs

    def repeat_at(self) -> float | None:
        """Return when :meth:`repeat` is due; None if everything is confirmed."""
        return min((at for link in self._links.values() for at in link.times()), default=None)

    @property
    def effective(self) -> float:
        """Version up to which every server that is alive has confirmed all changes; infinite if nothing is missing."""
        return min((link.effective for link in self._links.values() if link.is_alive), default=math.inf)

    def effective_at(self, server: str) -> float:
        """Return the version up to which ``server`` has confirmed all; infinite if it gets nothing of this stream."""
        link = self._links.get(server)
        return math.inf if link is None else link.effective

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
        if not link.is_link_used:
            link.retry_s, link.repeat_at = RETRY_S, now + RETRY_S
        link.pending[self.version] = message
        return [SendToServer(server, message)]

    def _send_whole(self, server: str, link: _Link, now: float) -> list[Output]:
        filters = [NumberedFilter.of(number, each) for each, number in self._numbers.items() if number in link.sent]
        if link.unconfirmed_from is None:
            link.unconfirmed_from = 0
        link.replace_pending({link.last: InterestWhole(self.stream, self.incarnation, link.last, tuple(filters))})
        return self._send(server, link, now)

    def _send(self, server: str, link: _Link, now: float) -> list[Output]:
        """Send everything unconfirmed on the link, except what multicast may still bring."""
        link.retry_s, link.repeat_at = RETRY_S, now + RETRY_S
        return [SendToServer(server, message) for version, message in link.pending.items() if version not in link.due]

    # Multicast ------------------------------------------------------------------------------------------------------

    def _to_many(self, multicast: Multicast, outputs: list[Output], now: float) -> list[Output]:
        """Put messages that differ only in the version before into one datagram."""

        def may_share(server: str) -> bool:
            return self._links[server].is_only_unconfirmed(self.version) and multicast.may_reach(server, now)

        rest: list[Output] = []
        alike: dict[tuple[object, object], dict[str, InterestChanged]] = {}
        for each in outputs:
            match each:
                case SendToServer(server=server, message=InterestChanged() as change) if may_share(server):
                    alike.setdefault((change.added, change.removed), {})[server] = change
                case _:
                    rest.append(each)
        for changes in alike.values():
            payload = multicast.datagram(changes) if len(changes) > 1 else None
            if payload is None:
                rest += [SendToServer(server, change) for server, change in changes.items()]
                continue
            rest.append(SendToMany(payload))
            multicast.sent(changes)
            for server in changes:
                self._links[server].due[self.version] = now + CONFIRM_S
        return rest

    def _repair(self, server: str, link: _Link, now: float) -> list[Output]:
        """Send on the link all that multicast may not have brought; behind a lost datagram others were in vain, too."""
        assert self._multicast is not None, "nothing is due without multicast"
        late, link.due = link.due, {}
        self._multicast.repaired(server, len(late))
        if len(link.pending) == len(late):
            link.retry_s, link.repeat_at = RETRY_S, now + RETRY_S
        if link.repaired_from is None:
            link.repaired_from = next(iter(late))
        return [SendToServer(server, link.pending[version]) for version in late]

    def _confirm(self, server: str, link: _Link, confirmed: InterestConfirmed, now: float) -> list[Output]:
        is_repair = link.repaired_from is not None and link.repaired_from <= confirmed.version
        link.confirm(confirmed.version)
        link.confirmed = max(link.confirmed, confirmed.version)
        if self._multicast is not None and confirmed.is_multicast:
            self._multicast.reached(server)
        elif self._multicast is not None and is_repair:
            return self._multicast.missed(server, now)
        return []


class _Link:
    """Part of the stream that one server has."""

    __slots__ = (
        "confirmed",
        "due",
        "is_alive",
        "is_up",
        "last",
        "pending",
        "repaired_from",
        "repeat_at",
        "retry_s",
        "sent",
        "unconfirmed_from",
    )

    def __init__(self) -> None:
        self.is_alive = False
        self.is_up = False
        self.sent: set[int] = set()
        """Numbers of the interests of its part."""
        self.last = 0
        """Version of the last change of its part."""
        self.confirmed = 0
        """Highest version that the server has confirmed on any link."""
        self.pending: dict[int, FromSender] = {}
        """Unconfirmed messages by version, in order; the whole stands for all versions before it."""
        self.due: dict[int, float] = {}
        """Time when each of them that only multicast has carried is sent on the link, by version."""
        self.repaired_from: int | None = None
        """Lowest unconfirmed version that the link has repaired; None if there is none."""
        self.unconfirmed_from: int | None = None
        """Lowest version that is not confirmed; None if all are."""
        self.retry_s = RETRY_S
        self.repeat_at = 0.0

    @property
    def effective(self) -> float:
        """Version up to which all is confirmed."""
        return math.inf if self.unconfirmed_from is None else self.unconfirmed_from - 1

    @property
    def is_link_used(self) -> bool:
        """Return whether the link carries something unconfirmed."""
        return len(self.pending) > len(self.due)

    def is_only_unconfirmed(self, version: int) -> bool:
        """Return whether nothing but ``version`` is unconfirmed, apart from what multicast has carried."""
        return version in self.pending and len(self.pending) == len(self.due) + 1

    def times(self) -> list[float]:
        """Return when something is to be sent again."""
        return [*self.due.values()][:1] + [self.repeat_at] * self.is_link_used

    def replace_pending(self, messages: dict[int, FromSender]) -> None:
        """Put ``messages`` in place of everything unconfirmed."""
        self.pending = messages
        self.due, self.repaired_from = {}, None

    def confirm(self, version: int) -> None:
        """Forget what is confirmed."""
        confirmed = [each for each in self.pending if each <= version]
        for each in confirmed:
            del self.pending[each]
            self.due.pop(each, None)
        if self.repaired_from is not None and self.repaired_from <= version:
            self.repaired_from = None
        if confirmed:
            self.unconfirmed_from = next(iter(self.pending), None)
            self.retry_s = RETRY_S
