"""Decisions about the events that the matching engine has matched (SPEC T-06)."""

from __future__ import annotations

import msgspec

from wanderbus import records
from wanderbus.broker.interest.filter_accounts import Undecided
from wanderbus.broker.state.rows import SessionRow
from wanderbus.subscription import Subscription


class Decided(msgspec.Struct):
    """Decisions about matched events: their part of the record, and what else follows from them."""

    events: list[records.MatchedEvent] = []
    notified: list[tuple[SessionRow, records.Notified, dict[str, Undecided]]] = []
    """Each notification with its session and its undecided subscriptions, in order."""
    matched: set[int] = set()
    """Offsets of the events that a subscription matches, whatever restrictions say."""
    abandoned: list[tuple[SessionRow, int, str, str]] = []
    """Session, number, subscription and the device that will not read it."""
    expired: dict[str, Subscription] = {}
    """Live subscriptions that an event matched after their expiry."""
    numbers: dict[str, int] = {}
    """Number of the next notification, by session."""
    last_us: dict[str, int] = {}
    """Time of the last notification, by subscription."""
