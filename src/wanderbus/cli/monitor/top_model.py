"""Model of ``wanderbus top``: rates and rows from two snapshots of a server; pure, without a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from wanderbus.cli.federation.status import lacks_link
from wanderbus.cli.monitor.snapshot import ServerState
from wanderbus.operator_rows import DurationsInfo, SessionInfo


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session now: what waits for it, and what happens to it a second; None where that is not known yet.

    ``acknowledgement_ms`` is the mean time until its devices acknowledged a notification, since the last snapshot, or
    since the server has the session if nothing was acknowledged meanwhile. ``away_s`` is the time for which it has been
    DISCONNECTED, ``healed`` how often a device of it came back since the last snapshot.
    """

    user: str
    session: str
    status: str
    queued: int
    oldest_s: float | None
    unread: int
    delivered_per_s: float | None
    dropped_per_s: float | None
    acknowledgement_ms: float | None
    away_s: float | None
    healed: int

    @property
    def key(self) -> str:
        """Return the identity of the session."""
        return f"{self.user} {self.session}"


class LinkRow(msgspec.Struct, frozen=True):
    """A link to another server of the domain, or to a foreign domain; ``waiting`` are the events for or from it."""

    kind: str
    name: str
    is_up: bool
    waiting: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the whole server; rates are None before there are two snapshots."""

    server: str
    version: str
    up_s: float
    interval_s: float | None
    accepted_per_s: float | None
    arrived_per_s: float | None
    delivered_per_s: float | None
    dropped_per_s: float | None
    dropped: Mapping[str, int]
    """Matches that were dropped since the start of the server, by reason."""
    queued: int
    queued_bytes: int
    oldest_s: float
    sessions: int
    subscriptions: int
    connected: int
    disconnected: int
    """Devices by their status."""
    acknowledgement_ms: float | None
    healed: int | None
    healing_ms: float | None
    """Number of absences that ended since the last snapshot, and their mean length."""
    links: Sequence[LinkRow]
    log_readers: Mapping[str, int]
    """Records that each reader of the log is behind."""
    engine_behind: int | None
    limited_per_s: float | None
    """Times a second that a limit was applied."""


class View(msgspec.Struct, frozen=True):
    """Everything that is shown."""

    at_us: int
    overview: Overview
    sessions: Sequence[SessionRow]


def view_of(now: ServerState, before: ServerState | None = None) -> View:
    """Return what to show of a server, with rates since ``before``; those of a server that restarted are not known."""
    if before is not None and (
        before.process.started_us != now.process.started_us or before.at_us >= now.at_us or not before.metrics
    ):
        before = None
    interval_s = None if before is None else (now.at_us - before.at_us) / 1e6
    earlier = {(each.user, each.session): each for each in before.sessions} if before is not None else {}
    oldest = {(each.user, each.session): each.oldest_s for each in now.queues}
    rows = [
        _session(each, earlier.get((each.user, each.session)), oldest.get((each.user, each.session)), interval_s)
        for each in now.sessions
        if each.session  # the sum of the sessions that are over has none
    ]
    return View(now.at_us, _overview(now, before, interval_s), rows)


def _session(
    now: SessionInfo, before: SessionInfo | None, oldest_s: float | None, interval_s: float | None
) -> SessionRow:
    is_new = before is None
    past = before or msgspec.structs.replace(now, delivered=0, dropped={}, absences=DurationsInfo())
    away = [each.away_s for each in now.devices if each.away_s is not None]
    is_away = now.status != "CONNECTED"
    return SessionRow(
        user=now.user,
        session=now.session,
        status=now.status,
        queued=now.queued,
        oldest_s=oldest_s,
        unread=now.unread,
        delivered_per_s=_rate(now.delivered, past.delivered, interval_s),
        dropped_per_s=_rate(sum(now.dropped.values()), sum(past.dropped.values()), interval_s),
        acknowledgement_ms=_mean_ms(now.acknowledgements, None if is_new else past.acknowledgements),
        away_s=min(away) if is_away and away else None,
        healed=0 if is_new else max(0, now.absences.count - past.absences.count),
    )


def _overview(now: ServerState, before: ServerState | None, interval_s: float | None) -> Overview:
    def rate(*names: str) -> float | None:
        if before is None:
            return None
        return _rate(sum(_total(now, name) for name in names), sum(_total(before, name) for name in names), interval_s)

    absences = _durations(now, "absence_seconds")
    past_absences = None if before is None else _durations(before, "absence_seconds")
    past_acknowledgements = None if before is None else _durations(before, "acknowledgement_seconds")
    healed = None if past_absences is None else max(0, absences.count - past_absences.count)
    behind = now.metric("engine_records_behind")
    return Overview(
        server=now.process.server,
        version=now.process.version,
        up_s=max(0.0, (now.at_us - now.process.started_us) / 1e6),
        interval_s=interval_s,
        accepted_per_s=rate("events_accepted_total"),
        arrived_per_s=rate("events_arrived_total"),
        delivered_per_s=rate("matches_delivered_total"),
        dropped_per_s=rate("matches_dropped_total"),
        dropped={", ".join(each.labels): int(each.value) for each in now.metrics_of("matches_dropped_total")},
        queued=int(now.metric("matches_queued") or 0),
        queued_bytes=int(now.metric("queued_bytes") or 0),
        oldest_s=now.metric("queue_oldest_seconds") or 0.0,
        sessions=int(now.metric("sessions") or 0),
        subscriptions=int(now.metric("subscriptions") or 0),
        connected=int(now.metric("devices", "connected") or 0),
        disconnected=int(now.metric("devices", "disconnected") or 0),
        acknowledgement_ms=_mean_ms(_durations(now, "acknowledgement_seconds"), past_acknowledgements),
        healed=healed,
        healing_ms=_mean_ms(absences, past_absences) if healed else None,
        links=_links(now),
        log_readers={", ".join(each.labels): int(each.value) for each in now.metrics_of("log_reader_lag")},
        engine_behind=None if behind is None else int(behind),
        limited_per_s=rate("limit_applied_total"),
    )


def _links(now: ServerState) -> list[LinkRow]:
    servers = [LinkRow("server", each.server, not each.trouble, each.waiting_here) for each in now.servers]
    return servers + [LinkRow("domain", each.domain, not lacks_link(each), each.waiting) for each in now.domains]


def _total(state: ServerState, name: str) -> float:
    return sum(each.value for each in state.metrics_of(name))


def _durations(state: ServerState, name: str) -> DurationsInfo:
    return next((each.durations for each in state.metrics_of(name) if each.durations is not None), DurationsInfo())


def _rate(now: float, before: float, interval_s: float | None) -> float | None:
    return None if not interval_s else max(0.0, now - before) / interval_s


def _mean_ms(now: DurationsInfo, before: DurationsInfo | None) -> float | None:
    """Return the mean of the durations since ``before``, or of all if there are none since; None without any."""
    if before is not None and now.count > before.count and now.sum_us >= before.sum_us:
        return (now.sum_us - before.sum_us) / (now.count - before.count) / 1_000
    return now.sum_us / now.count / 1_000 if now.count else None


_SORTS: Final[Mapping[str, Callable[[SessionRow], Any]]] = {
    "waiting": lambda row: row.queued,
    "oldest": lambda row: row.oldest_s or 0.0,
    "delivered": lambda row: row.delivered_per_s or 0.0,
    "dropped": lambda row: row.dropped_per_s or 0.0,
    "acknowledged": lambda row: row.acknowledgement_ms or 0.0,
    "healed": lambda row: (row.healed, row.away_s or 0.0),
}

SORTS: Final = (*_SORTS, "user")
"""Orders of the sessions: all but that of users begin with the largest."""


def selected(rows: Iterable[SessionRow], order: str, text: str = "") -> list[SessionRow]:
    """Return the rows whose user, session or status contains ``text`` in any case, in one of :data:`SORTS`."""
    wanted = text.casefold()
    found = sorted(
        (row for row in rows if wanted in f"{row.user} {row.session} {row.status}".casefold()),
        key=lambda row: (row.user, row.session),
    )
    return found if order == "user" else sorted(found, key=_SORTS[order], reverse=True)
