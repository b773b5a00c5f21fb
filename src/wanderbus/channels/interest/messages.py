"""Messages of interest between servers: msgpack arrays whose first item is the kind (SPEC J-10, K-05, K-07).

A *stream* tells one server the interest, or the advertisements, of an origin in one channel group. Its sender numbers
the changes by (incarnation, version); versions only rise, and each message names the one that it follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.interest_forms import interest_form
from wanderbus.errors import FilterError, RemoteProtocolError
from wanderbus.filters import parse
from wanderbus.filters.merging import filter_of
from wanderbus.filters.normal import NormalForm
from wanderbus.protocol.bases import Codec

Kind = Literal["interest", "advertisements"]


class Stream(msgspec.Struct, frozen=True, array_like=True):
    """A stream: the channel ``group``, the access server ``origin`` whose filters it carries, and their ``kind``."""

    group: int
    origin: str
    kind: Kind = "interest"


class NumberedFilter(msgspec.Struct, frozen=True, array_like=True):
    """A filter in ECI for events of ``subject``, None for every subject; its ``number`` is unique in an incarnation."""

    number: int
    subject: str | None
    expression: str

    @classmethod
    def of(cls, number: int, interest: Interest) -> NumberedFilter:
        """Return the filter of ``interest``."""
        return cls(number, interest.subject, filter_of(interest.conjunction).text)

    def form(self) -> NormalForm:
        """Return the normal form of the filter; :class:`RemoteProtocolError` if the expression is invalid."""
        try:
            return interest_form(parse(self.expression))
        except FilterError as error:
            raise RemoteProtocolError(f"interest with an invalid filter: {error}", None) from None


class StreamMessage(msgspec.Struct, frozen=True, array_like=True):
    """Base: a message of ``stream`` that concerns ``version`` of an ``incarnation`` of its sender."""

    stream: Stream
    incarnation: int
    version: int


class InterestPosition(StreamMessage, frozen=True, tag=1):
    """Position of the sender on a new link, without its filters; the receiver has ``confirmed`` this version."""

    confirmed: int = 0


class InterestChanged(StreamMessage, frozen=True, tag=2):
    """Filters that are added and removed at once, after version ``previous``; 0 is the empty beginning."""

    previous: int
    added: tuple[NumberedFilter, ...]
    removed: tuple[int, ...]


class InterestWhole(StreamMessage, frozen=True, tag=3):
    """All filters as of this version."""

    filters: tuple[NumberedFilter, ...]


class InterestConfirmed(StreamMessage, frozen=True, tag=4):
    """The receiver has applied everything up to this version, which came by multicast if ``is_multicast``."""

    is_multicast: bool = False


class InterestRequested(StreamMessage, frozen=True, tag=5):
    """Request for the whole, from a receiver that missed something before this version."""


class InterestRefused(StreamMessage, frozen=True, tag=6):
    """The receiver knows this later incarnation of the sender."""


class ChangeForMany(msgspec.Struct, frozen=True, array_like=True):
    """An :class:`InterestChanged` for several servers, which may follow another version at each of them.

    ``receivers`` has each such version, and the servers that have it: bit n of the big-endian number is server n.
    """

    stream: Stream
    incarnation: int
    version: int
    receivers: tuple[tuple[int, bytes], ...]
    added: tuple[NumberedFilter, ...]
    removed: tuple[int, ...]

    @classmethod
    def of(cls, change: InterestChanged, receivers: Mapping[int, int]) -> ChangeForMany:
        """Return ``change`` for these receivers: the set of servers, as bits, by the version that it follows there."""
        sets = tuple([(version, _bytes_of(servers)) for version, servers in receivers.items()])
        return cls(change.stream, change.incarnation, change.version, sets, change.added, change.removed)

    def for_server(self, number: int) -> InterestChanged | None:
        """Return the change as the server of this number gets it; None if it is for others only."""
        for previous, servers in self.receivers:
            if int.from_bytes(servers, "big") >> number & 1:
                return InterestChanged(self.stream, self.incarnation, self.version, previous, self.added, self.removed)
        return None


FromSender = InterestPosition | InterestChanged | InterestWhole
FromReceiver = InterestConfirmed | InterestRequested | InterestRefused
Message = FromSender | FromReceiver

_codec: Final[Codec[Message]] = Codec(Message, "a message of interest")
encode: Final = _codec.encode
decode: Final = _codec.decode
_changes_for_many: Final[Codec[ChangeForMany]] = Codec(ChangeForMany, "a change of interest")
encode_for_many: Final = _changes_for_many.encode
decode_for_many: Final = _changes_for_many.decode


def _bytes_of(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")
