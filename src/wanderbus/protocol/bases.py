"""Bases of the messages of both sides, and decoding of what another program has encoded."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

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


class Codec(Generic[Decoded]):
    """Messages of servers as bytes: msgpack, behind a prefix that tells some of them from others on a link.

    :param kind: type of the messages, such as a union
    :param what: what they are, for people
    """

    def __init__(self, kind: Any, what: str, prefix: bytes = b"") -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Decoded] = msgspec.msgpack.Decoder(kind)
        self._what = what
        self._prefix = prefix

    def encode(self, message: Decoded) -> bytes:
        """Return the bytes of a message, with the prefix."""
        return self._prefix + self._encoder.encode(message)

    def decode(self, payload: bytes) -> Decoded:
        """Return the message in ``payload``, without the prefix; :class:`RemoteProtocolError` if it is invalid."""
        return decoded(self._decoder, payload, self._what)
