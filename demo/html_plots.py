"""The report's plots, as scalable HTML and SVG: positions are per cent, so that text keeps its size on any screen.

Colours are the page's own; no library, and no external resource.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Final

from demo.network import SPARK
from wanderbus.plots.charts import ticks

STYLE: Final = """
.plot { display: grid; grid-template-columns: auto 1fr; column-gap: .7rem; align-items: center; padding-right: 1.4rem; }
.plot .name { font-size: .85rem; line-height: 1.15; } .plot small { color: var(--quiet); }
.area { position: relative; height: 2.1rem; border-bottom: 1px solid var(--line); }
.area svg { position: absolute; inset: 0; width: 100%; height: 100%; }
.area polyline { fill: none; stroke: var(--good); stroke-width: 1.8; vector-effect: non-scaling-stroke; }
.area i { position: absolute; } .band { top: 0; bottom: 0; } .away { background: var(--away); opacity: .75; }
.outage { background: var(--bad); opacity: .28; } .waiting { background: var(--move);
  opacity: .13; } .kill { top: 0; bottom: 0; width: 2px; background: var(--bad); }
.move { bottom: 0; margin-left: -5px; border: 5px solid transparent;
  border-top: 0; border-bottom: 9px solid var(--move); }
.bar { left: 0; } .due { top: .35rem; bottom: .35rem; background: var(--due); }
.got { top: .75rem; bottom: .75rem; background: var(--good); } .got.wrong { background: var(--bad); }
.dot { top: .7rem; width: 10px; height: 10px; margin-left: -5px; border-radius: 5px; background: var(--move);
  opacity: .75; }
.axis { position: relative; height: 1.6rem; font-size: .75rem; color: var(--quiet); }
.axis span { position: absolute; top: .4rem; transform: translateX(-50%); white-space: nowrap; }
.axis span::before { content: ""; position: absolute; left: 50%; top: -.4rem; height: .35rem; width: 1px;
  background: var(--ink); }
.unit { grid-column: 2; text-align: center; font-size: .75rem; color: var(--quiet); }
.flag { position: relative; height: 1.3rem; font-size: .75rem; color: var(--bad); }
.flag span { position: absolute; white-space: nowrap; }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .85rem; color: var(--quiet); padding: 0; }
.key li { list-style: none; } .key i { display: inline-block; width: 1.1rem; height: .8rem; margin-right: .35rem;
  vertical-align: -.08rem; } .key .line { height: 2px; background: var(--good); vertical-align: .25rem; }
.key .move { width: 0; height: 0; border-top: 0; margin-left: 0; } .key .kill { width: 2px; }
"""

Lines = Sequence[Mapping[str, Any]]


def delivered(travellers: Lines) -> str:
    """Return bars of the due notifications of each traveller (behind) and its delivered ones (in front)."""
    longest = max((max(line["expected"], line["delivered"]) for line in travellers), default=0) or 1
    rows = []
    for line in travellers:
        due, got = (line[key] / longest * 100 for key in ("expected", "delivered"))
        wrong = "" if line["good"] else " wrong"
        bars = (
            f"<i class='bar due' style='width:{due:.2f}%'></i><i class='bar got{wrong}' style='width:{got:.2f}%'></i>"
        )
        counts = f"{line['delivered']} of {line['expected']}"
        rows.append(row(name_of(line["user"]), counts, f"<div class='area'>{bars}</div>"))
    key = "<ul class='key'><li><i class='due'></i>expected</li><li><i class='got'></i>delivered</li></ul>"
    return key + plot("notifications expected and delivered", rows, longest, "notifications")


def timeline(evidence: Mapping[str, Lines]) -> str:
    """Return one strip for each traveller, deliveries adding up over time, with the outages of the server and of Spark
    across all, or with the time in which a domain was cut off.
    """
    if not evidence["taken"]:
        return "<p>Nothing was delivered.</p>"
    x, seconds = time_scale(evidence)
    across = outages(evidence, x)
    across += [f"<i class='kill' style='left:{x(each['at_us']):.2f}%'></i>" for each in evidence["kills"]]
    across += [band(cut, "outage", f"{cut['who']} cut off", x) for cut in evidence.get("cuts", ())]
    users = list(dict.fromkeys(line["user"] for line in evidence["expected"]))
    rows = [flags(evidence, x), *(_strip(user, evidence, x, across) for user in users)]
    key = (
        "<ul class='key'><li><i class='line'></i>deliveries, adding up</li><li><i class='away'></i>traveller away</li>"
        f"{_DOMAINS_KEY if 'cuts' in evidence else _KILLS_KEY}<li><i class='move'></i>change of address</li></ul>"
    )
    return key + plot("deliveries to each traveller over time", rows, seconds, "seconds since the first event")


_KILLS_KEY: Final = (
    "<li><i class='outage'></i>server down</li><li><i class='waiting'></i>Spark down</li>"
    "<li><i class='kill'></i>kill -9</li>"
)
_DOMAINS_KEY: Final = "<li><i class='outage'></i>a domain cut off</li>"


def healing(moves: Lines) -> str:
    """Return one dot for each change of address: the time until its traveller was connected again."""
    healed = [(name_of(m["user"]), (m["healed_us"] - m["moved_us"]) / 1e3) for m in moves if m["healed_us"] is not None]
    if not healed:
        return "<p>No change of address was healed.</p>"
    longest = max(ms for _, ms in healed) or 1.0
    rows = []
    for name in dict.fromkeys(name for name, _ in healed):
        times = [ms for other, ms in healed if other == name]
        dots = "".join(
            f"<i class='dot' style='left:{ms / longest * 100:.2f}%' title='{ms:.0f} ms'></i>" for ms in times
        )
        rows.append(row(name, f"{max(times):.0f} ms", f"<div class='area'>{dots}</div>"))
    return plot("time to heal each change of address", rows, longest, "milliseconds until connected again")


def name_of(user: str) -> str:
    """Return the user part of a ``sip:`` URI."""
    return user.removeprefix("sip:").partition("@")[0]


def time_scale(evidence: Mapping[str, Lines]) -> tuple[Callable[[int], float], float]:
    """Return the position of a moment in per cent, and the seconds from the first to the last."""
    moments = [line["at_us"] for name in ("taken", "kills") for line in evidence[name]]
    moments += [line["moved_us"] for line in evidence["moves"]]
    moments += [line["to_us"] for line in evidence["outages"]]
    start, end = min(moments), max(moments)
    span = max(end - start, 1)
    return lambda at_us: (min(max(at_us, start), end) - start) / span * 100, span / 1e6


def _strip(user: str, evidence: Mapping[str, Lines], x: Callable[[int], float], across: Sequence[str]) -> str:
    parts = [*across]
    parts += [band(away, "away", str(away["why"]), x) for away in evidence["away"] if away["user"] == user]
    times = [line["at_us"] for line in evidence["taken"] if line["user"] == user]
    if times:
        step = max(len(times) // 200, 1)
        points = [(x(at), 100 - (k + 1) / len(times) * 94) for k, at in enumerate(times)][::step]
        line = " ".join(f"{px:.2f},{py:.1f}" for px, py in [*points, (100.0, 6.0)])
        parts.append(f"<svg viewBox='0 0 100 100' preserveAspectRatio='none'><polyline points='{line}'/></svg>")
    for move in evidence["moves"]:
        if move["user"] == user:
            title = escape(f"to {move['address']}", quote=True)
            parts.append(f"<i class='move' style='left:{x(move['moved_us']):.2f}%' title='{title}'></i>")
    return row(name_of(user), str(len(times)), f"<div class='area'>{''.join(parts)}</div>")


def flags(evidence: Mapping[str, Lines], x: Callable[[int], float]) -> str:
    """Return the lines above the strips, one for each kill: they may be too close for one line on a small screen."""
    lines = []
    for kill in evidence["kills"]:
        at = x(kill["at_us"])
        down_us = [
            each["to_us"] - each["from_us"]
            for each in evidence["outages"]
            if each["who"] == kill["who"] and each["from_us"] >= kill["at_us"]
        ]
        text = f"{'Spark' if kill['who'] == SPARK else kill['who']} killed" + (
            f", down {down_us[0] / 1e6:.1f} s" if down_us else ""
        )
        lines.append(flag("flag", text, at))
    return "".join(lines)


def flag(kind: str, text: str, at: float, mark: str = "") -> str:
    """Return a line above the strips with a text beside the position ``at``, and perhaps a mark."""
    edge = f"left:{at:.2f}%" if at < 50 else f"right:{100 - at:.2f}%"
    return f"<div></div><div class='{kind}'>{mark}<span style='{edge}'>{escape(text)}</span></div>"


def outages(evidence: Mapping[str, Lines], x: Callable[[int], float]) -> list[str]:
    """Return the times without a server or Spark, as bands across a strip."""
    return [
        band(outage, "waiting" if outage["who"] == SPARK else "outage", f"{outage['who']} down", x)
        for outage in evidence["outages"]
    ]


def band(span: Mapping[str, Any], kind: str, title: str, x: Callable[[int], float]) -> str:
    """Return a time as a band across a strip."""
    left = x(span["from_us"])
    width = max(x(span["to_us"]) - left, 0.2)
    shown = escape(title, quote=True)
    return f"<i class='band {kind}' style='left:{left:.2f}%;width:{width:.2f}%' title='{shown}'></i>"


def row(name: str, note: str, area: str) -> str:
    """Return a row of a plot: its name, a note below it, and its area."""
    return f"<div class='name'>{escape(name)}<br><small>{escape(note)}</small></div>{area}"


def plot(label: str, rows: Sequence[str], limit: float, unit: str) -> str:
    """Return a plot with an axis from 0 to ``limit``."""
    marks = "".join(f"<span style='left:{at / limit * 100:.2f}%'>{at:g}</span>" for at in ticks(limit))
    axis = f"<div></div><div class='axis'>{marks}</div><div class='unit'>{escape(unit)}</div>"
    return f"<div class='plot' role='img' aria-label='{escape(label, quote=True)}'>{''.join(rows)}{axis}</div>"
