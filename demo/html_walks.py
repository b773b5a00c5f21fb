"""Plot of the walks: the server that had each traveller's session over time, and what moved or drained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Final

from demo.html_plots import Lines, band, flag, flags, name_of, outages, plot, row, time_scale

STYLE: Final = """
.at { top: .25rem; bottom: .45rem; padding-left: .3rem; box-sizing: border-box; overflow: hidden; white-space: nowrap;
  font-style: normal; font-size: .75rem; line-height: 1.4rem; color: #fff; }
.n0 { background: #2f6fde; } .n1 { background: #8a4fbf; } .n2 { background: #1a7f6b; } .n3 { background: #a3541a; }
.drain { background: repeating-linear-gradient(135deg, var(--ink) 0 2px, transparent 2px 6px); }
.group { top: 0; bottom: 0; width: 2px; background: var(--ink); }
.key .at { padding: 0; } .key .group { width: 2px; }
.walks .move { border-bottom-color: var(--ink); } .walks .area { overflow: hidden; }
.deed { position: relative; height: 1.3rem; font-size: .75rem; } .deed span { position: absolute; white-space: nowrap; }
.deed i { position: absolute; } .deed .drain { top: .2rem; bottom: .2rem; } .deed .drain + span { padding: 0 .3rem; }
"""

COLOURS: Final = 4

CAUSES: Final[Mapping[str, str]] = {
    "network": "the network of the new address",
    "drain": "the drain of the server",
    "user": "a request of the traveller",
    "visit": "a call of the traveller in another domain",
}


def walks(evidence: Mapping[str, Lines]) -> str:
    """Return a strip for each traveller: the servers of its session, one after another, and its changes of address."""
    x, seconds = time_scale(evidence)
    across = outages(evidence, x)
    across += [band(cut, "cut", f"{cut['who']} cut off", x) for cut in evidence.get("cuts", ())]
    across += [f"<i class='group' style='left:{x(each['to_us']):.2f}%'></i>" for each in evidence["group_moves"]]
    rows = [*_deeds(evidence, x), flags(evidence, x)]
    servers = servers_of(evidence)
    rows += [_strip(home["user"], home["server"], evidence, servers, x, across) for home in evidence["homes"]]
    names = "".join(f"<li><i class='at {kind}'></i>session at {escape(name)}</li>" for name, kind in servers.items())
    key = (
        f"<ul class='key'>{names}<li><i class='move'></i>change of address</li>"
        f"{_DOMAINS_KEY if 'cuts' in evidence else _DOMAIN_KEY}</ul>"
    )
    drawn = plot("servers of each session over time", rows, seconds, "seconds since the first event")
    return f"<div class='walks'>{key}{drawn}</div>"


_DOMAIN_KEY: Final = (
    "<li><i class='drain'></i>server drains</li><li><i class='outage'></i>a server down</li>"
    "<li><i class='group'></i>channel group moves</li>"
)
_DOMAINS_KEY: Final = "<li><i class='cut'></i>a domain cut off</li>"


def servers_of(evidence: Mapping[str, Lines]) -> Mapping[str, str]:
    """Return the servers that have sessions, each with the class of its colour."""
    names = {home["server"] for home in evidence["homes"]} | {walk["target"] for walk in evidence["walks"]}
    return {name: f"n{place % COLOURS}" for place, name in enumerate(sorted(names))}


def _strip(
    user: str,
    home: str,
    evidence: Mapping[str, Lines],
    servers: Mapping[str, str],
    x: Callable[[int], float],
    across: Sequence[str],
) -> str:
    own = [walk for walk in evidence["walks"] if walk["user"] == user]
    begins = [(0.0, home, ""), *((x(each["imported_us"]), each["target"], each["cause"]) for each in own)]
    ends = [*(x(each["fenced_us"]) for each in own), 100.0]
    parts = []
    for (begin, server, cause), end in zip(begins, ends, strict=True):
        title = f"at {server}" + (f", because of {CAUSES.get(cause, cause)}" if cause else "")
        style = f"left:{begin:.2f}%;width:{max(end - begin, 0.2):.2f}%"
        parts.append(
            f"<i class='at {servers[server]}' style='{style}' title='{escape(title, quote=True)}'>{server}</i>"
        )
    parts += [
        f"<i class='move' style='left:{x(move['moved_us']):.2f}%' title='to {move['address']}'></i>"
        for move in evidence["moves"]
        if move["user"] == user
    ]
    count = f"{len(own)} walk{'' if len(own) == 1 else 's'}" if own else "stays"
    return row(name_of(user), count, f"<div class='area'>{''.join([*parts, *across])}</div>")


def _deeds(evidence: Mapping[str, Lines], x: Callable[[int], float]) -> list[str]:
    """Return a line for each server that drained, with its time, and for each channel group that moved."""
    drains = [
        flag("deed", f"{each['who']} drains", x(each["to_us"]), band(each, "drain", f"{each['who']} drains", x))
        for each in evidence["drains"]
    ]
    return drains + [
        flag("deed", f"{each['to']} leads {each['subject']} in place of {each['who']}", x(each["to_us"]))
        for each in evidence["group_moves"]
    ]
