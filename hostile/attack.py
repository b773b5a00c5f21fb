"""An attack: its name, what it does, and the goals that hold beside those of every attack."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import msgspec

PASSWORD: Final = "secret"
DOMAIN: Final = "localhost"
ATTACKERS: Final = ("mallory", "trudy", "oscar", "sybil")
"""Users of the server who are hostile; strangers have no account."""


class Target(msgspec.Struct, frozen=True):
    """Addresses and times that an attacker gets to know."""

    server: str
    sip_port: int
    broker_port: int
    data_port: int
    stream_port: int
    tls_port: int
    seconds: float
    """How long to attack."""

    directory: str
    """A directory of the attacker's own."""

    eci_port: int = 0
    """Where the original ECI is served, if it is."""

    trace: str = ""
    """The server's SIP trace, for attackers who are held to see what is signalled."""


Report = Mapping[str, float]
"""Figures of an attacker: ``sent`` requests, ``sent_bytes`` with IP headers, and whatever else it counted."""

Load = Callable[[Target], Awaitable[Report]]


class Attack(NamedTuple):
    """One attack. It runs in a process of its own on the host ``attacker``, at a lower priority than the others."""

    name: str
    """Words joined by underscores: it is part of the names of goals."""

    row: str
    """Row of the table of docs/SECURITY.md that it belongs to, or "own"."""

    summary: str
    """One line: who sends what, at which rate."""

    load: Load
    """Attack for ``target.seconds`` and return what was done."""

    has_hole: bool = False
    """Whether the load is datagrams alone: then it goes to a hole while the good agents are measured without attack."""

    amplification: bool = False
    """Whether bytes that reach the host ``victim`` are held to those that were sent."""

    guesses_max: int | None = None
    """Bound of ``guesses_admitted`` of the load's report, for those that guess passwords."""

    restarts: bool = False
    """Whether the server is restarted at the end, which has to be quick in spite of what the attack left."""

    compiled: bool = False
    """Whether a busy time comes first, so that the server has the compiled loops that any load makes it load once."""

    damage: str = ""
    """File of the data directory that is damaged while the server is stopped; it is then started again."""

    traced: bool = False
    """Whether the attacker can see what is signalled, by a SIP trace of the server."""

    short_segments: bool = False
    """Whether the server's log begins a new segment every few seconds, for which it needs a descriptor."""

    eci: bool = False
    """Whether the server also serves the original ECI, on an address that everybody reaches."""

    ipv6: bool = False
    """Whether server, good agents and attacker have IPv6 only."""

    spares: tuple[str, ...] = ()
    """Goals of all attacks that this one is not held to."""

    quick: bool = False
    """Whether it belongs to the short form."""

    seconds: float | None = None
    """How long it lasts, unless as long as all others."""
