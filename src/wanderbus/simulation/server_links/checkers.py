"""Checks of the links between servers: messages, pairs, rest, and answers to strangers (SPEC J-12)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wanderbus.simulation.server_links.server import LinkedServer

_HEADER = struct.Struct("!QI")


class LinkRecord:
    """A link as its holder saw it: what it sent, and how much it received."""

    def __init__(self, number: int, holder: str, peer: str, is_ours: bool) -> None:
        self.number = number
        self.holder = holder
        self.peer = peer
        self.is_ours = is_ours
        self.sent: list[bytes] = []
        self.received = 0
        self.pair = 0
        """Number of the same link at the peer, once a message has come from there."""


def encode_message(number: int, index: int, filling: bytes) -> bytes:
    """Return message ``index`` of the link that its sender calls ``number``."""
    return _HEADER.pack(number, index) + filling


def check_message(records: Mapping[int, LinkRecord], link: LinkRecord, payload: bytes) -> str | None:
    """Return the problem of a message that came on ``link``; None if it is the next of the one link at the peer."""
    where = f"{link.holder}: link {link.number}"
    number, index = _HEADER.unpack_from(payload) if len(payload) >= _HEADER.size else (0, 0)
    sender = records.get(number)
    if sender is None or index >= len(sender.sent) or sender.sent[index] != payload:
        return f"{where} received what nobody sent"
    if (sender.holder, sender.peer) != (link.peer, link.holder) or sender.is_ours == link.is_ours:
        return f"{where} received a message of link {number} of {sender.holder}"
    if link.pair not in (0, number) or sender.pair not in (0, link.number):
        return f"{where} received messages of two links"
    link.pair, sender.pair = number, link.number
    if index != link.received:
        return f"{where} received message {index} in place of {link.received}"
    link.received += 1
    return None


def check_open(servers: Mapping[str, LinkedServer]) -> Iterator[str]:
    """Yield a problem for each wanted link that is not open on both sides, and for each other link."""
    for server in servers.values():
        for is_ours in (True, False):
            there = sorted(link.peer for link in server.links.values() if link.is_ours == is_ours)
            expected = (
                server.wanted if is_ours else {each.name for each in servers.values() if server.name in each.wanted}
            )
            if there != sorted(expected):
                kind = "own" if is_ours else "accepted"
                yield f"{server.name} has {kind} links with {there}, not with {sorted(expected)}"


def check_delivered(servers: Mapping[str, LinkedServer]) -> Iterator[str]:
    """Yield a problem for each open link whose messages are not all at the other end, which must be open too."""
    links = {number: link for server in servers.values() for number, link in server.links.items()}
    for link in links.values():
        other = links.get(link.pair)
        if other is None or other.pair != link.number:
            yield f"{link.holder}: link {link.number} to {link.peer} has no open other end"
        elif other.received != len(link.sent):
            yield f"{link.holder}: link {link.number} delivered {other.received} of {len(link.sent)} messages"


def check_rest(servers: Iterable[LinkedServer]) -> Iterator[str]:
    """Yield a problem for each server that has more than the state of its open links."""
    for server in servers:
        timers = [key for key in server.node.timers.keys if isinstance(key, tuple)]
        of_links = [key for key in timers if key[0] == "rudp"]
        if server.machine.pending or any(key[0] not in ("rudp", "look") for key in timers):
            yield f"{server.name} still opens or accepts links: {server.machine.pending} pending, timers {timers}"
        if len(of_links) != len(server.links):
            yield f"{server.name} has {len(server.links)} links and {len(of_links)} connections"
        if server.unreachable:
            yield f"{server.name} has not reported that {sorted(server.unreachable)} can be reached again"
