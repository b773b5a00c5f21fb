"""Outcome that an event would have for each subscription, from the listings of the servers; nothing is published.

The filters and restrictions are those that the broker evaluates. The state is that of the listings: it may have changed
when the event is really published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from wanderbus.broker.explanation import in_words
from wanderbus.broker.interest.index_entries import entries_of
from wanderbus.broker.restrictions.custom_restrictions import CustomRestrictions
from wanderbus.broker.restrictions.restriction_check import blocked_by
from wanderbus.broker.restrictions.restriction_text import forbidding, instant
from wanderbus.errors import FilterError
from wanderbus.event import Event
from wanderbus.filters.explaining import deciding
from wanderbus.filters.work import Sizes, work_of
from wanderbus.operator_rows import SessionInfo, SubscriptionInfo
from wanderbus.parameters.broker import FILTER_WORK_MAX
from wanderbus.subscription import PATTERN, Custom, Subscription, concerns

Verdict = Literal["delivered", "queued", "restricted", "undecided", "took_part", "filtered", "expired", "unreadable"]
"""Outcomes, with the words of ``wanderbus explain``. The event would be ``delivered`` at once, or ``queued`` until a
device reads; ``took_part`` is a step of a pattern; ``undecided`` depends on code of the operator, or its
filter takes too much work."""

NOT_MATCHED: tuple[Verdict, ...] = ("filtered", "expired", "unreadable")


class Predicted(msgspec.Struct, frozen=True):
    """Outcome for one subscription, with the reason."""

    subscription: str
    user: str
    session: str
    verdict: Verdict
    reason: str

    @property
    def is_match(self) -> bool:
        """Return whether the filter matches, whatever the restrictions and the queue."""
        return self.verdict not in NOT_MATCHED


def predicted(
    event: Event,
    lineage: Sequence[str],
    subscriptions: Iterable[SubscriptionInfo],
    sessions: Mapping[tuple[str, str], SessionInfo],
    now_us: int,
) -> list[Predicted]:
    """Return the outcome for each subscription to the subject of ``event`` or to an ancestor of it.

    :param lineage: the subject, its parent and so on
    :param sessions: the listed sessions, by user and name
    """
    found = []
    present = {each.user for each in sessions.values() if each.status == "CONNECTED"}
    for row in subscriptions:
        session, is_away = sessions.get((row.user, row.session)), row.user not in present
        outcome = _outcome(event, lineage, row, session, now_us, is_away=is_away)
        if outcome is not None:
            found.append(Predicted(row.subscription, row.user, row.session, *outcome))
    return found


def _outcome(
    event: Event,
    lineage: Sequence[str],
    row: SubscriptionInfo,
    session: SessionInfo | None,
    now_us: int,
    *,
    is_away: bool,
) -> tuple[Verdict, str] | None:
    try:
        entries = entries_of(
            Subscription(row.subscription, row.user, row.session, row.subject, row.expression, language=row.language)
        )
    except FilterError as error:
        return "unreadable", f"its filter cannot be read here: {str(error).splitlines()[0]}"
    filters = [each.interest.filter for each in entries if any(concerns(each.subject, name) for name in lineage)]
    if not filters:
        return None
    sizes = Sizes(event.attributes)
    units = max(work_of(each.root).units(sizes) for each in filters)
    if units > FILTER_WORK_MAX:
        return (
            "undecided",
            f"its filter takes up to {units} units of work for the event; the limit is {FILTER_WORK_MAX}",
        )
    if not any(each.matches(event) for each in filters):
        reasons = [in_words(why) for each in filters for why in deciding(each.root, event)]
        return "filtered", "; ".join(dict.fromkeys(reasons))
    if row.expires_us is not None and row.expires_us <= now_us:
        return "expired", f"the subscription expired at {instant(row.expires_us)}"
    if row.language == PATTERN:
        return "took_part", "it matches a step of the pattern; detections depend on other events"
    return _restricted(event, row, now_us, is_away=is_away) or _queued(row, session)


def _restricted(event: Event, row: SubscriptionInfo, now_us: int, *, is_away: bool) -> tuple[Verdict, str] | None:
    place = blocked_by(
        row.restrictions,
        now_us=now_us,
        received_us=now_us,
        last_us=row.last_us,
        away=is_away,
        event=event,
        kinds=CustomRestrictions(),
    )
    if place is None:
        return None
    if isinstance(restriction := row.restrictions[place], Custom):
        return "undecided", f"the restriction {restriction.kind} is code of the operator, which runs in the server only"
    why = forbidding(row.restrictions, place, now_us=now_us, received_us=now_us, last_us=row.last_us)
    return "restricted", why


def _queued(row: SubscriptionInfo, session: SessionInfo | None) -> tuple[Verdict, str]:
    waiting = f"behind {row.queued} waiting" if row.queued else "first in the queue"
    if row.state == "window_full":
        return "queued", f"the window of its reader is full, {waiting}"
    devices = () if session is None else session.devices
    present = [each.device for each in devices if each.status == "CONNECTED" and row.device in (None, each.device)]
    if not present:
        return "queued", f"no device is connected, {waiting}"
    if row.state == "not_read" or not row.readers:
        return "queued", f"no device reads it, {waiting}"
    return "delivered", f"to {', '.join(each.device for each in row.readers)}"
