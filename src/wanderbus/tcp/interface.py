"""Inputs specific to a TCP endpoint, and its counters; ``transport.py`` has those shared with reliable UDP."""

from __future__ import annotations

from enum import Enum, auto
from typing import Literal

import msgspec

from wanderbus.machine import Address, StreamTarget
from wanderbus.transport import ConnectionRequest


class TcpTarget(msgspec.Struct, frozen=True):
    """Destination of a TCP connection, a :class:`~wanderbus.machine.StreamTarget`.

    Equal targets share a TCP connection, which two data channels must not do: ``attempt`` makes each target unique.
    """

    transport: Literal["TCP", "TLS"]
    address: Address
    fingerprint: bytes | None = None
    """SHA-256 of the certificate that the peer must show (RFC 8122 5)."""
    server_name: str | None = None
    attempt: int = 0

    @property
    def sip_domain(self) -> None:
        """None: a data channel belongs to a session, not to a SIP domain."""
        return None


class OpenConnection(ConnectionRequest, frozen=True):
    """Start the connection (``local_id``, ``remote_id``); it replaces one with the same local id.

    A pair must not be reused, because message numbers start again at 0.
    """

    remote_id: int
    generation: int
    """Generation of the peer's path; the own one is 0 until ``MovedHere``."""
    secret: bytes
    """Secret of the two ends, by which each proves to the other that it belongs to the pair."""
    target: StreamTarget | None
    """Destination to connect to (active, RFC 4145 4); None if the peer connects (passive)."""


class Counters(msgspec.Struct):
    """Counters of an endpoint since its creation; they never decrease. Those from ``resets`` on close a connection."""

    opened: int = 0
    """TCP connections opened by this side, also unsuccessfully."""

    accepted: int = 0
    """Accepted TCP connections that received data."""

    resumed: int = 0
    """Number of times that a connection continued over another TCP connection."""

    sent: int = 0
    """Messages sent, including repeated ones."""

    repeated: int = 0
    """Messages that had to be sent again on another TCP connection."""

    received: int = 0
    """Messages accepted from peers."""

    duplicates: int = 0
    """Repeated messages, discarded (SPEC F-08)."""

    early: int = 0
    """HELLOs for an id that is allocated and not open yet; they wait until it is."""

    resets: int = 0
    """HELLOs for an unknown id, refused."""

    wrong_pair: int = 0
    """HELLOs for an id that is open with another peer, or whose TCP connection this side must open."""

    stale: int = 0
    """HELLOs with a generation below the known one."""

    forged: int = 0
    """Invalid proofs."""

    silent: int = 0
    """TCP connections without a proof before the timeout."""

    malformed: int = 0
    """TCP connections that received invalid frames, or frames not allowed at that time."""


class Phase(Enum):
    """Phase of the handshake."""

    ACCEPTED = auto()
    """Accepted; waits for the HELLO."""
    PARKED = auto()
    """Accepted; the HELLO arrived before the connection was opened here."""
    WELCOMED = auto()
    """Accepted; waits for the PROOF."""
    REFUSED = auto()
    """A RESET was sent; the peer closes the connection."""
    CALLING = auto()
    """Opened by this side; waits for the WELCOME."""
    PROVEN = auto()
    """Authenticated: it is, or was, in use by a connection."""
    OVER = auto()
    """Closed: further input is ignored."""
