"""What only a TCP endpoint is told, and its counters; the rest it shares with reliable UDP (``transport.py``)."""

from __future__ import annotations

from typing import Literal

import msgspec

from wanderbus.machine import Address, Input, StreamTarget


class Target(msgspec.Struct, frozen=True):
    """Where a TCP connection is opened to, a :class:`~wanderbus.machine.StreamTarget`.

    Equal targets share a TCP connection, which two data channels must not: ``attempt`` makes each its own.
    """

    transport: Literal["TCP", "TLS"]
    address: Address
    fingerprint: bytes | None = None
    """SHA-256 of the certificate that the other side has to show (RFC 8122 5)."""
    server_name: str | None = None
    attempt: int = 0

    @property
    def sip_domain(self) -> None:
        """A data channel belongs to a session, not to a SIP domain."""
        return None


class OpenConnection(Input, frozen=True):
    """Start the connection (``local_id``, ``remote_id``); replaces what had this local id.

    A pair must not be used again: numbers start anew.
    """

    local_id: int
    remote_id: int
    generation: int
    """That of the peer; our own is 0 until ``MovedHere``."""
    secret: bytes
    """Known to the two ends alone: with it each proves to the other that the pair is its own."""
    target: StreamTarget | None
    """Where we connect to (active, RFC 4145 4); None if the other side connects to us (passive)."""


class Counters(msgspec.Struct):
    """What an endpoint did since it was made; all rise only. Those from ``resets`` on end a TCP connection."""

    opened: int = 0
    """TCP connections that we began to open."""

    accepted: int = 0
    """TCP connections opened by others on which something came."""

    resumed: int = 0
    """Times that a connection went on over another TCP connection."""

    sent: int = 0
    """Messages sent, repetitions included."""

    repeated: int = 0
    """Messages that had to be sent again on another TCP connection."""

    received: int = 0
    """Messages taken from peers."""

    duplicates: int = 0
    """Messages that had been taken before (SPEC F-08)."""

    early: int = 0
    """HELLOs for an id that is allocated and not open yet; they wait for it."""

    resets: int = 0
    """HELLOs for an unknown id, refused."""

    wrong_pair: int = 0
    """HELLOs for an id that is open with another peer, or whose TCP connection is ours to open."""

    stale: int = 0
    """HELLOs of a generation below the one known."""

    forged: int = 0
    """Proofs that were wrong."""

    silent: int = 0
    """TCP connections that did not prove themselves in time."""

    malformed: int = 0
    """TCP connections that brought what is not this protocol, or not allowed then."""
