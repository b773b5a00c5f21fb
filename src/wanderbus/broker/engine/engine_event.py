"""Events of the log that the matching engine matches: accepted here, or by another server (SPEC T-06, K-02)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from wanderbus.broker.history.piece import past_event
from wanderbus.broker.messages import EngineEvent
from wanderbus.records import AnyRecord, Arrived, Published


def is_for_engine(record: AnyRecord) -> TypeGuard[Published | Arrived]:
    """Return whether the matching engine matches the event of a record."""
    return isinstance(record, Published | Arrived) and bool(record.engine)


def engine_event(
    offset: int, record: Published | Arrived, matched: Sequence[str], undecided: Sequence[str] = ()
) -> EngineEvent:
    """Return the event of the record at ``offset`` with the subscriptions that the engine names."""
    # Other servers get it from its leader, or have been sent it directly.
    is_for_users = isinstance(record, Arrived) or bool(record.causal)
    return EngineEvent(past_event(offset, record), tuple(matched), tuple(undecided), is_for_users)
