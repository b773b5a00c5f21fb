"""Subscriptions that the engine matches: those at its begin, changed by the records of the log (SPEC T-06).

A subscription that appears in a batch of records is added before the batch is matched, and one that ends in it is
removed behind the batch: the engine may name too many subscriptions, never too few. The expression of a subscription
never changes, so an id stands for one filter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from wanderbus.records import (
    AnyRecord,
    Changed,
    SessionFenced,
    SessionImported,
    Subscribed,
    Unsubscribed,
    imported_subscriptions,
)
from wanderbus.subscription import PATTERN, Subscription

CHANGING_KINDS: Final = tuple(
    str(record.__struct_config__.tag) for record in (Subscribed, Changed, Unsubscribed, SessionImported, SessionFenced)
)
"""Kinds of the records that change the subscriptions."""

_Session = tuple[str, str]


class EngineFilter(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of a subscription that decides what it matches."""

    id: str
    subject: str
    expression: str
    language: str


class Changes(msgspec.Struct, frozen=True, array_like=True):
    """Changes of the subscriptions; what is in both is removed first."""

    added: tuple[EngineFilter, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


class _Held(NamedTuple):
    wanted: EngineFilter
    session: _Session


class EngineInterest:
    """The subscriptions up to some offset of the log."""

    def __init__(self, subscriptions: Iterable[Subscription]) -> None:
        self._held = {each.id: _held(each) for each in subscriptions}
        self._added: dict[str, EngineFilter] = {}
        self._ended: set[str] = set()
        """Subscriptions that ended in the present batch of records."""
        self._ended_before: set[str] = set()
        """Subscriptions that ended in the batch before."""

    def __len__(self) -> int:
        return len(self._held)

    def wanted(self) -> list[EngineFilter]:
        """Return all subscriptions that the present batch needs, also those that have ended in it."""
        return [each.wanted for each in self._held.values()]

    def read(self, record: AnyRecord) -> None:
        """Follow one record of the present batch."""
        match record:
            case Subscribed(subscription=subscription) | Changed(subscription=subscription):
                self._add(subscription)
            case Unsubscribed(subscription=identity):
                self._end(identity)
            case SessionImported(export=export):
                for subscription in imported_subscriptions(export):
                    self._add(subscription)
            case SessionFenced(user=user, session=session):
                for identity in [key for key, each in self._held.items() if each.session == (user, session)]:
                    self._end(identity)

    def take_changes(self) -> Changes:
        """Return what was added in the present batch, and what ended in the one before; begin the next batch."""
        changes = Changes(tuple(self._added.values()), tuple(self._ended_before))
        for identity in self._ended_before:
            del self._held[identity]
        self._added, self._ended, self._ended_before = {}, set(), self._ended
        return changes

    def _add(self, subscription: Subscription) -> None:
        if subscription.language == PATTERN:
            return  # the broker matches it itself
        self._ended.discard(subscription.id)
        self._ended_before.discard(subscription.id)
        if subscription.id not in self._held:
            held = self._held[subscription.id] = _held(subscription)
            self._added[subscription.id] = held.wanted

    def _end(self, identity: str) -> None:
        if identity in self._held and identity not in self._ended_before:
            self._ended.add(identity)


def _held(subscription: Subscription) -> _Held:
    wanted = EngineFilter(subscription.id, subscription.subject, subscription.expression, subscription.language)
    return _Held(wanted, (subscription.owner, subscription.session))
