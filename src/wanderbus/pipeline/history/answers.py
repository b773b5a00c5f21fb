"""Answers from past events, whichever way they are read: by Spark, or by this process alone (SPEC T-04)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from wanderbus.errors import StorageError
from wanderbus.pipeline.history.explanation import EventExplanation
from wanderbus.pipeline.history.lifetimes import Change, SubscriptionVersion, UserAbsence
from wanderbus.subscription import Subscription


class Found(NamedTuple):
    """A past event, encoded as in messages, without times; ``user`` has published it, None in a log."""

    offset: int
    at_us: int
    event: bytes
    user: str | None = None


class PastDecision(NamedTuple):
    """A decision on the notification of a past event, as :func:`wanderbus.pipeline.history.replay` describes it."""

    offset: int
    at_us: int
    restricted_by: int | None
    undecided: bool


class AnswerTooLarge(StorageError):
    """An answer does not fit into the memory that a process without Spark may take for it."""


class PastEvents(Protocol):
    """Past events that can be asked; rows are in order of offset, those of several lakes in order of time.

    A filter that takes more than ``work_max`` units of work for an event leaves it undecided, which is no match.
    Raises :class:`StorageError` for events that cannot be read. :class:`AnswerTooLarge` comes before the first row.
    """

    def matching(self, subscriptions: Iterable[Subscription], work_max: int) -> Iterator[Found]:
        """Return the events that match any of the subscriptions."""
        ...

    def count(self, subscriptions: Iterable[Subscription], work_max: int) -> int:
        """Return the number of pairs of an event and a subscription that it matches."""
        ...

    def sample(self, subscriptions: Iterable[Subscription], size: int, seed: int, work_max: int) -> Iterator[Found]:
        """Return up to ``size`` of the events that match the subscriptions, all of one id; ``seed`` draws them."""
        ...

    def undecided(self, subscriptions: Iterable[Subscription], work_max: int) -> int:
        """Return the number of pairs of an event and a subscription that are undecided."""
        ...

    def explain(
        self, subscription: Subscription, offset: int, work_max: int, children: Mapping[str, tuple[str, ...]]
    ) -> EventExplanation:
        """Return the reason for which the event at ``offset`` matches, or does not."""
        ...

    def changes(self) -> list[Change]:
        """Return the records of subscriptions, devices and starts, outside the bounds of the events too."""
        ...

    def replay(
        self, versions: Sequence[SubscriptionVersion], absences: Iterable[UserAbsence], work_max: int
    ) -> Iterator[PastDecision]:
        """Return the decisions on the notifications of one subscription's versions."""
        ...
