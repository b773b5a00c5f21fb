"""The page of the report: its verdict, its numbers, and its sections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from html import escape
from typing import Final, NamedTuple

from wanderbus.pipeline.analytics.analysis import Analysis, Totals
from wanderbus.pipeline.analytics.report import sections
from wanderbus.pipeline.analytics.report.handover_section import group_moves, handovers
from wanderbus.pipeline.analytics.report.style import STYLE
from wanderbus.pipeline.analytics.report.tables import duration, number, text


class PageRefresh(NamedTuple):
    """A page that reloads itself after ``every_s`` seconds."""

    every_s: float


_SECTIONS: Final[dict[str, tuple[str, Callable[[Analysis], str]]]] = {
    "loss": ("Loss and duplicates", sections.loss),
    "drops": ("Drops by reason", sections.dropped),
    "rejected": ("Rejected records", sections.rejected),
    "latency": ("Latency and its parts", sections.latency),
    "depth": ("Depth of queues", sections.depth),
    "slow": ("Slow consumers", sections.slow),
    "healing": ("Healing after moves", sections.healing),
    "handovers": ("Handovers between servers", handovers),
    "groups": ("Moves of channel groups", group_moves),
    "away": ("Times away", sections.away),
    "devices": ("Devices", sections.devices),
    "subjects": ("Hot subjects", sections.hot),
    "never": ("Subscriptions that never match", sections.never),
    "coverage": ("Coverage between subscriptions", sections.coverage),
}


def page(found: Analysis, *, refresh: PageRefresh | None = None) -> str:
    """Return the report as one HTML page, which names no address outside itself."""
    reload = f"<meta http-equiv='refresh' content='{refresh.every_s:g}'>" if refresh else ""
    body = "\n".join(
        f"<section id='{name}'><h2>{escape(title)}</h2>\n{make(found)}</section>"
        for name, (title, make) in _SECTIONS.items()
    )
    links = "".join(f"<a href='#{name}'>{escape(title)}</a>" for name, (title, _) in _SECTIONS.items())
    title = f"wanderbus: report of {text(found.server) or 'a server'}"
    return (
        f"<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>{title}</title>{reload}"
        f"<meta name='viewport' content='width=device-width, initial-scale=1'><style>{STYLE}</style></head>\n"
        f"<body><h1>{title}</h1>\n{_period(found, refresh)}\n"
        f"{_verdict(found.totals, found.rejected)}\n{_tiles(found.totals)}\n"
        f"<nav>{links}</nav>\n{body}\n</body></html>\n"
    )


def _period(found: Analysis, refresh: PageRefresh | None) -> str:
    if found.first_us is None or found.last_us is None:
        return "<p class='quiet'>The log has no record in this period.</p>"
    length = duration((found.last_us - found.first_us) / 1_000)
    a_second = found.totals.events / max(1.0, (found.last_us - found.first_us) / 1e6)
    rate = f"{a_second:,.0f}" if a_second >= 10 else f"{a_second:.2g}"
    live = f" The page reloads itself every {refresh.every_s:g} s while the report is made." if refresh else ""
    return (
        f"<p class='quiet'>{number(found.records)} records from {_instant(found.first_us)} to "
        f"{_instant(found.last_us)}, {length}, by the server's clock: {rate} events/s.{live}</p>"
    )


def _verdict(totals: Totals, rejected: Mapping[str, int]) -> str:
    faults = [
        f"{number(count)} {words}"
        for count, words in (
            (totals.missing, "notifications missing"),
            (totals.repeated, "notifications repeated"),
            (totals.repeated_events, "events accepted twice"),
            (totals.dropped, "matches dropped"),
            *((count, f"records rejected by the table {name}") for name, count in rejected.items()),
        )
        if count
    ]
    if faults:
        return f"<p class='verdict bad'>{', '.join(faults)}.</p>"
    if not totals.generated:
        return "<p class='verdict'>No event matched a subscription.</p>"
    rest = f", {number(totals.given_up)} given up on request" if totals.given_up else ""
    rest += f", and {number(totals.queued)} wait" if totals.queued else ""
    return (
        f"<p class='verdict good'>Nothing lost, dropped or repeated: {number(totals.delivered)} matches "
        f"delivered{rest}.</p>"
    )


def _tiles(totals: Totals) -> str:
    tiles = (
        (number(totals.events), "events", ""),
        (number(totals.generated), "matches", ""),
        (number(totals.delivered), "delivered", ""),
        (number(totals.queued), "waiting", ""),
        (number(totals.dropped), "dropped", "bad" if totals.dropped else ""),
        (number(totals.missing + totals.repeated + totals.repeated_events), "missing or repeated", "bad"),
    )
    cells = "".join(
        f"<div><b class='{tone if value != '0' else ''}'>{value}</b><span>{words}</span></div>"
        for value, words, tone in tiles
    )
    return f"<div class='tiles'>{cells}</div>"


def _instant(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
