"""Findings about the health of servers: what is wrong in a snapshot, how bad it is, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from wanderbus.cli.domain.status import is_confirmed
from wanderbus.cli.federation.status import lacks_link
from wanderbus.cli.monitor.snapshot import ServerState, Snapshot
from wanderbus.cli.operator.listings import span
from wanderbus.cli.output import counted
from wanderbus.operator_rows import LimitInfo, QueueInfo

FINDINGS_MAX: Final = 10
"""Most findings of one kind about one server; one more tells how many others there are."""

_DAY_S: Final = 86_400.0


class Level(enum.IntEnum):
    """Severity of a finding, with the exit status that programs for monitoring expect (Nagios)."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong at a ``server``: its ``kind`` for programs, and what to do."""

    level: Level
    kind: str
    server: str
    text: str
    remedy: str


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Values from which on something is a finding."""

    disk_free_bytes: int = 2**30
    disk_free_bytes_critical: int = 256 * 2**20
    queue_share: float = 0.8
    """Share of a bound of a queue."""
    unread_s: float = _DAY_S
    """Age of a notification that nobody reads."""
    blocked_s: float = 60.0
    """Time for which the window of a subscription has been full."""
    recent_s: float = 300.0
    """Time since a limit was applied."""
    engine_behind: int = 10_000
    """Records that the matching engine is behind."""
    reader_behind: int = 1_000_000
    """Records that a reader of the log is behind."""
    certificate_s: float = 14 * _DAY_S
    """Time for which a certificate is still valid."""


def worst(findings: Iterable[Finding]) -> Level:
    """Return the level of the whole: critical before unknown before warning, since a known failure needs action."""
    order = (Level.OK, Level.WARNING, Level.UNKNOWN, Level.CRITICAL)
    return max((each.level for each in findings), key=order.index, default=Level.OK)


def findings_of(snapshots: Iterable[Snapshot], thresholds: Thresholds) -> list[Finding]:
    """Return what is wrong, the worst first, and as many findings of a kind as :data:`FINDINGS_MAX` allows."""
    found = [finding for each in snapshots for finding in _shortened(_of_server(each, thresholds))]
    order = (Level.CRITICAL, Level.UNKNOWN, Level.WARNING)
    return sorted(found, key=lambda each: order.index(each.level))


def quarantine_findings(lake: str, rows: Mapping[str, int]) -> Iterator[Finding]:
    """Yield a finding for each table of a lake that rejected rows, by the rows in the quarantine."""
    for table, count in rows.items():
        if count:
            yield Finding(
                Level.WARNING,
                "quarantine",
                lake,
                f"the table {table} rejected {counted(count, 'row')}, which are in the quarantine",
                "'wanderbus pipeline rejected' shows why, 'wanderbus pipeline status' how many",
            )


def _shortened(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the first findings of each kind, and the number of the others."""
    by_kind: dict[str, list[Finding]] = {}
    for each in findings:
        by_kind.setdefault(each.kind, []).append(each)
    for several in by_kind.values():
        yield from several[:FINDINGS_MAX]
        if others := several[FINDINGS_MAX:]:
            level, text = max(each.level for each in others), f"{counted(len(others), 'more finding')} of this kind"
            yield msgspec.structs.replace(others[0], level=level, text=text)


def _of_server(snapshot: Snapshot, thresholds: Thresholds) -> Iterator[Finding]:
    server, state = snapshot.server, snapshot.state
    if state is None:
        yield _no_answer(snapshot)
        return
    if snapshot.certificate_s is not None:
        yield from _certificate(server, snapshot.certificate_s, thresholds)
    for warning in snapshot.log_warnings:
        yield Finding(Level.WARNING, "log", server, warning, "'wanderbus log status' shows what keeps the log")
    yield from _disk(server, state, thresholds)
    yield from _log_readers(server, state, thresholds)
    yield from _servers(server, state)
    yield from _domains(server, state)
    yield from _engine(server, state, thresholds)
    for queue in state.queues:
        yield from _queue(server, queue, thresholds)
    yield from _limits(server, state.limits, thresholds)
    if state.metric("draining"):
        yield Finding(
            Level.WARNING, "draining", server, "it drains: it takes no new sessions", "'wanderbus domain drain' ends it"
        )
    if state.is_cut:
        yield Finding(
            Level.UNKNOWN, "cut", server, "it has too many sessions to look at all of them", "'wanderbus queues' does"
        )


def _no_answer(snapshot: Snapshot) -> Finding:
    if snapshot.is_refused:
        remedy = "give --user and --password of a user with the role of operator"
        return Finding(Level.UNKNOWN, "refused", snapshot.server, snapshot.error, remedy)
    text = f"no answer: {snapshot.error}"
    return Finding(Level.CRITICAL, "no_answer", snapshot.server, text, "look at its log, and start it again")


def _certificate(server: str, left_s: float, thresholds: Thresholds) -> Iterator[Finding]:
    remedy = "renew the certificate, and restart the server"
    if left_s <= 0:
        yield Finding(Level.CRITICAL, "certificate", server, f"its certificate expired {span(-left_s)} ago", remedy)
    elif left_s < thresholds.certificate_s:
        yield Finding(Level.WARNING, "certificate", server, f"its certificate expires in {span(left_s)}", remedy)


def _disk(server: str, state: ServerState, thresholds: Thresholds) -> Iterator[Finding]:
    remedy = "make room; 'wanderbus log status' shows what keeps the log, and log_keep_s bounds it"
    free = state.metric("disk_free_bytes")
    if state.metric("disk_full"):
        yield Finding(Level.CRITICAL, "disk", server, "its disk is full: it refuses new events", remedy)
    elif free is not None and free < thresholds.disk_free_bytes:
        level = Level.CRITICAL if free < thresholds.disk_free_bytes_critical else Level.WARNING
        yield Finding(level, "disk", server, f"only {free / 2**20:,.0f} MiB are free on its disk", remedy)


def _log_readers(server: str, state: ServerState, thresholds: Thresholds) -> Iterator[Finding]:
    for each in state.metrics_of("log_reader_lag"):
        if each.value > thresholds.reader_behind:
            yield Finding(
                Level.WARNING,
                "log_reader",
                server,
                f"the reader {', '.join(each.labels)} of its log is {each.value:,.0f} records behind",
                "see whether the program still runs: the log keeps what it has not read",
            )


def _servers(server: str, state: ServerState) -> Iterator[Finding]:
    for other in state.servers:
        if other.trouble:
            remedy = (
                f"see whether {other.server} runs, and whether the network lets them talk; 'wanderbus domain status'"
            )
            yield Finding(Level.CRITICAL, "server_link", server, f"no link to {other.server}: {other.trouble}", remedy)
        elif not other.is_settled_here or not is_confirmed(other):
            text = f"{other.server} and this server have not exchanged all that they want from each other"
            remedy = "wait a moment; if it stays, see 'wanderbus domain status'"
            yield Finding(Level.WARNING, "server_unsettled", server, text, remedy)


def _domains(server: str, state: ServerState) -> Iterator[Finding]:
    for domain in state.domains:
        if lacks_link(domain):
            reason = domain.trouble or "none of its gateways has answered yet"
            remedy = "'wanderbus federation status' shows the link; ask the operator of that domain"
            yield Finding(
                Level.WARNING, "domain_link", server, f"no link to the domain {domain.domain}: {reason}", remedy
            )
        if domain.lost:
            text = f"the domain {domain.domain} has lost {counted(domain.lost, 'event')} before they were sent"
            yield Finding(
                Level.WARNING, "domain_lost", server, text, "its bounds are too low for the time without a link"
            )


def _engine(server: str, state: ServerState, thresholds: Thresholds) -> Iterator[Finding]:
    remedy = "'wanderbus engine' shows it; start it again if it does not come back"
    for engine in state.engines:
        if engine.state == "away":
            for_s = "" if engine.away_s is None else f" for {span(engine.away_s)}"
            reason = f": {engine.reason}" if engine.reason else ""
            text = f"the matching engine {engine.engine} has not answered{for_s}, and its events wait{reason}"
            yield Finding(Level.CRITICAL, "engine", server, text, remedy)
        elif engine.records_behind > thresholds.engine_behind:
            text = f"the matching engine {engine.engine} is {engine.records_behind:,} records behind"
            yield Finding(Level.WARNING, "engine", server, text, remedy)


def _queue(server: str, queue: QueueInfo, thresholds: Thresholds) -> Iterator[Finding]:
    place = f"{queue.user.removeprefix('sip:')} {queue.session}".rstrip()
    for name, present, bound in (
        ("notifications_max", queue.notifications, queue.notifications_max),
        ("bytes_max", queue.queued_bytes, queue.bytes_max),
        ("age_max_s", queue.oldest_s or 0.0, queue.age_max_s),
    ):
        if bound and present >= thresholds.queue_share * bound:
            text = f"the queue of {place} has reached {present / bound:.0%} of {name} ({bound:,.0f})"
            remedy = "see why its devices do not read; raise the bound, or end the subscription"
            yield Finding(Level.WARNING, "queue_bound", server, text, remedy)
    for each in queue.unread_subscriptions:
        waiting = f"{counted(each.queued, 'notification')} of {place} for {each.subscription}"
        if each.state == "not_read" and (each.oldest_s or 0.0) >= thresholds.unread_s:
            text = f"nobody reads {waiting}; the oldest has waited for {span(each.oldest_s)}"
            remedy = "see whether its user comes back; 'wanderbus discard' removes the session"
            yield Finding(Level.WARNING, "unread", server, text, remedy)
        if each.state == "window_full" and (each.blocked_s or 0.0) >= thresholds.blocked_s:
            text = f"a reader has not acknowledged anything for {span(each.blocked_s)}: {waiting} wait"
            remedy = "its program hangs or is too slow; 'wanderbus kick' closes its connection"
            yield Finding(Level.WARNING, "window_full", server, text, remedy)


def _limits(server: str, limits: Sequence[LimitInfo], thresholds: Thresholds) -> Iterator[Finding]:
    """Yield a finding for each limit that was applied recently, with the party that it was applied to last."""
    by_limit: dict[str, list[LimitInfo]] = {}
    for row in limits:
        if row.last_s is not None and row.last_s <= thresholds.recent_s:
            by_limit.setdefault(row.limit, []).append(row)
    for limit, rows in by_limit.items():
        last = min(rows, key=lambda row: row.last_s or 0.0)
        parties = f"{counted(len(rows) - 1, 'other')} and " if len(rows) > 1 else ""
        times, ago = counted(sum(row.count for row in rows), "time"), span(last.last_s)
        text = f"the limit {limit} was applied {times} to {parties}{last.party}, last {ago} ago: {last.reason}"
        remedy = "'wanderbus limits' shows to whom; the limit is a setting of the server"
        yield Finding(Level.WARNING, "limit", server, text, remedy)
