"""Attack: its name, its load, and the goals besides those of every attack."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import msgspec

PASSWORD: Final = "secret"
DOMAIN: Final = "localhost"
ATTACKERS: Final = ("mallory", "trudy", "oscar", "sybil")
"""Users of the server who are hostile; strangers have no account."""

PAGES_PORT: Final = 5110
"""Port of the pages for monitoring, if the server serves them."""

OPERATOR: Final = "judy"
"""User who is neither a good agent nor an attacker, and administrator."""


class Target(msgspec.Struct, frozen=True):
    """Addresses and times that an attacker receives."""

    server: str
    sip_port: int
    broker_port: int
    data_port: int
    stream_port: int
    tls_port: int
    seconds: float
    """Duration of the attack."""

    directory: str
    """A directory of the attacker's own."""

    eci_port: int = 0
    """Address of the original ECI, if it is served."""

    trace: str = ""
    """The server's SIP trace, for attackers that are assumed to see signalling."""


Report = Mapping[str, float]
"""Figures of an attacker: ``sent`` requests, ``sent_bytes`` with IP headers, and its other counters."""

Load = Callable[[Target], Awaitable[Report]]


class Attack(NamedTuple):
    """One attack. It runs in a process of its own on the host ``attacker``, at a lower priority than the others."""

    name: str
    """Words joined by underscores: part of the names of goals."""

    row: str
    """Row of the table of docs/SECURITY.md that it belongs to, or "own"."""

    summary: str
    """One line: who sends what, at which rate."""

    load: Load
    """Attack for ``target.seconds`` and return the figures."""

    user_input: bool = False
    """True if users send input that the server accepts and works on, such as filters: the work could delay others."""

    has_hole: bool = False
    """True if the load is only datagrams: then it goes to a sink while the good agents are measured without attack."""

    amplification: bool = False
    """True if bytes that reach the host ``victim`` are compared with those that were sent."""

    guesses_max: int | None = None
    """Bound of ``guesses_admitted`` of the load's report, for those that guess passwords."""

    restarts: bool = False
    """True if the server is restarted at the end, which has to be quick in spite of the attack's traces."""

    compiled: bool = False
    """True if a busy time comes first, so that the server has the compiled loops that any load makes it load once."""

    damage: str = ""
    """File of the data directory that is damaged while the server is stopped; it is then started again."""

    traced: bool = False
    """True if the attacker can see signalling, by a SIP trace of the server."""

    short_segments: bool = False
    """True if the server's log begins a new segment every few seconds, for which it needs a descriptor."""

    lying: bool = False
    """True if the server belongs to a domain of three, of which one lies, and good agents are at the other two."""

    neighbour: bool = False
    """True if the server shares events with another domain, which lies."""

    eci: bool = False
    """True if the server also serves the original ECI, on an address that everybody reaches."""

    pages: bool = False
    """True if the server also serves pages for monitoring, over TLS."""

    ipv6: bool = False
    """True if server, good agents and attacker have IPv6 only."""

    spares: tuple[str, ...] = ()
    """Goals of all attacks that this one is exempt from."""

    quick: bool = False
    """True if it belongs to the short form."""

    seconds: float | None = None
    """Its duration, unless it is the common one."""
