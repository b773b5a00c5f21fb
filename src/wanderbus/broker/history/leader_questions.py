"""Questions of this server about channels that other servers lead, by number (SPEC K-03, T-05).

They are not kept: while a leader cannot be reached, or if the link fails, a question is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

import msgspec

from wanderbus import protocol
from wanderbus.broker.messages import AskLeader, LeaderAnswered
from wanderbus.broker.state.journal import Journal

Question: TypeAlias = protocol.ListEvents | protocol.MoveGroup
Answer: TypeAlias = protocol.Listing | protocol.RequestRefused


class LeaderQuestions:
    """Questions that wait for an answer; each gets one, which may have several parts."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._last = 0
        self._waiting: dict[int, Callable[[Answer], None]] = {}

    @property
    def waiting(self) -> Collection[object]:
        """Return the numbers of the questions without an answer."""
        return list(self._waiting)

    def ask(self, leader: str, request: Question, answered: Callable[[Answer], None]) -> None:
        """Ask ``leader``; ``answered`` is called with each part of the answer, the last of which has no ``more``."""
        self._last += 1
        self._waiting[self._last] = answered
        self._journal.emit_now(AskLeader(leader, msgspec.structs.replace(request, request=self._last)))

    def answered(self, given: LeaderAnswered) -> None:
        """Pass an answer on, or a part of it; one that nobody waits for is ignored."""
        answer = given.answer
        if (answered := self._waiting.get(answer.request)) is None:
            return
        if is_last(answer):
            del self._waiting[answer.request]
        answered(answer)


def is_last(answer: Answer) -> bool:
    """Return whether no part of the answer follows."""
    return not (isinstance(answer, protocol.Listing) and answer.more)
