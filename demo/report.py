"""The HTML report: one file with its plots inside, which opens without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from demo import plots
from demo.reckoning import verdict

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --quiet: #667085; --paper: #fff; --line: #d8dde6;
  --good: #1a8f5a; --bad: #c8322b; --due: #9fb3d1; --away: #f2c14e; --move: #2f6fde; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebf0; --quiet: #98a2b3; --paper: #14181f; --line: #2d3440;
  --due: #4b5f80; --away: #8a6a1c; --move: #7ba7ff; --good: #4cc38a; --bad: #ff7a70; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p.quiet { color: var(--quiet); } .good { color: var(--good); } .bad { color: var(--bad); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; } .wide { overflow-x: auto; }
th, td { padding: .25rem .8rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } tr.all td { font-weight: 600; }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); font-size: 12px; } svg .quiet { fill: var(--quiet); }
code { font-size: .9em; }
"""

_HEADINGS: Final = ("traveller", "expected", "delivered", "lost", "repeated", "out of order", "time away")


def write_report(path: Path, result: Mapping[str, Any], evidence: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Write the report of ``result`` to ``path``; ``evidence`` holds the lines of the files of :mod:`demo.evidence`.

    ``evidence["kills"]`` holds the moments at which processes were killed: {"who", "at_us"}.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(result, evidence), encoding="utf-8")


def page(result: Mapping[str, Any], evidence: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the report as one HTML page."""
    sections = (
        ("What each traveller was due, and got", _table(result)),
        ("Expected and delivered", plots.delivered(result["travellers"])),
        ("The run in time", plots.timeline(evidence)),
        ("Healing after a change of address", plots.healing(evidence["moves"])),
        ("Who wanted what", _wishes(result["travellers"])),
    )
    body = "\n".join(f"<h2>{escape(title)}</h2>\n{content}" for title, content in sections)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>wanderbus: a day of departures</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<style>{_STYLE}</style></head>\n"
        f"<body><h1>A day of departures</h1>\n{_summary(result)}\n{body}\n</body></html>\n"
    )


_WHERE: Final = {"netns": "in network namespaces", "nat": "from NAT to NAT", "loopback": "in 127.0.0.0/8"}


def _summary(result: Mapping[str, Any]) -> str:
    delivered = sum(line["delivered"] for line in result["travellers"])
    tone = "good" if result["good"] else "bad"
    word = f"<strong class='{tone}'>{escape(verdict(result))}</strong>"
    where = _WHERE[result["address_mode"]]
    kills = result["kills"]
    return (
        f"<p>{result['published']} departures were published and {delivered} notifications delivered to "
        f"{len(result['travellers'])} travellers, while addresses changed {result['address_changes']} times "
        f"({where}), the server was killed {_times(kills['server'])} "
        f"and a traveller {_times(kills['agent'])}: {word}.</p>"
        f"<p class='quiet'>SIP server: {escape(result['sip'])}; media relay: {escape(result['relay'])}.</p>"
        f"<p class='quiet'>Rows {result['slice']['first_row']} to "
        f"{result['slice']['first_row'] + result['slice']['rows'] - 1} of the departures from New York in 2013. "
        "Expected is computed apart, by the reference evaluator over the input; the rest by a Spark job over the "
        "event log and what the travellers committed.</p>"
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _table(result: Mapping[str, Any]) -> str:
    head = "".join(f"<th>{name}</th>" for name in (*_HEADINGS, "healing p50", "p95", "max"))
    rows = "".join(_row(line) for line in result["travellers"])
    return f"<div class='wide'><table><tr>{head}</tr>{rows}</table></div>"


def _row(line: Mapping[str, Any]) -> str:
    cells = [f"<td>{escape(line['user'])}</td>"]
    cells += [f"<td>{line[key]}</td>" for key in ("expected", "delivered")]
    cells += [
        f"<td class='{'bad' if line[key] else 'good'}'>{line[key]}</td>" for key in ("lost", "repeated", "out_of_order")
    ]
    cells.append(f"<td>{line['away_s']:.1f} s</td>")
    for name in ("p50", "p95", "max"):
        value = line["healing_ms"][name]
        cells.append("<td>—</td>" if value is None else f"<td>{value:.0f} ms</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _wishes(travellers: Sequence[Mapping[str, Any]]) -> str:
    items = []
    for line in travellers:
        texts = ", ".join(f"<code>{escape(text)}</code>" for text in line["subscriptions"])
        items.append(f"<li>{escape(line['user'])}: {texts}</li>")
    return f"<ul>{''.join(items)}</ul>"
