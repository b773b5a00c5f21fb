"""Subscriptions that lost events of another server may have matched; each gets a gap in place of a notification."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from wanderbus import records
from wanderbus.broker.interest.index_entries import subjects_of
from wanderbus.broker.publish.notifying import by_number, notification_of
from wanderbus.broker.state.replays import leader_span
from wanderbus.broker.state.rows import SubscriptionRow, session_key
from wanderbus.broker.state.state import BrokerState


def concerned(
    state: BrokerState,
    servers: Container[str],
    may_match: Callable[[Sequence[str]], bool],
    leader: str = "",
    *,
    is_known: bool = False,
) -> tuple[records.Notified, ...]:
    """Return the next notification of each session for its subscriptions whose subjects ``may_match``.

    The users of other ``servers``, and of foreign domains, get none: they get the events, and the gaps, from where
    these come. Subscriptions that still read the log of ``leader``, or those of all leaders of their channel, get
    none: they find there what is lost. If channels have moved, lost events may be of any channel, unless the channels
    of what is lost are known.
    """
    rows: dict[str, list[SubscriptionRow]] = {}
    is_of_any = state.servers[state.server].has_moved and not is_known
    for row in sorted(state.subscriptions.values(), key=by_number):
        subscription = row.subscription
        if row.history and row.history[0].epoch:
            continue
        if leader and (span := leader_span(row, state.server)) is not None and span.server == leader:
            continue
        if subscription.owner not in servers and (is_of_any or may_match(subjects_of(subscription))):
            rows.setdefault(session_key(subscription.owner, subscription.session), []).append(row)
    sessions = state.sessions
    return tuple(notification_of(sessions[key], sessions[key].next, several) for key, several in rows.items())
