"""Pieces of the past of a channel, read in the log of the server that leads it (SPEC T-05, K-03).

The leader answers as it does for histories of channels. Its number of an event is the offset in its log. The end of an
answer is the end of what is durable there, unless the answer says that more follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.history.leader_questions import Answer, LeaderQuestions, is_last
from wanderbus.broker.history.page_rows import PageRow, Rows
from wanderbus.broker.messages import HistoryRead, HistoryWanted, OffsetFound, PastEvent
from wanderbus.epochs import Leadership
from wanderbus.subscription import Since

RETRY_S: Final = 1.0
"""Pause until a leader that could not answer is asked again."""


class LeaderPieces:
    """Reads in the logs of leaders.

    :param give: takes the answers, as inputs of the broker
    """

    def __init__(self, questions: LeaderQuestions, give: Callable[[HistoryRead | OffsetFound], None]) -> None:
        self._questions = questions
        self._give = give

    def look_up(self, lookup: int, led: Leadership, subject: str, since: Since) -> None:
        """Find the first number of a subscription that begins at ``since``; :class:`OffsetFound` answers it."""

        def found(rows: Rows, is_at_end: bool) -> None:
            head, log = rows[0], (led.server, rows[0].incarnation)
            self._give(OffsetFound(lookup, head.end, log=log, leader_epoch=head.led_under or led.epoch))

        def refused(reason: str) -> None:
            self._give(OffsetFound(lookup, None, reason))

        self._ask(led.server, protocol.ListEvents(0, subject, since=since, epoch=led.epoch), found, refused)

    def read(self, wanted: HistoryWanted) -> None:
        """Read a piece, whose end the leader determines; :class:`HistoryRead` answers it."""
        subscription = wanted.subscription

        def found(rows: Rows, is_at_end: bool) -> None:
            self._give(_piece(wanted, rows, is_at_end=is_at_end))

        def refused(reason: str) -> None:
            self._give(HistoryRead(wanted.piece, wanted.first, failed=reason, retry_s=RETRY_S))

        request = protocol.ListEvents(
            0,
            subscription.subject,
            wanted.first,
            limit=wanted.events_max,
            expression=subscription.expression,
            language=subscription.language,
            epoch=wanted.leader_epoch,
        )
        self._ask(wanted.server, request, found, refused)

    def _ask(
        self,
        leader: str,
        request: protocol.ListEvents,
        found: Callable[[Rows, bool], None],
        refused: Callable[[str], None],
    ) -> None:
        """Ask ``leader``, and call ``found`` with all rows of its answer, the first of which names the log."""
        listed: list[Any] = []

        def answered(answer: Answer) -> None:
            if isinstance(answer, protocol.RequestRefused):
                refused(answer.reason)
                return
            listed.extend(answer.rows)
            if not is_last(answer):
                return
            try:
                rows = msgspec.convert(listed, list[PageRow])
            except msgspec.ValidationError as error:
                refused(f"{leader} sent no events: {error}")
                return
            if rows and rows[0].incarnation:
                found(rows, answer.next is None)
            else:
                refused(f"{leader} does not read for subscriptions of other servers; it may have an older version")

        self._questions.ask(leader, request, answered)


def _piece(wanted: HistoryWanted, rows: Rows, *, is_at_end: bool) -> HistoryRead:
    """Return the piece that a leader has sent, or why there will never be one."""
    head, leader = rows[0], wanted.server
    failed = head.failed
    if not failed and wanted.incarnation not in (0, head.incarnation):
        failed = f"{leader} has begun a new log, without the earlier events"
    kept_from = max(each.kept_from for each in rows)
    if kept_from > wanted.first:
        failed = failed or f"{leader} keeps no record below {kept_from} any more; {wanted.first} was next"
    if failed:
        return HistoryRead(wanted.piece, wanted.first, failed=failed, kept_from=kept_from, incarnation=head.incarnation)
    since = wanted.subscription.since
    since_us = 0 if since is None else since.at_us or 0
    events = [
        PastEvent(row.number, row.id, row.at_us, row.at_us, protocol.encode_event(row.event), row.undecided)
        for row in rows
        if row.id is not None and row.event is not None and row.at_us >= since_us
    ]
    return HistoryRead(
        wanted.piece,
        head.end,
        tuple(events),
        is_at_end=is_at_end,
        epoch=head.epoch,
        is_over=head.is_over,
        incarnation=head.incarnation,
    )
