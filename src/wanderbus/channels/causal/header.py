"""Causal header of an event, and the causal past of a session (SPEC K-06).

Servers of a domain have small numbers, which are never used twice; a set of servers is a bitmap of these numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

Origin = tuple[int, int]
"""A publishing server: its number and its incarnation, which grows when it loses its log."""

Dot = tuple[Origin, int]
"""An event: its origin, and its number there, from 1 on."""


def bitmap(servers: Iterable[int]) -> int:
    """Return the bitmap of ``servers``."""
    bits = 0
    for server in servers:
        bits |= 1 << server
    return bits


def members(bits: int) -> Iterator[int]:
    """Yield the servers of a bitmap, in ascending order."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


class HeaderEntry(msgspec.Struct, frozen=True, array_like=True):
    """Event ``number`` of ``origin`` was sent to ``servers``, and may not have been delivered there."""

    origin: Origin
    number: int
    servers: int

    def concerns(self, server: int) -> bool:
        """Return whether the event was sent to ``server``."""
        return bool(self.servers >> server & 1)


class Header(msgspec.Struct, frozen=True, array_like=True):
    """Dot, destinations and causes of one event; the same for every destination."""

    origin: Origin
    number: int
    befores: tuple[tuple[int, int], ...]
    """Each destination, and the number of the event of this origin that was sent to it before; 0 if none was."""
    entries: tuple[HeaderEntry, ...] = ()
    """Causes that a destination waits for, and what this event tells about other servers."""
    settled: int = 0
    """Every event of this origin up to this number is delivered at all its destinations but the ``lagging``."""
    lagging: int = 0

    @property
    def dot(self) -> Dot:
        """Return the name of the event."""
        return self.origin, self.number

    @property
    def servers(self) -> int:
        """Return the bitmap of the destinations."""
        return bitmap(server for server, _ in self.befores)

    def causes_at(self, server: int) -> tuple[Dot, ...]:
        """Return what ``server`` has to deliver before this event."""
        before = tuple((self.origin, number) for each, number in self.befores if each == server and number)
        return before + tuple((entry.origin, entry.number) for entry in self.entries if entry.concerns(server))


class CausalPast(msgspec.Struct, frozen=True, array_like=True):
    """Causal past of a session that moves: what its server has delivered, and what others may still lack.

    It is the past of the whole server, which includes that of each of its sessions.
    """

    seen: tuple[Dot, ...]
    """The last event of each origin that was delivered or published at the server."""
    entries: tuple[HeaderEntry, ...]
    domains: bytes = b""
    """Causes in other domains, encoded as those of an event; empty if there are none."""

    def causes_at(self, server: int) -> tuple[Dot, ...]:
        """Return what ``server`` has to deliver before the session continues there."""
        return tuple((entry.origin, entry.number) for entry in self.entries if entry.concerns(server))
