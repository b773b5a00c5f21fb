"""Payload of an event between servers in the decentralised model: its id, its time, and the event (SPEC K-04)."""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.event import EventId
from wanderbus.protocol.bases import decoded


class Payload(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event that a server accepted under ``id`` at ``at_us`` by its clock; it stays encoded."""

    id: EventId
    at_us: int
    event: msgspec.Raw


_decoder: Final = msgspec.msgpack.Decoder(Payload)


def encode_payload(id: EventId, at_us: int, event: bytes) -> bytes:
    """Return the payload of an event; the same for the same event at all servers."""
    return msgspec.msgpack.encode(Payload(id, at_us, msgspec.Raw(event)))


def decode_payload(data: bytes) -> Payload:
    """Return what :func:`encode_payload` encoded; :class:`RemoteProtocolError` if it is invalid."""
    return decoded(_decoder, data, "an event of another server")
