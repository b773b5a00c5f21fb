"""Ends of this log for sessions that move to another domain (SPEC L-05; decision 0165).

Before a session leaves for another domain, each server that sends its events to both is asked for the end of its log.
It answers once every later event goes to the next owner's domain, which therefore wants it here, and once every earlier
one is in the domain that the session leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wanderbus.broker.basics import Basics
from wanderbus.broker.publish.leaving_publishers import LeavingPublishers
from wanderbus.broker.servers.server_users import domain_user
from wanderbus.broker.sessions.handover_messages import Head, HeadFound, HeadWanted
from wanderbus.broker.state.rows import SessionRow
from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.messages import NumberedFilter
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import EventId
from wanderbus.filters.covering import covers
from wanderbus.filters.normal import NormalForm
from wanderbus.work import WorkBudget, WorkExceeded

WORK_MAX: Final = 200_000
"""Units of work of one comparison of filters."""

WAITING_MAX: Final = 1_024
"""Questions that wait at most; the oldest gets no answer, and its session stays."""


class _Waiting:
    """A question: for what a domain has to want still, and what another one has to acknowledge still."""

    def __init__(self, given: HeadWanted) -> None:
        self.given = given
        self.lacking: list[NumberedFilter] = list(given.wanted)
        self.looked_at: tuple[str, ...] | None = None
        """Filters of the domain that were compared last."""
        self.end: EventId | None = None
        self.mark = 0


class FarHeads:
    """Waits until the end of the log can be given.

    :param has_matched: returns whether the matching engine has all events below a number
    :param head: answers a question of a server of the own domain
    :param leaving: lets what a session publishes wait
    """

    def __init__(
        self,
        basics: Basics,
        has_matched: Callable[[int], bool],
        head: Callable[[HeadWanted], None],
        leaving: LeavingPublishers,
    ) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._domain = basics.config.domain
        self._has_matched = has_matched
        self._head = head
        self._leaving = leaving
        self._waiting: dict[tuple[str, int], _Waiting] = {}

    def add(self, given: HeadWanted) -> None:
        """Take a question; one that is repeated begins again."""
        if given.pauses is not None:
            self._leaving.pause(given.user, given.pauses)
        self._waiting.pop((given.server, given.request), None)
        self._waiting[given.server, given.request] = _Waiting(given)
        if len(self._waiting) > WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]

    def go_on(self) -> None:
        """Answer what can be answered now."""
        for key, waiting in list(self._waiting.items()):
            if self._is_answered(waiting):
                del self._waiting[key]

    def _is_answered(self, waiting: _Waiting) -> bool:
        given, state = waiting.given, self._state
        if waiting.end is None:
            is_paused = given.pauses is None or self._leaving.is_quiet(given.user, given.pauses)
            if not is_paused or not self._is_wanted(waiting):
                return False
            if not given.taken_by:
                self._head(HeadWanted(given.server, given.request, user=given.user, devices=given.devices))
                return True
            waiting.end = state.next_id
        if not self._has_matched(waiting.end.number):
            return False
        session = self._session(given.taken_by)
        if not waiting.mark:
            waiting.mark = 1 if session is None else session.next
        if session is not None and self._waits_below(session, waiting.mark):
            return False
        self._journal.emit(HeadFound(given.server, given.request, Head(waiting.end)))
        return True

    def _session(self, domain: str) -> SessionRow | None:
        """Return the session of a foreign domain; its gateways read one after the other."""
        found = [each for each in self._state.sessions_of(domain_user(domain, self._domain)) if each.subscriptions]
        return found[0] if found else None

    def _waits_below(self, session: SessionRow, number: int) -> bool:
        """Return whether something waits in a session below a number."""
        queue = self._state.queue.get(session.key) if session.waiting else None
        return queue is not None and next(iter(queue)).number < number

    def _is_wanted(self, waiting: _Waiting) -> bool:
        """Return whether a domain wants all that it is to want here."""
        if not waiting.lacking:
            return True
        session = self._session(waiting.given.wanted_by)
        present = () if session is None else tuple(session.subscriptions)
        if present == waiting.looked_at:
            return False
        waiting.looked_at = present
        forms = self._forms(present)
        waiting.lacking = [each for each in waiting.lacking if not _is_covered(each, forms.get(each.subject or "", []))]
        return not waiting.lacking

    def _forms(self, identities: Sequence[str]) -> dict[str, list[NormalForm]]:
        found: dict[str, list[NormalForm]] = {}
        for identity in identities:
            wanted = self._state.subscriptions[identity].subscription
            try:
                form = NumberedFilter(0, wanted.subject, wanted.expression).form()
            except RemoteProtocolError:
                continue
            found.setdefault(wanted.subject, []).append(form)
        return found


def _is_covered(wanted: NumberedFilter, forms: Sequence[NormalForm]) -> bool:
    """Return whether each part of a filter is within one of a domain's."""
    one = tuple(conjunction for form in forms for conjunction in form)
    try:
        form, work = wanted.form(), WorkBudget(WORK_MAX)
        return all(
            any(Interest(wanted.subject, each).covers(Interest(wanted.subject, conjunction), work) for each in one)
            for conjunction in form
        ) or covers(one, form, work)
    except (RemoteProtocolError, WorkExceeded):
        return False
