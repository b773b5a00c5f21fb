"""Messages between domains about filters: msgpack arrays whose first item is the kind."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from wanderbus.channels.interest.messages import Message
from wanderbus.protocol.bases import decoded

Role = Literal["multicast", "asked", "spread", "tree"]
"""Way of a stream: directly, to a rendezvous, from a rendezvous, or along a tree."""

ROLES: Final[tuple[Role, ...]] = ("multicast", "asked", "spread", "tree")


class StreamCarried(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """A message of a stream of interest, or the answer to one; ``role`` is the place of its way in :data:`ROLES`."""

    role: int
    message: Message


DomainPayload = StreamCarried

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[DomainPayload]] = msgspec.msgpack.Decoder(DomainPayload)


def encode(message: DomainPayload) -> bytes:
    """Return the bytes of ``message``."""
    return _encoder.encode(message)


def decode(payload: bytes) -> DomainPayload:
    """Return the message in ``payload``; :class:`RemoteProtocolError` if it is invalid."""
    return decoded(_decoder, payload, "a message between domains")


def carried(role: Role, message: Message) -> bytes:
    """Return the bytes of a message of a stream."""
    return encode(StreamCarried(ROLES.index(role), message))
