"""Offers of links, answers to them and refusals, as received from another server."""

from __future__ import annotations

from typing import NamedTuple


class LinkOffer(NamedTuple):
    """A received offer; ``tables`` are the digests of the opener's tables, ``data`` is the whole datagram."""

    opener: str
    acceptor: str
    opener_id: int
    public: bytes
    tables: bytes
    data: bytes


class LinkAnswer(NamedTuple):
    """A received answer; ``data`` is the whole datagram."""

    opener_id: int
    acceptor_id: int
    public: bytes
    data: bytes


class LinkRefusal(NamedTuple):
    """A received refusal with the digests of the acceptor's ``tables``; ``data`` is the whole datagram."""

    opener_id: int
    tables: bytes
    data: bytes
