"""Messages between the gateways of two domains: msgpack arrays whose first item is the kind (SPEC M).

The gateway of the domain that wants events sends its filters. The other one sends the events of its servers, each
server's in the order in which that server has accepted them, and gets them acknowledged.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from wanderbus.event import EventId, Number
from wanderbus.limits import EVENT_BYTES_MAX, PAST_BYTES_MAX
from wanderbus.protocol.bases import Codec

NAME_CHARACTERS_MAX: Final = 255

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
"""Name of a server or of a domain."""

User = Annotated[str, msgspec.Meta(max_length=1_024)]

SERVERS_MAX: Final = 256
"""Servers of a domain at most."""

ServerNames = Annotated[tuple[Name, ...], msgspec.Meta(max_length=SERVERS_MAX)]


class GatewayMessage(msgspec.Struct, frozen=True, array_like=True):
    """Base of the messages of a gateway."""


class EventForwarded(GatewayMessage, frozen=True, tag=1):
    """An event that ``server`` of the sender's domain has accepted under ``id``.

    ``epoch`` and ``number`` are its place in what that server sends to the receiver's domain.
    """

    server: Name
    epoch: Number
    number: Number
    id: EventId
    event: msgspec.Raw


class EventsLost(GatewayMessage, frozen=True, tag=2):
    """``server`` has lost ``count`` events for the receiver's domain, up to this place, because of ``reason``."""

    server: Name
    epoch: Number
    number: Number
    count: Number
    reason: str


class EventsTaken(GatewayMessage, frozen=True, tag=3):
    """All events of ``server`` up to this place are durable in the sender's domain, or refused there for good."""

    server: Name
    epoch: Number
    number: Number


class FiltersSent(GatewayMessage, frozen=True, tag=4):
    """A message about filters, for :mod:`wanderbus.federation.methods`."""

    payload: bytes


class FiltersBegun(GatewayMessage, frozen=True, tag=5):
    """The sender has forgotten all filters, and tells all of its own; the receiver answers, and does so, too."""


class FarForwarded(GatewayMessage, frozen=True, tag=6):
    """A message of the server ``source`` of the sender's domain for ``target`` of the receiver's."""

    source: Name
    target: Name
    payload: bytes


class ServersWanted(GatewayMessage, frozen=True, tag=7):
    """Question of the server ``source`` for the servers here, and the one that is to take a session of ``user``."""

    source: Name
    user: User


class ServersNamed(GatewayMessage, frozen=True, tag=8):
    """Answer to ``target``: all servers of the sender's domain, and the ``chosen`` one, "" if none can be reached."""

    target: Name
    user: User
    servers: ServerNames
    chosen: str


class FiltersAnswered(GatewayMessage, frozen=True, tag=9):
    """All messages about filters before this one are of the time before :class:`FiltersBegun`; all filters follow."""


class OrderStated(GatewayMessage, frozen=True, tag=10):
    """The sender asks for causal order with the receiver's domain."""


class EventPassed(GatewayMessage, frozen=True, tag=11):
    """An event of ``server`` that the receiver's domain wants no more, and that others may wait for there.

    Its fields are those of :class:`EventForwarded`.
    """

    server: Name
    epoch: Number
    number: Number
    id: EventId


Message = (
    EventForwarded
    | EventsLost
    | EventsTaken
    | FiltersSent
    | FiltersBegun
    | FarForwarded
    | ServersWanted
    | ServersNamed
    | FiltersAnswered
    | OrderStated
    | EventPassed
)

EVENT_MESSAGE_BYTES_MAX: Final = EVENT_BYTES_MAX + PAST_BYTES_MAX + 1024
"""Largest message with an event."""

_codec: Final[Codec[Message]] = Codec(Message, "a message of a gateway")
encode: Final = _codec.encode
decode: Final = _codec.decode
