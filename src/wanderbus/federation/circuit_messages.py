"""Messages between a gateway and the servers of its own domain (decision 0161).

A *circuit* connects the session of a foreign domain at a server with a gateway: what an agent and its broker say to
each other travels on it. A message is a prefix and a msgpack array whose first item is the kind.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.event import Number
from wanderbus.federation.wire import Name
from wanderbus.protocol.bases import decoded

FEDERATION_PREFIX: Final = b"\x06"
"""First byte of a message about other domains; messages of agents are arrays, and begin with another."""


class PeerMessage(msgspec.Struct, frozen=True, array_like=True):
    """Base of the messages between a gateway and a server."""


class CircuitOpened(PeerMessage, frozen=True, tag=1):
    """The gateway opens a circuit for ``domain``, in place of an earlier one of this link for that domain."""

    circuit: Number
    domain: Name


class CircuitMessage(PeerMessage, frozen=True, tag=2):
    """A message of the foreign domain's session, from either side; it is ignored on a circuit that is not open."""

    circuit: Number
    payload: bytes


class CircuitClosed(PeerMessage, frozen=True, tag=3):
    """The sender has closed a circuit; ``reason`` is a text for people."""

    circuit: Number
    reason: str


class InterestSent(PeerMessage, frozen=True, tag=4):
    """A message about what the server's own users want of other domains, in either direction."""

    payload: bytes


Message = CircuitOpened | CircuitMessage | CircuitClosed | InterestSent

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """Return the bytes of ``message``, with the prefix."""
    return FEDERATION_PREFIX + _encoder.encode(message)


def decode(payload: bytes) -> Message:
    """Return the message in ``payload``, which is without the prefix; :class:`RemoteProtocolError` if invalid."""
    return decoded(_decoder, payload, "a message about other domains")
