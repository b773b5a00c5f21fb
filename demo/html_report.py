"""The HTML report: one file with its plots inside, which opens without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from demo import html_domains, html_plots, html_walks
from demo.verdict import ENGINE_NAMES, FAULTS, headline, verdict

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2430; --quiet: #5b6576; --paper: #fff; --line: #d8dde6;
  --good: #1a8f5a; --bad: #c8322b; --due: #b9c7de; --away: #f2c14e; --move: #2f6fde; --tile: #f4f6f9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebf0; --quiet: #a3acba; --paper: #14181f; --line: #2d3440;
  --due: #4b5f80; --away: #8a6a1c; --move: #7ba7ff; --good: #4cc38a; --bad: #ff7a70; --tile: #1d232d; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 62rem; margin: 1.2rem auto; padding: 0 1rem; }
h1 { font-size: 1.35rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
.quiet { color: var(--quiet); font-size: .9rem; } .good { color: var(--good); } .bad { color: var(--bad); }
.verdict { font-size: 1.5rem; font-weight: 650; line-height: 1.25; margin: .2rem 0 1rem; }
.tiles { display: grid; grid-template-columns: repeat(4, 1fr); gap: .8rem; }
.tiles div { background: var(--tile); border-radius: .5rem; padding: .7rem .9rem; }
.tiles b { display: block; font-size: 2.4rem; line-height: 1.1; font-variant-numeric: tabular-nums; }
.tiles span { color: var(--quiet); font-size: .9rem; line-height: 1.3; display: block; }
@media (max-width: 40rem) { .tiles { grid-template-columns: repeat(2, 1fr); } .tiles b { font-size: 2rem; } }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
td { white-space: nowrap; } summary { cursor: pointer; padding: .3rem 0; }
th, td { padding: .25rem .45rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: bottom; }
th { font-weight: 600; } th:first-child, td:first-child { text-align: left; }
@media (max-width: 40rem) { table, tbody { display: block; } tr:first-child { display: none; }
  tr { display: grid; grid-template-columns: repeat(4, 1fr); border-bottom: 1px solid var(--line); padding: .3rem 0; }
  td { text-align: left; border: 0; padding: .15rem .2rem; } td:first-child { font-weight: 600; }
  td::before { content: attr(data-is); display: block; color: var(--quiet); font-size: .75rem; font-weight: 400; } }
code { font-size: .85em; overflow-wrap: anywhere; } li { margin: .3rem 0; }
"""

_HEADINGS: Final = ("traveller", "expected", "delivered", "lost", "repeated", "out of order", "away, s", "healed, ms")


def write_report(
    path: Path, result: Mapping[str, Any], evidence: Mapping[str, Sequence[Mapping[str, Any]]], server_page: str = ""
) -> None:
    """Write the report of ``result`` to ``path``; ``evidence`` holds the lines of the files of :mod:`demo.evidence`.

    ``server_page`` is the name of the file beside it with the report of the server.

    In addition, ``evidence["kills"]`` holds the moments at which processes were killed, {"who", "at_us"}, and
    ``evidence["outages"]`` the times without the server or Spark, {"who", "from_us", "to_us"}. A domain also has
    ``homes``, the first server of each user, {"user", "server"}, the ``walks`` of :mod:`demo.log_audit`, and ``drains``
    and ``group_moves`` of :mod:`demo.domain_operator`. So do several domains, without the latter, and with the ``cuts``
    of :mod:`demo.domains_operator` and the ``deliveries`` of :mod:`demo.crossings`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(result, evidence, server_page), encoding="utf-8")


def page(result: Mapping[str, Any], evidence: Mapping[str, Sequence[Mapping[str, Any]]], server_page: str = "") -> str:
    """Return the report as one HTML page: the verdict, four numbers and differences first."""
    of_domain = [("Where the sessions were", _walks(result, evidence))] if "walks" in evidence else []
    if "cuts" in evidence:
        of_domain.append(("Between the domains", html_domains.domains(evidence) + html_domains.words(result)))
    sections = (
        ("Differences", _differences(result)),
        ("The run in time", html_plots.timeline(evidence)),
        *of_domain,
        ("Healing after a change of address", html_plots.healing(evidence["moves"])),
        ("Latency of each subject", _subjects(result["subjects"])),
        ("Expected and delivered", html_plots.delivered(result["travellers"])),
        ("The run in words", _words(result)),
    )
    body = "\n".join(f"<h2>{escape(title)}</h2>\n{content}" for title, content in sections)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>wanderbus: a day of flights</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<style>{_STYLE}{html_plots.STYLE}{html_walks.STYLE if of_domain else ''}{html_domains.STYLE}</style></head>\n"
        f"<body><h1>wanderbus: a day of flights</h1>\n{_top(result)}\n{_link(server_page)}{body}\n</body></html>\n"
    )


_WHERE: Final = {"netns": "in network namespaces", "nat": "from NAT to NAT", "loopback": "in 127.0.0.0/8"}


def _top(result: Mapping[str, Any]) -> str:
    tone = "good" if result["good"] else "bad"
    tiles = "".join(
        f"<div><b class='{'' if each.good else 'bad'}'>{each.number}</b><span>{escape(each.caption)}</span></div>"
        for each in headline(result)
    )
    return f"<p class='verdict {tone}'>{escape(verdict(result))}</p><div class='tiles'>{tiles}</div>"


def _differences(result: Mapping[str, Any]) -> str:
    lines = result["travellers"]
    wrong = [line for line in lines if not line["good"]]
    every = (
        f"<details><summary>All {len(lines)} travellers</summary>{_table(lines)}</details>"
        f"<details><summary>Their subscriptions</summary>{_wishes(lines)}</details>"
    )
    trouble = "".join(f"<p class='bad'>{escape(line)}</p>" for line in result["trouble"])
    if not wrong:
        return f"{trouble}<p>None: each of the {len(lines)} travellers received exactly what it was due.</p>{every}"
    fine = len(lines) - len(wrong)
    return f"{trouble}{_table(wrong)}<p>The other {fine} received exactly what they were due.</p>{every}"


def _walks(result: Mapping[str, Any], evidence: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the plot of the walks between servers, and their number and gaps."""
    found = result["handovers"]
    causes = " and ".join(
        f"{count} because of {html_walks.CAUSES.get(cause, cause)}" for cause, count in found["causes"].items()
    )
    between = f", {found['between_domains']} of them between domains" if "between_domains" in found else ""
    gaps = [found["gap_ms"][name] for name in ("p50", "p95", "max")]
    within = (
        ""
        if None in gaps
        else f" Their devices got nothing for {gaps[0]:.0f} ms or less in half of them, {gaps[1]:.0f} ms in 95 %, and "
        f"{gaps[2]:.0f} ms at most: from the fence, or from an event that came later, to its acknowledgement."
    )
    return (
        f"{html_walks.walks(evidence)}<p class='quiet'>{found['moved']} handovers of sessions{between}: {causes}."
        f"{within} They were followed through the logs of all servers.</p>"
    )


def _link(server_page: str) -> str:
    """Return the link to the report of the server, if there is one."""
    if not server_page:
        return ""
    return (
        f"<p><a href='{escape(server_page, quote=True)}'>Report of the server</a>: losses, latency, queues, moves and "
        "times away, computed by Spark from the event log alone.</p>\n"
    )


def _subjects(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the latency of each subject."""
    headings = (
        "subject",
        "matched by",
        "published",
        "delivered",
        "half within, ms",
        "95 % within, ms",
        "all within, ms",
    )
    head = "".join(f"<th>{name}</th>" for name in headings)
    rows = []
    for line in lines:
        times = ["—" if value is None else f"{value:,.0f}" for value in line["latency_ms"].values()]
        values = [
            line["subject"],
            ENGINE_NAMES[line["engine"]],
            f"{line['published']:,}",
            f"{line['takings']:,}",
            *times,
        ]
        cells = [f"<td data-is='{name}'>{escape(value)}</td>" for name, value in zip(headings, values, strict=True)]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f"<table><tr>{head}</tr>{''.join(rows)}</table><p class='quiet'>From publishing to the traveller's commit, "
        "times away included. Events that Spark matches wait in the log while Spark is down.</p>"
    )


_COUNTED: Final = (
    "by a Spark job over the lake, into which Spark streamed the event log during the run, and the committed "
    "results of the travellers"
)
_COUNTED_DOMAIN: Final = "from the travellers' committed results, and from the logs of all servers"


def _words(result: Mapping[str, Any]) -> str:
    first, rows = result["slice"]["first_row"], result["slice"]["rows"]
    return (
        f"<p class='quiet'>{result['published']} departures and arrivals were published: rows {first} to "
        f"{first + rows - 1} of the flights from New York in 2013. Addresses changed {_WHERE[result['address_mode']]}. "
        f"SIP server: {escape(result['sip'])}; media relay: {escape(result['relay'])}. "
        "What each traveller was due is computed apart, by the reference evaluator over the input; what it received is "
        f"counted {_COUNTED_DOMAIN if result['engine'] == 'domain' else _COUNTED}. Healed: the time from a "
        "change of address until connected again, of half of the changes, of 95 % of them, and the longest.</p>"
    )


def _table(lines: Sequence[Mapping[str, Any]]) -> str:
    headings = _HEADINGS if not any(line["unexpected"] for line in lines) else (*_HEADINGS, "unexpected")
    head = "".join(f"<th>{name}</th>" for name in headings)
    return f"<table><tr>{head}</tr>{''.join(_row(line, headings) for line in lines)}</table>"


def _row(line: Mapping[str, Any], headings: Sequence[str]) -> str:
    times = [line["healing_ms"][name] for name in ("p50", "p95", "max")]
    values = [html_plots.name_of(line["user"])]
    values += [str(line[key]) for key in ("expected", "delivered", "lost", "repeated", "out_of_order")]
    values += [f"{line['away_s']:.1f}", "—" if times[0] is None else "/".join(f"{value:.0f}" for value in times)]
    wrong = {name for name in FAULTS if line[name]} | (
        {"delivered"} if line["delivered"] != line["expected"] else set()
    )
    cells = []
    values += [str(line["unexpected"])] if "unexpected" in headings else []
    for heading, value in zip(headings, values, strict=True):
        tone = "bad" if heading.replace(" ", "_") in wrong else ""
        # On a screen too narrow for a table, each cell shows its heading.
        cells.append(f"<td class='{tone}' data-is='{heading}'>{escape(value)}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _wishes(travellers: Sequence[Mapping[str, Any]]) -> str:
    items = []
    for line in travellers:
        wanted = zip(line["subjects"], line["subscriptions"], strict=True)
        texts = ", ".join(f"{escape(subject)} <code>{escape(text)}</code>" for subject, text in wanted)
        items.append(f"<li>{escape(html_plots.name_of(line['user']))}: {texts}</li>")
    return f"<ul>{''.join(items)}</ul>"
