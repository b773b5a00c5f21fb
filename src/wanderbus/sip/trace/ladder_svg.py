"""Ladder diagrams as one self-contained SVG file: no script, no font, nothing fetched (SPEC U-06; SVG 1.1).

Each arrow carries its message as a title, which a browser shows when the pointer rests on it. All text in it has passed
:func:`~wanderbus.sip.trace.trace_messages.printable`, so it contains only characters that XML allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from wanderbus.sip.trace.ladder import (
    MESSAGES_MAX,
    LadderColumns,
    Participant,
    columns,
    message_lines,
    omission,
    seconds,
)
from wanderbus.sip.trace.trace_messages import TracedMessage

TITLE_CHARACTERS_MAX: Final = 4_096
"""Characters of a message in the title of its arrow; the rest is cut off."""

_CHARACTER: Final = 7.2
_ROW: Final = 30
_TOP: Final = 64
_GUTTER: Final = 130
_HEAD: Final = 8
_STYLE: Final = """
text { font: 12px ui-monospace, Menlo, Consolas, monospace; fill: #222; }
.time { fill: #777; }
.name { font-weight: bold; }
.life { stroke: #bbb; stroke-dasharray: 3 3; }
.request { stroke: #1558b0; fill: #1558b0; }
.provisional { stroke: #777; fill: #777; }
.success { stroke: #1a7f37; fill: #1a7f37; }
.failure { stroke: #b3261e; fill: #b3261e; }
.again { stroke-dasharray: 6 3; }
"""


def ladder_svg(shown: Sequence[TracedMessage]) -> str:
    """Return the diagram of ``shown`` as an SVG document."""
    drawn, rest = shown[:MESSAGES_MAX], omission(shown)
    columns_of = columns(drawn)
    parties = columns_of.participants
    gap = _gap(columns_of, drawn)
    lifelines = [_GUTTER + gap / 2 + number * gap for number in range(len(parties))]
    width, height = _GUTTER + gap * max(1, len(parties)), _TOP + _ROW * (len(drawn) + (2 if rest else 1))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}">',
        f"<style>{_STYLE}</style>",
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for party, x in zip(parties, lifelines, strict=True):
        parts += _column(party, x, height)
    for row, each in enumerate(drawn):
        x1, x2 = (lifelines[number] for number in columns_of.ends(each))
        parts += _arrow(each, shown[0], x1, x2, _TOP + _ROW * (row + 1))
    if rest:
        parts.append(_text(8, height - _ROW // 2, rest, "time", anchor="start"))
    return "\n".join([*parts, "</svg>", ""])


def _gap(columns: LadderColumns, shown: Sequence[TracedMessage]) -> float:
    """Return the distance of lifelines that leaves room for every name and label."""
    texts = (text for each in columns.participants for text in (each.name, each.place))
    characters = max((len(text) for text in texts), default=0) + 2.0
    for each in shown:
        start, end = columns.ends(each)
        span = abs(start - end) or 1
        characters = max(characters, (len(each.label) + 4) / span)
    return characters * _CHARACTER


def _column(column: Participant, x: float, height: int) -> Iterator[str]:
    yield _text(x, 20, column.name, "name", anchor="middle")
    yield _text(x, 38, column.place, "place", anchor="middle")
    yield f'<line class="life" x1="{x:.1f}" y1="48" x2="{x:.1f}" y2="{height - 8}"/>'


def _arrow(each: TracedMessage, first: TracedMessage, x1: float, x2: float, y: int) -> Iterator[str]:
    kind = _kind(each)
    line_kind = f"{kind} again" if each.again else kind
    yield f"<g><title>{escape(chr(10).join(message_lines(each))[:TITLE_CHARACTERS_MAX])}</title>"
    yield _text(8, y, f"{each.number:>4} {seconds(each, first):10.4f}", "time", anchor="start")
    if x1 == x2:
        yield f'<circle class="{kind}" cx="{x1:.1f}" cy="{y}" r="4"/>'
        yield _text(x1 + 10, y + 4, each.label, "label", anchor="start")
    else:
        back = -_HEAD if x2 > x1 else _HEAD
        yield f'<line class="{line_kind}" x1="{x1:.1f}" y1="{y}" x2="{x2 + back:.1f}" y2="{y}"/>'
        points = f"{x2:.1f},{y} {x2 + back:.1f},{y - 4} {x2 + back:.1f},{y + 4}"
        yield f'<polygon class="{kind}" points="{points}"/>'
        yield _text((x1 + x2) / 2, y - 5, each.label, "label", anchor="middle")
    yield "</g>"


def _kind(each: TracedMessage) -> str:
    status = each.sketch.status
    if status is None:
        return "request"
    return "provisional" if status < 200 else "success" if status < 300 else "failure"


def _text(x: float, y: float, text: str, kind: str, *, anchor: str) -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" xml:space="preserve">'
        f"{escape(text)}</text>"
    )
