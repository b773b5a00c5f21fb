"""Bases of the messages of both sides, and decoding of what another program has encoded."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from wanderbus.errors import RemoteProtocolError

Decoded = TypeVar("Decoded")


class AgentMessage(msgspec.Struct, frozen=True, array_like=True):
    """Base of the messages of an agent."""


class BrokerMessage(msgspec.Struct, frozen=True, array_like=True):
    """Base of the messages of a broker."""


def decoded(decoder: msgspec.msgpack.Decoder[Decoded], data: bytes, what: str) -> Decoded:
    """Return what ``data`` encodes; :class:`RemoteProtocolError`, which says that it is not ``what``, if invalid."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"not {what}: {error}", None) from None
