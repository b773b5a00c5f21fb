"""Pacing of subscription requests: a user who sends expressions too fast has to wait.

Parsing and indexing an expression takes the server about a microsecond for each character. Requests of one link keep
their order; a request without an expression waits only behind others of its link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wanderbus import protocol
from wanderbus.broker.basics import Basics
from wanderbus.broker.readers import Link
from wanderbus.broker.servers.interest_requests import subscription_of
from wanderbus.broker.servers.leader_messages import InterestMerged
from wanderbus.broker.subscribe_pace import SubscribePace
from wanderbus.machine import SetTimer
from wanderbus.parameters.broker import setting_of

AT_ONCE_S: Final = 2.0
"""Burst in seconds: the characters of this time are read without a pause."""

WAITING_CHARACTERS_MAX: Final = 2**20
"""Characters of all waiting requests of one user; a request beyond it is refused."""

_DOUBLE_CHARACTERS: Final = 1_024
"""Length at which an expression counts twice; one of *n* times this length counts *n* + 1 times. All other users wait
while an expression is read, so a few long expressions delay them more than many short ones."""

_WORK_A_CHARACTER: Final = 100
"""Units of work of merging a filter that count as one character."""

_LIMIT: Final = "user_filter_characters_per_s"
_REQUEST_CHARACTERS: Final = 64
"""Characters that a request counts in addition to its expression."""

Answer = Callable[[Link, protocol.PacedRequest], None]


class SubscribePacing:
    """Queues requests, and answers them in order at the pace of each user."""

    def __init__(self, basics: Basics, answer: Answer) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._per_s = basics.config.user_filter_characters_per_s
        self._answer = answer
        self._paces: dict[str, SubscribePace] = {}

    def take(self, link: Link, request: protocol.PacedRequest) -> None:
        """Answer a request now, or later if its user is too fast; a server of the domain never waits."""
        if link.is_server:
            self._answer(link, request)
            return
        characters = self._characters(request)
        now = self._links.now
        pace = self._paces.get(link.user)
        if pace is None or (not pace.waiting and pace.paid_at <= now):
            pace = self._paces[link.user] = SubscribePace(now)
        is_early = bool(characters) and (bool(pace.waiting) or pace.paid_at > now + AT_ONCE_S)
        if not is_early and all(each != link.link for each, _, _ in pace.waiting):
            self._serve(pace, link, request, characters)
            return
        if pace.characters + characters > WAITING_CHARACTERS_MAX:
            reason = f"{link.user} sends expressions faster than {self._per_s:g} characters a second; try again later"
            self._links.send(link, protocol.RequestRefused(request.request, reason, limit=_LIMIT))
            return
        if not pace.waiting:
            self._journal.emit(SetTimer(("submissions", link.user), pace.paid_at - AT_ONCE_S))
        self._journal.tally.note(setting_of(_LIMIT), link.user, "a subscription waits")
        pace.waiting.append((link.link, request, characters))
        pace.characters += characters

    def go_on(self, user: str) -> None:
        """Answer the waiting requests of ``user`` that are due."""
        pace = self._paces.get(user)
        if pace is None:
            return
        while pace.waiting and pace.paid_at <= self._links.now + AT_ONCE_S:
            identity, request, characters = pace.waiting.popleft()
            pace.characters -= characters
            if link := self._links.get(identity):
                self._serve(pace, link, request, characters)
        if pace.waiting:
            self._journal.emit(SetTimer(("submissions", user), pace.paid_at - AT_ONCE_S))

    def pay(self, given: InterestMerged) -> None:
        """Charge the user of a subscription with the work of merging that is known after its request."""
        if (row := self._state.known(subscription_of(given.name))) is None:
            return
        pace = self._paces.setdefault(row.subscription.owner, SubscribePace(self._links.now))
        pace.paid_at = max(pace.paid_at, self._links.now) + given.units / _WORK_A_CHARACTER / self._per_s

    def _characters(self, request: protocol.PacedRequest) -> int:
        """Return how many characters of a request have to be parsed, 0 if its expression was parsed earlier."""
        match request:
            case protocol.Subscribe(expression=expression) | protocol.Advertise(expression=expression):
                return len(expression) + _REQUEST_CHARACTERS
            case protocol.ImportSession(subscription=subscription) if subscription is not None:
                return len(subscription.expression) + _REQUEST_CHARACTERS
            case protocol.Renew(subscription=identity) if row := self._state.tombstones.get(identity):
                return len(row.subscription.expression) + _REQUEST_CHARACTERS
        return 0

    def _serve(self, pace: SubscribePace, link: Link, request: protocol.PacedRequest, characters: int) -> None:
        before = self._journal.merging
        self._answer(link, request)
        counted = characters * (1 + characters / _DOUBLE_CHARACTERS)
        counted += (self._journal.merging - before) / _WORK_A_CHARACTER
        pace.paid_at = max(pace.paid_at, self._links.now) + counted / self._per_s
