"""What waits in the proxy for a media relay: requests for their offer, responses for their answer (:mod:`.anchoring`).

A request waits before it goes anywhere. A response waits in a line with all that is said to its transaction after it,
so that nothing is said out of turn.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from wanderbus.sip.message.message import Request
from wanderbus.sip.proxy.anchoring import Anchored, Describe, Described, Release, answer_of, described, offer_of
from wanderbus.sip.proxy.request_preparation import Arrived
from wanderbus.sip.proxy.target_selection import Targets
from wanderbus.sip.transaction.transaction_signals import RequestReceived, Respond

RESPONSES_HELD_MAX: Final = 16
"""Answers to one request that wait at a time; beyond, a 2xx is lost, which is repeated, or a word on the progress."""

_Command = TypeVar("_Command")


class Passage(msgspec.Struct, frozen=True):
    """A request on its way: as it was received, without what its routes said to us, and where it goes.

    ``sender`` is the user of our domain who proved to have sent it; "" unless it goes to another domain.
    """

    received: RequestReceived
    came: Arrived
    targets: Targets
    sender: str = ""

    @property
    def transaction(self) -> str:
        """The server transaction that it came in."""
        return self.received.transaction


class _Held(msgspec.Struct):
    """A response in its line: ``said`` as it came, ``key`` of what is awaited, None when it may go."""

    said: Respond
    passed: Respond
    key: str | None


class MediaDesk:
    """The waiting requests and responses of one proxy, and which calls are under way."""

    def __init__(self) -> None:
        self._waiting: dict[str, Passage] = {}
        self._lines: dict[str, deque[_Held]] = {}
        self._under_way: Counter[tuple[str, str]] = Counter()
        """By Call-ID and the tag of who offers."""
        self._asked = 0

    def __len__(self) -> int:
        """Return how many requests wait."""
        return len(self._waiting)

    # Requests ---------------------------------------------------------------------------------------------------------

    def wait(self, passage: Passage, source_ip: str) -> Describe:
        """Keep a request with an offer until a relay has described that."""
        self._waiting[passage.transaction] = passage
        wish = offer_of(passage.received.request, passage.transaction, source_ip)
        self._under_way[wish.call_id, wish.from_tag] += 1
        return wish

    def take(self, transaction: str) -> Passage | None:
        """Return the request that waits under ``transaction``, which waits no more; None if there is none."""
        return self._waiting.pop(transaction, None)

    def drop(self, request: Request) -> list[Release]:
        """Give up an offer that goes no further; end the call that it would have begun."""
        return self.left(Anchored.of(request), 0)

    def left(self, offer: Anchored, refused_with: int | None) -> list[Release]:
        """Note that a request with an offer has come to its end: ``refused_with`` a status, None if it has not been.

        A call that was refused is ended, unless another request of it is under way: the caller may have moved, and
        asked again from there. One that was challenged is ended too, and offered anew when it comes with credentials:
        who has none shall keep no ports of a relay. Nor shall who names a call that there is not, as anybody may write
        a To tag; a call that was answered stays when an offer within it is refused.
        """
        caller = offer.call_id, offer.from_tag
        self._under_way[caller] -= 1
        if self._under_way[caller] > 0:
            return []
        del self._under_way[caller]
        if refused_with is None or not offer.from_tag:
            return []
        return [Release(*caller, unless_answered=not offer.begins)]

    # Responses --------------------------------------------------------------------------------------------------------

    def hold(self, respond: Respond, source_ip: str) -> list[Describe]:
        """Keep a response with an answer until a relay has described that; one that is kept already is no other."""
        line = self._lines.setdefault(respond.transaction, deque())
        if len(line) >= RESPONSES_HELD_MAX or any(held.said == respond for held in line):
            return []
        self._asked += 1
        key = f"{respond.transaction}/answer-{self._asked}"
        line.append(_Held(respond, respond, key))
        return [answer_of(respond.response, key, source_ip)]

    def in_turn(self, commands: Iterable[_Command]) -> list[_Command]:
        """Return ``commands`` without the responses that have to wait for others of their transaction."""
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
        """Return the responses that can go now; one whose answer no relay described goes as it came."""
        transaction = report.key.partition("/")[0]
        line = self._lines.get(transaction, deque())
        for held in line:
            if held.key == report.key:
                held.key = None
                if report.sdp is not None:
                    changed = described(held.said.response, report.sdp)
                    held.passed = msgspec.structs.replace(held.said, response=changed)
        passed: list[Respond] = []
        while line and line[0].key is None:
            passed.append(line.popleft().passed)
        if not line:
            self._lines.pop(transaction, None)
        return passed
