"""Shared call for the tests of the trace: its caller moves, between two user agents and a server in memory."""

from __future__ import annotations

import re

from tests.mobility.world import SERVER, World, settled
from wanderbus.machine import Address
from wanderbus.sip.message.targets import Transport
from wanderbus.sip.trace.trace import Trace
from wanderbus.sip.trace.trace_entry import TraceEntry

BEGAN_US = 1_700_000_000_000_000
ALICE: Address = ("10.0.2.1", 5060)
BROKER: Address = ("10.0.1.1", 5060)
DIGEST_VALUES = re.compile(rb'(?:nonce|cnonce|response|nextnonce|rspauth)="([^"]+)"')


class EvenRandom:
    """A network of which every delay is the mean one."""

    def token(self, n_bytes: int) -> bytes:
        return bytes(n_bytes)

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


def entry(data: bytes, at_us: int = BEGAN_US, *, transport: Transport = "UDP") -> TraceEntry:
    """An entry from alice to the server."""
    return TraceEntry(at_us, ALICE, SERVER, transport, "out", data)


def moving_call() -> list[TraceEntry]:
    """REGISTER, INVITE and, from another address, re-INVITE: as it was on the wire, with all its secrets."""
    world = World()
    world.random = EvenRandom()  # type: ignore[assignment]
    broker = world.phone("broker", BROKER[0], authenticates=True, register_expires_s=300)
    alice = world.phone("alice", ALICE[0], register_expires_s=300)
    world.run_until(lambda: bool(world.registered_at("broker") and world.registered_at("alice")))
    alice.call("broker")
    world.run_until(lambda: settled(alice, broker))
    world.run(1.0)
    alice.move("10.0.9.9")
    world.run_until(lambda: settled(alice, broker))
    world.run(1.0)
    return [
        TraceEntry(BEGAN_US + round((sent.at - 100.0) * 1e6), sent.source, sent.destination, "UDP", "out", sent.data)
        for sent in world.trace
    ]


def traced(entries: list[TraceEntry]) -> Trace:
    """The entries in a trace, as it keeps them."""
    trace = Trace()
    for each in entries:
        trace.add(each)
    return trace


def secrets_of(entries: list[TraceEntry]) -> set[bytes]:
    """Every digest value that went over the wire."""
    return {found for each in entries for found in DIGEST_VALUES.findall(each.data)}
