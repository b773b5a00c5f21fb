"""The report's plots, written as SVG: few shapes, the page's own colours, no library and nothing to fetch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

_WIDTH: Final = 900
_LEFT: Final = 90
_LINE: Final = 46

Lines = Sequence[Mapping[str, Any]]


def delivered(travellers: Lines) -> str:
    """Return bars of what each traveller was due (behind) and what it was delivered (before)."""
    longest = max((max(line["expected"], line["delivered"]) for line in travellers), default=0) or 1
    span = _WIDTH - _LEFT - 110
    parts = []
    for n, line in enumerate(travellers):
        y = n * 30 + 6
        due, got = (line[key] / longest * span for key in ("expected", "delivered"))
        colour = "--good" if line["good"] else "--bad"
        parts.append(_text(0, y + 15, name_of(line["user"])))
        parts.append(_rect(_LEFT, y, due, 20, "--due"))
        parts.append(_rect(_LEFT, y + 5, got, 10, colour))
        parts.append(_text(_LEFT + max(due, got) + 8, y + 15, f"{line['delivered']} of {line['expected']}"))
    return _svg(len(travellers) * 30 + 8, parts)


def timeline(evidence: Mapping[str, Lines]) -> str:
    """Return one strip per traveller: deliveries as they added up, times away, moves, and kills across."""
    taken = evidence["taken"]
    if not taken:
        return "<p>Nothing was delivered.</p>"
    moments = [line["at_us"] for line in taken] + [line["at_us"] for line in evidence["kills"]]
    moments += [line["moved_us"] for line in evidence["moves"]]
    start, end = min(moments), max(moments)
    span = _WIDTH - _LEFT - 10

    def x(at_us: int) -> float:
        return float(_LEFT + (min(max(at_us, start), end) - start) / max(end - start, 1) * span)

    users = list(dict.fromkeys(line["user"] for line in evidence["expected"]))
    parts = [_strip(user, n, evidence, x, end) for n, user in enumerate(users)]
    height = len(users) * _LINE
    for kill in evidence["kills"]:
        at = x(kill["at_us"])
        parts.append(_rect(at, 0, 1.5, height, "--bad", f"kill -9: {kill['who']}"))
        parts.append(_text(min(at, _WIDTH - 90), height + 28, f"kill -9 {kill['who']}"))
    seconds = (end - start) / 1e6
    parts += [_text(_LEFT, height + 14, "0 s"), _text(_WIDTH - 50, height + 14, f"{seconds:.1f} s")]
    legend = "Line: deliveries adding up. Shaded: away. Triangles: changes of address. Red: kill -9."
    return _svg(height + 34, parts) + f"<p class='quiet'>{legend}</p>"


def healing(moves: Lines) -> str:
    """Return one dot per change of address: how long until its traveller was connected again."""
    healed = [(name_of(m["user"]), (m["healed_us"] - m["moved_us"]) / 1e3) for m in moves if m["healed_us"] is not None]
    if not healed:
        return "<p>No change of address was healed.</p>"
    longest = max(ms for _, ms in healed)
    names = list(dict.fromkeys(name for name, _ in healed))
    parts = [_text(0, n * 24 + 16, name) for n, name in enumerate(names)]
    for name, ms in healed:
        x = _LEFT + ms / max(longest, 1e-9) * (_WIDTH - _LEFT - 60)
        y = names.index(name) * 24 + 12
        parts.append(
            f"<circle cx='{x:.1f}' cy='{y}' r='5' style='fill:var(--move)' fill-opacity='.75'>"
            f"<title>{ms:.0f} ms</title></circle>"
        )
    floor = len(names) * 24 + 16
    parts += [_text(_LEFT, floor, "0 ms"), _text(_WIDTH - 80, floor, f"{longest:.0f} ms")]
    return _svg(floor + 6, parts)


def name_of(user: str) -> str:
    """Return the user part of a ``sip:`` URI."""
    return user.removeprefix("sip:").partition("@")[0]


def _strip(user: str, n: int, evidence: Mapping[str, Lines], x: Any, end: int) -> str:
    top, height = n * _LINE + 4, _LINE - 10
    parts = [_text(0, top + height / 2 + 4, name_of(user))]
    for away in evidence["away"]:
        if away["user"] == user:
            left = x(away["from_us"])
            width = max(x(away["to_us"]) - left, 1.0)
            parts.append(_rect(left, top, width, height, "--away", str(away["why"])))
    times = [line["at_us"] for line in evidence["taken"] if line["user"] == user]
    if times:
        step = max(len(times) // 200, 1)
        points = [(x(at), top + height - (k + 1) / len(times) * height) for k, at in enumerate(times)][::step]
        line = " ".join(f"{px:.1f},{py:.1f}" for px, py in [*points, (x(end), top)])
        parts.append(f"<polyline points='{line}' fill='none' style='stroke:var(--good)' stroke-width='1.8'/>")
    for move in evidence["moves"]:
        if move["user"] == user:
            at, floor = x(move["moved_us"]), top + height
            parts.append(
                f"<path d='M{at:.1f} {floor - 9} l5 9 h-10 z' style='fill:var(--move)'>"
                f"<title>to {escape(str(move['address']))}</title></path>"
            )
    parts.append(_rect(_LEFT, top + height, _WIDTH - _LEFT - 10, 1, "--line"))
    return "".join(parts)


def _rect(x: float, y: float, width: float, height: float, colour: str, title: str = "") -> str:
    label = f"<title>{escape(title)}</title>" if title else ""
    return (
        f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' style='fill:var({colour})'>"
        f"{label}</rect>"
    )


def _text(x: float, y: float, text: str) -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}'>{escape(text)}</text>"


def _svg(height: float, parts: Sequence[str]) -> str:
    return f"<svg viewBox='0 0 {_WIDTH} {height:.0f}' role='img'>{''.join(parts)}</svg>"
