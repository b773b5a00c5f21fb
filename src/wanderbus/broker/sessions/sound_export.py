"""Soundness of a session that another server has exported (SPEC L-01).

An export is recorded as it came, and its rows are used as own ones. So one that contradicts itself would end this
server, also at each later start. What it says of its own session need not be true otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from wanderbus.broker.interest.index_entries import entries_of
from wanderbus.broker.queues.left_queue import COUNT_MAX
from wanderbus.broker.state.exported_session import ExportedSession
from wanderbus.broker.state.rows import PatternRow, SubscriptionRow
from wanderbus.errors import FilterError


def is_sound_export(exported: ExportedSession) -> bool:
    """Return whether the rows of a session belong to it and to each other, can be read, and can be counted on."""
    session, rows = exported.session, (*exported.subscriptions, *exported.ended)
    names = [row.subscription.id for row in rows]
    numbered = (session, exported.devices, exported.publishers, exported.through)
    return (
        names == [*session.subscriptions, *session.ended]
        and len(set(names)) == len(names)
        and all((row.subscription.owner, row.subscription.session) == (session.user, session.name) for row in rows)
        and [(row.user, row.session, row.device) for row in exported.devices]
        == [(session.user, session.name, device) for device in session.devices]
        and len(set(session.devices)) == len(session.devices)
        and {each.device for each in exported.publishers} <= set(session.devices)
        and _are_own(exported.patterns, exported.subscriptions)
        and all((each.user, each.device in session.devices) == (session.user, True) for each in exported.advertisements)
        and all(_is_readable(row) for row in rows)
        and _are_counts(msgspec.to_builtins(numbered, builtin_types=(bytes,)))
    )


def _are_own(patterns: Mapping[str, PatternRow], rows: Sequence[SubscriptionRow]) -> bool:
    """Return whether patterns are those of live subscriptions, without steps, which would have to be repeated."""
    live = {row.subscription.id: (row.subscription.owner, row.subscription.expression) for row in rows}
    return all((each.owner, each.text) == live.get(name) and not each.since for name, each in patterns.items())


def _is_readable(row: SubscriptionRow) -> bool:
    try:
        entries_of(row.subscription)
    except FilterError:
        return False
    return True


def _are_counts(value: Any) -> bool:
    """Return whether every number in ``value`` is from 0 to ``COUNT_MAX``."""
    if isinstance(value, int | float):
        return 0 <= value <= COUNT_MAX
    if isinstance(value, dict):
        return all(map(_are_counts, value.values()))
    return not isinstance(value, list | tuple) or all(map(_are_counts, value))
