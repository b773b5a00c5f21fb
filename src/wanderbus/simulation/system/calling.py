"""Calls every device through the proxy: an agent that is registered answers there (RFC 3261 11)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wanderbus.machine import Address, shown
from wanderbus.simulation.network import Network
from wanderbus.simulation.server import DOMAIN, SERVER_ADDRESS
from wanderbus.simulation.world import World
from wanderbus.sip.message.message import Request, Response, encode_message, parse_message
from wanderbus.sip.message.uri import SIPUri

CALLER: Final[Address] = ("198.51.100.9", 5060)

PAUSE_S: Final = 5.0
"""Time between two calls of a device."""


def call_all(world: World, network: Network, names: Iterable[str], seconds: float) -> list[str]:
    """Call the users ``names`` until each has answered, for up to ``seconds``; return a problem for each silent one."""
    silent = set(names)
    count = 0

    def on_response(source: Address, data: bytes) -> None:
        response = parse_message(data)
        if isinstance(response, Response) and response.status == 200:
            silent.discard(SIPUri.parse(str(response.to.uri)).user or "")

    def call() -> None:
        nonlocal count
        for name in sorted(silent):
            count += 1
            network.send(CALLER, SERVER_ADDRESS, _question(name, count))
        if silent:
            world.after(PAUSE_S, call)

    network.bind(CALLER, on_response)
    call()
    world.run(world.now + seconds, lambda: not silent)
    network.unbind(CALLER)
    return [f"{name}: cannot be called" for name in sorted(silent)]


def _question(name: str, number: int) -> bytes:
    uri = f"sip:{name}@{DOMAIN}"
    headers = (
        ("Via", f"SIP/2.0/UDP {shown(CALLER)};rport;branch=z9hG4bKcaller{number}"),
        ("From", "<sip:caller@elsewhere.test>;tag=c"),
        ("To", f"<{uri}>"),
        ("Call-ID", f"question-{number}"),
        ("CSeq", "1 OPTIONS"),
        ("Max-Forwards", "70"),
    )
    return encode_message(Request("OPTIONS", uri, headers))
