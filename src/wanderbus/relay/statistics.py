"""Figures of calls and of the relay: with rtpengine's names where it has them, and additional ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from wanderbus.hosts import network_of
from wanderbus.machine import Address
from wanderbus.refusals import Limited
from wanderbus.relay.calls import Dialogue, RelayedCall
from wanderbus.relay.figures import Figures
from wanderbus.relay.stream import Side

if TYPE_CHECKING:
    from wanderbus.relay.machine import Relay

LISTED: Final = 32
"""Calls that are listed by default, as in rtpengine."""

UNNAMED: Final = "relay"
"""Party in a report if the command does not name the source of the call, or a stream's source is unknown."""

_US: Final = 1_000_000
_ERRORS: Final = ("unknown_source", "nowhere", "over_rate", "unsent")
"""Figures that count datagrams which were not forwarded."""


def of_call(call: RelayedCall) -> dict[str, Any]:
    """Return the figures in the reply to a query, or to the deletion of a call."""
    total = summed(side.figures for side in call.sides())
    nothing = {"packets": 0, "bytes": 0, "errors": 0}
    tags: dict[str, Any] = {}
    for dialogue in call.dialogues:
        for index, tag in enumerate((dialogue.caller, dialogue.callee)):
            tags[tag] = _of_party(dialogue, index)
    return {
        "created": call.created_us // _US,
        "created_us": call.created_us % _US,
        "tags": tags,
        "totals": {"RTP": _stats(total), "RTCP": nothing},
    }


def limited(setting: str, host: str, reason: str, count: int = 1) -> Limited:
    """Return the report that a limit of the relay was applied to ``host``."""
    return Limited(f"relay.limits.{setting}", network_of(host) if host else UNNAMED, reason, count)


def limited_streams(sides: Iterable[Side]) -> list[Limited]:
    """Return reports on the datagrams and connections that streams' limits refused since the last call."""
    reports = []
    for side in sides:
        over_rate, refused = side.unreported()
        host = "" if side.source is None else side.source[0]
        if over_rate:
            reports.append(limited("stream_datagrams_per_s", host, "dropped: too many datagrams or bytes", over_rate))
        if refused:
            reports.append(limited("connections_max", host, "connections refused", refused))
    return reports


def first_of(calls: Mapping[str, RelayedCall], limit: object) -> list[str]:
    """Return the ids of the oldest ``limit`` calls; the limit may be a number or its digits."""
    most = int(limit) if isinstance(limit, int) or (isinstance(limit, str) and limit.isdecimal()) else LISTED
    return list(islice(calls, min(max(most, 0), len(calls))))


def of_relay(relay: Relay) -> dict[str, Any]:
    """Return the current and the cumulative figures of a relay."""
    living = [side for call in relay.calls.values() for side in call.sides()]
    return {
        "calls": len(relay.calls),
        "ports": len(relay.sides),
        "counters": msgspec.structs.asdict(relay.counters),
        "streams": msgspec.structs.asdict(summed([relay.figures, *(side.figures for side in living)])),
    }


def summed(figures: Iterable[Figures]) -> Figures:
    """Return the sum of ``figures``."""
    total = Figures()
    for each in figures:
        for name in Figures.__struct_fields__:
            setattr(total, name, getattr(total, name) + getattr(each, name))
    return total


def _of_party(dialogue: Dialogue, index: int) -> dict[str, Any]:
    tags = dialogue.caller, dialogue.callee
    medias = [
        {"index": place, "protocol": stream[index].transport, "streams": [_of_side(stream[index])]}
        for place, stream in enumerate(dialogue.streams, 1)
        if stream is not None
    ]
    return {"tag": tags[index], "in dialogue with": tags[1 - index], "medias": medias}


def _of_side(side: Side) -> dict[str, Any]:
    return {
        "local port": side.port,
        "endpoint": _of_address(side.source),
        "advertised endpoint": _of_address(side.announced),
        "stats": _stats(side.figures),
        "figures": msgspec.structs.asdict(side.figures),
    }


def _of_address(address: Address | None) -> dict[str, Any]:
    if address is None:
        return {}
    return {"family": "IPv6" if ":" in address[0] else "IPv4", "address": address[0], "port": address[1]}


def _stats(figures: Figures) -> dict[str, int]:
    errors = sum(getattr(figures, name) for name in _ERRORS)
    return {"packets": figures.datagrams, "bytes": figures.bytes, "errors": errors}
