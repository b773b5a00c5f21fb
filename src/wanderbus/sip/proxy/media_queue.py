"""Queue of the proxy for media relays: requests wait for their offer, responses for their answer (:mod:`.anchoring`).

A request waits before it is forwarded. A response waits in the queue of its transaction, and later responses wait
behind it, so that their order is kept.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from wanderbus.sip.message.message import Request
from wanderbus.sip.proxy.anchoring import Anchored, Describe, Described, Release, answer_of, described, offer_of
from wanderbus.sip.proxy.decisions import Passage
from wanderbus.sip.transaction.transaction_signals import Respond

RESPONSES_HELD_MAX: Final = 16
"""Largest number of responses to one request that wait. Above it a response is discarded: a 2xx is repeated anyway, and
a provisional response is not needed.
"""

_Command = TypeVar("_Command")


class _Held:
    """A queued response: ``respond`` as received, ``key`` of the awaited description, None if it may be sent."""

    __slots__ = ("key", "passed", "respond")

    def __init__(self, respond: Respond, passed: Respond, key: str | None) -> None:
        self.respond = respond
        self.passed = passed
        self.key = key


class MediaQueue:
    """The waiting requests and responses of one proxy, and the active calls."""

    def __init__(self) -> None:
        self._waiting: dict[str, Passage] = {}
        self._lines: dict[str, deque[_Held]] = {}
        self._under_way: Counter[tuple[str, str]] = Counter()
        """Number of requests by Call-ID and the tag of the offerer."""
        self._asked = 0

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._waiting)

    # Requests ---------------------------------------------------------------------------------------------------------

    def wait(self, passage: Passage, source_ip: str) -> Describe:
        """Queue a request with an offer until a relay has described it."""
        self._waiting[passage.transaction] = passage
        wish = offer_of(passage.received.request, passage.transaction, source_ip)
        self._under_way[wish.call_id, wish.from_tag] += 1
        return wish

    def take(self, transaction: str) -> Passage | None:
        """Remove and return the request that waits under ``transaction``; None if there is none."""
        return self._waiting.pop(transaction, None)

    def drop(self, request: Request) -> list[Release]:
        """Release an offer that is not forwarded; end the call if the offer began it."""
        return self.left(Anchored.of(request), 0)

    def left(self, offer: Anchored, refused_with: int | None) -> list[Release]:
        """Record the end of a request with an offer; ``refused_with`` is a status, None if it was not refused.

        A refused call is ended, unless another request of it is active: the caller may have moved and sent the INVITE
        again from there, or the offers of both sides have crossed. A challenged call is ended too, and offered again
        with credentials: a sender without credentials must not hold ports of a relay. The same applies to an unknown
        call, because anybody can write a To tag. An answered call is kept when an offer within it is refused.
        """
        caller = offer.call_id, offer.from_tag
        self._under_way[caller] -= 1
        if self._under_way[caller] > 0:
            return []
        del self._under_way[caller]
        if refused_with is None or not offer.from_tag or (offer.call_id, offer.to_tag) in self._under_way:
            return []
        return [Release(*caller, unless_answered=not offer.begins)]

    # Responses --------------------------------------------------------------------------------------------------------

    def hold(self, respond: Respond, source_ip: str) -> list[Describe]:
        """Queue a response with an answer until a relay has described it; a repeated response is queued once."""
        line = self._lines.setdefault(respond.transaction, deque())
        if len(line) >= RESPONSES_HELD_MAX or any(held.respond == respond for held in line):
            return []
        self._asked += 1
        key = f"{respond.transaction}/answer-{self._asked}"
        line.append(_Held(respond, respond, key))
        return [answer_of(respond.response, key, source_ip)]

    def in_turn(self, commands: Iterable[_Command]) -> list[_Command]:
        """Return ``commands`` without the responses that must wait for others of their transaction."""
        passed: list[_Command] = []
        for command in commands:
            line = self._lines.get(command.transaction) if isinstance(command, Respond) else None
            if line is None:
                passed.append(command)
                continue
            assert isinstance(command, Respond)
            if len(line) < RESPONSES_HELD_MAX or command.response.status >= 300:
                line.append(_Held(command, command, None))
        return passed

    def release(self, report: Described) -> list[Respond]:
        """Return the responses that can be sent now; one whose answer no relay described is sent unchanged."""
        transaction = report.key.partition("/")[0]
        line = self._lines.get(transaction, deque())
        for held in line:
            if held.key == report.key:
                held.key = None
                if report.sdp is not None:
                    changed = described(held.respond.response, report.sdp)
                    held.passed = msgspec.structs.replace(held.respond, response=changed)
        passed: list[Respond] = []
        while line and line[0].key is None:
            passed.append(line.popleft().passed)
        if not line:
            self._lines.pop(transaction, None)
        return passed
