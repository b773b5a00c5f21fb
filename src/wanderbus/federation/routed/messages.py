"""Messages of links that go through other domains: a prefix, and msgpack arrays whose first item is the kind.

Between two gateways that have a link, :data:`HopMessage`; within :class:`Passed`, :data:`EndMessage` from one end of a
routed link to the other.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from wanderbus.event import Number
from wanderbus.federation.methods.filter_bounds import DOMAINS_MAX
from wanderbus.federation.wire import Name
from wanderbus.limits import EVENT_NAME_CHARACTERS_MAX
from wanderbus.protocol.bases import Codec

ROUTED_PREFIX: Final = b"\x07"
"""First byte of these messages; other messages of gateways are arrays, and begin with another."""

Path = Annotated[tuple[Name, ...], msgspec.Meta(min_length=3, max_length=DOMAINS_MAX + 1)]
"""Domains from one end of a routed link to the other."""


class HopBase(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """Base of the messages between two gateways."""


class StateAnnounced(HopBase, frozen=True, tag=1):
    """Links of some domain that know a type, as :mod:`wanderbus.federation.methods.wire` writes them."""

    payload: bytes


class Passed(HopBase, frozen=True, tag=2):
    """A message from the first domain of ``path`` to the last one; the receiver has this ``place`` in it."""

    type: Annotated[str, msgspec.Meta(min_length=1, max_length=EVENT_NAME_CHARACTERS_MAX)]
    path: Path
    place: Annotated[int, msgspec.Meta(ge=1, le=DOMAINS_MAX)]
    payload: bytes


class PassedTaken(HopBase, frozen=True, tag=3):
    """The sender has finished with the next ``count`` messages :class:`Passed` on this link."""

    count: Number


class LinkId(msgspec.Struct, frozen=True, array_like=True):
    """Identifier of a routed link at the domain that opens it: the life of that gateway, and a number."""

    epoch: Number
    number: Number


class EndBase(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """Base of the messages between the ends of a routed link."""

    id: LinkId


class RoutedCalled(EndBase, frozen=True, tag=1):
    """The sender opens a link."""


class RoutedAnswered(EndBase, frozen=True, tag=2):
    """The link is open."""


class RoutedCarried(EndBase, frozen=True, tag=3):
    """Message ``number`` of the sender on this link, from 1 on."""

    number: Number
    payload: bytes


class RoutedProbed(EndBase, frozen=True, tag=4):
    """The sender lives, has sent messages up to ``last``, and has finished with the first ``finished`` ones it got."""

    last: Number
    finished: Number


class RoutedEnded(EndBase, frozen=True, tag=5):
    """The link is closed; ``reason`` is a text for people."""

    reason: Annotated[str, msgspec.Meta(max_length=1_024)]


HopMessage = StateAnnounced | Passed | PassedTaken
EndMessage = RoutedCalled | RoutedAnswered | RoutedCarried | RoutedProbed | RoutedEnded

_hops: Final[Codec[HopMessage]] = Codec(HopMessage, "a message on its way between domains", ROUTED_PREFIX)
encode_hop: Final = _hops.encode
decode_hop: Final = _hops.decode

_ends: Final[Codec[EndMessage]] = Codec(EndMessage, "a message of a routed link")
encode_end: Final = _ends.encode
decode_end: Final = _ends.decode
