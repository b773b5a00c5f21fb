"""Offers of links and answers to them, as received from another server."""

from __future__ import annotations

from typing import NamedTuple


class Offer(NamedTuple):
    """A received offer; ``data`` is the whole datagram."""

    opener: str
    acceptor: str
    opener_id: int
    public: bytes
    data: bytes


class Answer(NamedTuple):
    """A received answer; ``data`` is the whole datagram."""

    opener_id: int
    acceptor_id: int
    public: bytes
    data: bytes
