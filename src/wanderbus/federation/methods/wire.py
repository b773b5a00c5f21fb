"""Messages between domains about filters: msgpack arrays whose first item is the kind."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Final, Literal

import msgspec

from wanderbus.channels.interest.messages import Message
from wanderbus.protocol.bases import Codec

Role = Literal["multicast", "asked", "spread", "tree"]
"""Way of a stream: directly, to a rendezvous, from a rendezvous, or along a tree."""

ROLES: Final[tuple[Role, ...]] = ("multicast", "asked", "spread", "tree")


EPOCH_MAX: Final = 2**51 - 1
"""Highest epoch of a gateway: a time in ms, and 8 bits for its place among the gateways of its domain."""

LINK_STATES_MAX: Final = 2**40
"""States of links in one epoch; an honest domain never has so many."""


class StreamCarried(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=1):
    """A message of a stream of interest, or the answer to one; ``role`` is the place of its way in :data:`ROLES`."""

    role: int
    message: Message


class TrustedType(msgspec.Struct, frozen=True, array_like=True):
    """A type, and the domains that the sender receives it from and sends it to.

    Bit n of each big-endian number stands for domain n of the message.
    """

    type: str
    receives: bytes
    sends: bytes

    @classmethod
    def of(cls, type: str, domains: Sequence[str], receives: Collection[str], sends: Collection[str]) -> TrustedType:
        """Return the type with the places of these domains among ``domains``."""
        return cls(type, _bits(domains, receives), _bits(domains, sends))


class TrustAnnounced(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=2):
    """Whom the sender trusts with the types whose rendezvous is the receiver; first on each link."""

    domains: tuple[str, ...]
    types: tuple[TrustedType, ...]

    def trusted(self) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
        """Return by type the domains that it is received from, and sent to."""
        return {each.type: (self._set(each.receives), self._set(each.sends)) for each in self.types}

    def _set(self, bits: bytes) -> frozenset[str]:
        number = int.from_bytes(bits, "big")
        return frozenset(each for place, each in enumerate(self.domains) if number >> place & 1)


class AnnouncedLink(msgspec.Struct, frozen=True, array_like=True):
    """A link to ``domain``: its distance, and whether the sender receives the type from it and sends it there."""

    domain: str
    distance: float
    receives: bool
    sends: bool


class LinkState(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=3):
    """The links of ``origin`` on which it shares ``type``, with a number in this epoch; all pass it on."""

    type: str
    origin: str
    epoch: Annotated[int, msgspec.Meta(ge=0, le=EPOCH_MAX)]
    number: Annotated[int, msgspec.Meta(ge=0, le=LINK_STATES_MAX)]
    links: tuple[AnnouncedLink, ...]


class TreeAdopted(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=4):
    """The sender has come to this tree of ``type`` and wants the position of the receiver in it."""

    type: str
    tree: int


class MethodsAnnounced(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=5):
    """Types that the sender wants of the receiver by another way than multicast.

    It is the first message on a link, if there are such types; it is sent again when they change.
    """

    rendezvous: tuple[str, ...]
    tree: tuple[str, ...]


DomainPayload = StreamCarried | TrustAnnounced | LinkState | TreeAdopted | MethodsAnnounced

_codec: Final[Codec[DomainPayload]] = Codec(DomainPayload, "a message between domains")
encode: Final = _codec.encode
decode: Final = _codec.decode


def _bits(domains: Sequence[str], chosen: Collection[str]) -> bytes:
    number = sum(1 << place for place, each in enumerate(domains) if each in chosen)
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def carried(role: Role, message: Message) -> bytes:
    """Return the bytes of a message of a stream."""
    return encode(StreamCarried(ROLES.index(role), message))
