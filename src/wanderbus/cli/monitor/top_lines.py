"""Lines of ``wanderbus top``, at most 80 characters wide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from wanderbus.cli.monitor.top_model import Overview, SessionRow, View, selected
from wanderbus.cli.operator.listings import span
from wanderbus.event_text import escaped

WIDTH: Final = 80

_LINKS_SHOWN: Final = 4
"""Links, readers and reasons that a line names; those that are down come first."""

_COLUMNS: Final = (
    ("user", 19),
    ("session", 12),
    ("", 4),
    ("waiting", -8),
    ("oldest", -8),
    ("deliv./s", -8),
    ("drop/s", -7),
    ("ack ms", -7),
)
"""Headings with their widths, negative ones to the right; one space lies between two."""


def text_of(view: View, order: str, text: str = "") -> str:
    """Return the whole table as text."""
    return "\n".join(
        [*overview_lines(view.overview), "", HEADING, *map(row_line, selected(view.sessions, order, text))]
    )


def overview_lines(overview: Overview) -> Iterator[str]:
    """Yield the lines about the whole server."""
    o = overview
    yield _cut(f"{escaped(o.server)} {escaped(o.version)}, up {span(o.up_s)}")
    yield _cut(
        f"events    {_rate(o.accepted_per_s)}/s accepted, {_rate(o.arrived_per_s)}/s from other servers, "
        f"{_rate(o.limited_per_s)}/s limited"
    )
    counts = sorted(((count, reason) for reason, count in o.dropped.items() if count), reverse=True)
    reasons = ", ".join(f"{count:,} {escaped(reason)}" for count, reason in counts[:_LINKS_SHOWN])
    dropped = f"{_rate(o.dropped_per_s)}/s dropped" + (f" ({reasons})" if reasons else "")
    yield _cut(f"matches   {_rate(o.delivered_per_s)}/s delivered, {dropped}")
    oldest = f", the oldest for {span(o.oldest_s)}" if o.queued else ""
    yield _cut(f"queues    {o.queued:,} waiting, {o.queued_bytes / 1e6:,.1f} MB{oldest}")
    yield _cut(
        f"devices   {o.connected:,} connected, {o.disconnected:,} away; {o.sessions:,} sessions, "
        f"{o.subscriptions:,} subscriptions"
    )
    acknowledged = "-" if o.acknowledgement_ms is None else f"{o.acknowledgement_ms:,.1f} ms"
    healing = "" if not o.healed else f", after {span((o.healing_ms or 0.0) / 1_000)}"
    healed = "-" if o.healed is None else f"{o.healed:,}"
    yield _cut(f"means     acknowledgement {acknowledged}; healing: {healed} came back{healing}")
    if lags := list(_lags(o)):
        yield _cut(f"behind    {', '.join(lags)}")
    if o.links:
        yield _cut(f"links     {', '.join(_links(o))}")


def _lags(overview: Overview) -> Iterator[str]:
    if overview.engine_behind is not None:
        yield f"the engine {overview.engine_behind:,} records"
    behind = sorted(((lag, name) for name, lag in overview.log_readers.items()), reverse=True)
    for lag, name in behind[:_LINKS_SHOWN]:
        yield f"{escaped(name)} {lag:,} records"


def _links(overview: Overview) -> Iterator[str]:
    links = sorted(overview.links, key=lambda each: (each.is_up, -each.waiting))
    for each in links[:_LINKS_SHOWN]:
        waiting = f" ({each.waiting:,} waiting)" if each.waiting else ""
        yield f"{escaped(each.name)} {'up' if each.is_up else 'DOWN'}{waiting}"
    if len(links) > _LINKS_SHOWN:
        yield f"{len(links) - _LINKS_SHOWN} more"


def row_line(row: SessionRow) -> str:
    """Return the line of a session."""
    state = "" if row.status == "CONNECTED" else "away"
    oldest = "" if row.oldest_s is None else span(row.oldest_s)
    return _line(
        (
            escaped(row.user.removeprefix("sip:")),
            escaped(row.session),
            state,
            _number(row.queued),
            oldest,
            _rate(row.delivered_per_s),
            _rate(row.dropped_per_s),
            _rate(row.acknowledgement_ms),
        )
    )


def _line(cells: Sequence[str]) -> str:
    shown = (
        _shortened(cell, abs(width)).ljust(width) if width > 0 else _shortened(cell, -width).rjust(-width)
        for cell, (_, width) in zip(cells, _COLUMNS, strict=True)
    )
    return " ".join(shown)


def _shortened(text: str, width: int) -> str:
    """Return a text with its middle left out, where two of one domain differ least."""
    if len(text) <= width:
        return text
    end = (width - 1) // 3
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


def _rate(value: float | None) -> str:
    """Return a number of at most seven characters, - if it is not known."""
    if value is None:
        return "-"
    return f"{value:,.1f}" if value < 1_000 else _number(value)


def _number(value: float) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{value / size:,.1f}{unit}"
    return f"{value:,.0f}"


HEADING: Final = _line([name for name, _ in _COLUMNS])
"""Headings of the sessions."""
