"""Rows of the state of the causal order, from which it is restored without its records.

What grows with the number of servers is a few small rows, made when they are saved. Events have a row each.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from wanderbus.channels.causal.header import Dot, Header
from wanderbus.channels.causal.interface import CausalSent
from wanderbus.channels.causal.state import CausalState


class CountersRow(msgspec.Struct, frozen=True, array_like=True):
    """Number of the last event that this server published, and number of the events that it delivered."""

    last: int
    accepted: int


class PeerRow(msgspec.Struct, frozen=True, array_like=True):
    """Another server: its cursor, what was dropped before it had it, and the last event that was sent to it."""

    base: int
    dropped: int
    before: int
    is_removed: bool
    is_forgotten: bool
    acknowledged_by: int = 0


class OriginRow(msgspec.Struct, frozen=True, array_like=True):
    """An incarnation of another server: the cursor into its events, None without any, and its settled mark."""

    delivered: int | None
    settled: int
    lagging: int
    is_ended: bool


class ColumnRow(msgspec.Struct, frozen=True, array_like=True):
    """Column of the matrix: what was sent to one server and may not have been delivered there."""

    entries: tuple[tuple[int, int, int, int], ...]


class RetainedRow(msgspec.Struct, frozen=True, array_like=True):
    """An event of this server that some of the destinations still need."""

    header: Header
    payload: bytes
    servers: int


class KeptRow(msgspec.Struct, frozen=True, array_like=True):
    """An event of another server that further servers may ask for, and its place in the order of arrival."""

    header: Header
    payload: bytes
    place: int


# Small rows ----------------------------------------------------------------------------------------------------------


def counters(state: CausalState) -> dict[str, CountersRow]:
    """Return the row of the counters, under an empty key; none before the first event."""
    row = CountersRow(state.outgoing.last, state.accepted)
    return {"": row} if row.last or row.accepted else {}


def load_counters(state: CausalState, rows: Mapping[str, CountersRow]) -> None:
    """Take over the counters."""
    for row in rows.values():
        state.outgoing.last, state.accepted = row.last, row.accepted


def peers(state: CausalState) -> dict[str, PeerRow]:
    """Return a row for each server that is not as it was at first."""
    knowledge, links = state.knowledge, state.outgoing.links
    rows = {}
    for server in sorted({*links, *knowledge.removed, *knowledge.forgotten}):
        link = links.get(server)
        numbers = (0, 0, 0) if link is None else (link.base, link.dropped, link.before)
        by = 0 if link is None else link.acknowledged_by
        row = PeerRow(*numbers, server in knowledge.removed, server in knowledge.forgotten, by)
        if any(msgspec.structs.astuple(row)):
            rows[str(server)] = row
    return rows


def load_peers(state: CausalState, rows: Mapping[str, PeerRow]) -> None:
    """Take over the servers."""
    for key, row in rows.items():
        server = int(key)
        if row.is_removed:
            state.knowledge.removed.add(server)
        else:
            link = state.outgoing.link(server)
            link.base, link.dropped, link.before = row.base, row.dropped, row.before
            link.acknowledged_by = row.acknowledged_by
        if row.is_forgotten:
            state.knowledge.forgotten.add(server)


def origins(state: CausalState) -> dict[str, OriginRow]:
    """Return a row for each origin of events."""
    settled = state.knowledge.settled()
    return {
        f"{origin[0]}/{origin[1]}": OriginRow(
            state.delivered.get(origin), *settled.get(origin, (0, 0)), origin in state.ended
        )
        for origin in sorted({*state.delivered, *(each for each, mark in settled.items() if any(mark)), *state.ended})
    }


def load_origins(state: CausalState, rows: Mapping[str, OriginRow]) -> None:
    """Take over the origins."""
    for key, row in rows.items():
        server, incarnation = map(int, key.split("/"))
        origin = server, incarnation
        if row.delivered is not None:
            state.delivered[origin] = row.delivered
            state.note_incarnation(origin)
        if row.is_ended:
            state.ended.add(origin)
            state.note_incarnation((server, incarnation + 1))
        if row.settled or row.lagging:
            state.knowledge.load_settled(origin, row.settled, row.lagging)


def columns(state: CausalState) -> dict[str, ColumnRow]:
    """Return a row for each destination that may lack something."""
    return {str(server): ColumnRow(entries) for server, entries in sorted(state.knowledge.columns().items())}


def load_columns(state: CausalState, rows: Mapping[str, ColumnRow]) -> None:
    """Take over the columns."""
    for key, row in rows.items():
        state.knowledge.load_column(int(key), row.entries)


# Rows of events ------------------------------------------------------------------------------------------------------


def retained(state: CausalState, number: int) -> RetainedRow | None:
    """Return the row of an event of this server."""
    found = state.outgoing.retained.get(number)
    return found and RetainedRow(found[0].header, found[0].payload, found[1])


def load_retained(state: CausalState, rows: Mapping[str, RetainedRow]) -> None:
    """Take over the events of this server."""
    by_number = sorted(rows.values(), key=lambda row: row.header.number)
    state.outgoing.load((row.header.number, (CausalSent(row.header, row.payload), row.servers)) for row in by_number)


def kept(state: CausalState, dot: Dot) -> KeptRow | None:
    """Return the row of an event of another server."""
    found = state.kept.get(dot)
    return found and KeptRow(*found)


def load_kept(state: CausalState, rows: Mapping[str, KeptRow]) -> None:
    """Take over the events of other servers."""
    by_place = sorted(rows.values(), key=lambda row: row.place)
    state.kept.load((row.header.dot, (row.header, row.payload, row.place)) for row in by_place)
