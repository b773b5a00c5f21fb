"""Load of the servers of a domain, from two readings of their counters, and the moves that share it (SPEC J-08)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from wanderbus.broker.servers.server_users import domain_of, server_of
from wanderbus.broker.state.rows import session_key
from wanderbus.cli.domain.balance.steps import Step
from wanderbus.operator_rows import GroupInfo, GroupLoadInfo, ProcessInfo, SessionInfo
from wanderbus.planning.loads import NO_INTEREST, Activity, load_us
from wanderbus.planning.rebalancing import MAX_RATIO, PlacedItem, moves_between

_SHOWN: Final = 100.0 / 1e6
"""Percent of a processor for one microsecond per second."""


class ServerCounts(NamedTuple):
    """Counters of one server, since its start or since the begin of each session."""

    process: ProcessInfo
    loads: Sequence[GroupLoadInfo]
    groups: Sequence[GroupInfo]
    """Groups that have moved, with their leaders."""
    sessions: Sequence[SessionInfo]


class DomainLoad(NamedTuple):
    """Loads in microseconds of one processor per second: of channel groups, of sessions, and what cannot move."""

    groups: Mapping[int, PlacedItem]
    sessions: Mapping[tuple[str, str], PlacedItem]
    """Sessions by user and name."""
    fixed_us: Mapping[str, int]
    """The rest, for every server of the domain."""

    def by_server(self) -> dict[str, int]:
        """Return the load of each server."""
        found = dict(self.fixed_us)
        for item in (*self.groups.values(), *self.sessions.values()):
            found[item.server] += item.load_us
        return found

    def after(self, moved: Mapping[str, str]) -> DomainLoad:
        """Return the load once items have ``moved`` to other servers, by name."""
        groups = {key: item._replace(server=moved.get(item.name, item.server)) for key, item in self.groups.items()}
        sessions = {key: item._replace(server=moved.get(item.name, item.server)) for key, item in self.sessions.items()}
        return DomainLoad(groups, sessions, self.fixed_us)


def load_between(
    before: Mapping[str, ServerCounts],
    after: Mapping[str, ServerCounts],
    over_s: float,
    leaders: Sequence[str],
    domain: str,
) -> DomainLoad:
    """Return the load between two readings, ``over_s`` apart, of all servers of a ``domain``.

    :param leaders: the present leader of each channel group
    """
    fixed_us, groups_us = dict.fromkeys(after, 0), dict.fromkeys(range(len(leaders)), 0)
    for server, counts in after.items():
        for group, activity in _activities(before.get(server), counts):
            load = round(load_us(activity, NO_INTEREST) / over_s)
            if group is None:
                fixed_us[server] += load
            else:
                groups_us[group] += load
    groups = {group: PlacedItem(str(group), leaders[group], load) for group, load in groups_us.items()}
    earlier: dict[tuple[str, str], int] = {}
    for counts in before.values():
        earlier.update({(row.user, row.session): row.generated for row in counts.sessions})
    sessions = {}
    for server, counts in after.items():
        for row in counts.sessions:
            if row.session and server_of(row.user, domain) is None and domain_of(row.user, domain) is None:
                several = max(0, row.generated - earlier.get((row.user, row.session), 0))
                load = round(load_us(Activity(notifications=several), NO_INTEREST) / over_s)
                sessions[row.user, row.session] = PlacedItem(session_key(row.user, row.session), server, load)
    return DomainLoad(groups, sessions, fixed_us)


def _activities(before: ServerCounts | None, after: ServerCounts) -> Iterator[tuple[int | None, Activity]]:
    """Yield what each group had between two readings of one server, which counts from 0 after a restart."""
    is_same = before is not None and before.process.started_us == after.process.started_us
    earlier = {row.group: row for row in before.loads} if before is not None and is_same else {}
    for row in after.loads:
        known = earlier.get(row.group, GroupLoadInfo(row.group, 0, 0, 0))
        yield (
            row.group,
            Activity(
                row.events - known.events, row.notifications - known.notifications, row.event_bytes - known.event_bytes
            ),
        )


def balancing_steps(
    load: DomainLoad,
    leading: Iterable[str],
    serving: Iterable[str],
    *,
    max_ratio: float = MAX_RATIO,
    staying: Container[str] = (),
) -> list[Step]:
    """Return moves of groups between servers that lead, and then of sessions between servers that serve users.

    Items named in ``staying`` do not move. Sessions move only if groups alone do not suffice: a group moves without its
    subscribers, while the devices of a session have to connect again.
    """
    groups = [item for item in load.groups.values() if item.load_us and item.name not in staying]
    moves = moves_between(leading, groups, _rest(load.by_server(), groups), max_ratio)
    by_name = {item.name: group for group, item in load.groups.items()}
    steps = [Step(move.source, move.target, group=by_name[move.name]) for move in moves]
    now = load.after({move.name: move.target for move in moves}).by_server()
    sessions = [item for item in load.sessions.values() if item.load_us and item.name not in staying]
    whose = {item.name: key for key, item in load.sessions.items()}
    for move in moves_between(serving, sessions, _rest(now, sessions), max_ratio):
        user, session = whose[move.name]
        steps.append(Step(move.source, move.target, user=user, session=session))
    return steps


def _rest(loads: Mapping[str, int], items: Iterable[PlacedItem]) -> dict[str, int]:
    """Return the loads of servers without those of ``items``."""
    rest = dict(loads)
    for item in items:
        rest[item.server] -= item.load_us
    return rest


def percent(load_us: int) -> float:
    """Return a load in percent of a processor."""
    return load_us * _SHOWN
