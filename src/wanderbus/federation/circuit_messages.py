"""Messages between a gateway and the servers of its own domain (decision 0161).

A *circuit* connects the session of a foreign domain at a server with a gateway: what an agent and its broker say to
each other travels on it. A gateway that does not use its links to other domains passes them on to one that does
(decision 0166). A message is a prefix and a msgpack array whose first item is the kind.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from wanderbus.event import Number
from wanderbus.federation.wire import NAME_CHARACTERS_MAX, Name, ServerNames, User
from wanderbus.protocol.bases import Codec

FEDERATION_PREFIX: Final = b"\x06"
"""First byte of a message about other domains; messages of agents are arrays, and begin with another."""

LinkName = Annotated[str, msgspec.Meta(min_length=1, max_length=2 * NAME_CHARACTERS_MAX + 1)]
"""Name of a gateway, with its domain."""


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


class LinkMessage(PeerMessage, frozen=True):
    """Base of the messages about a link to another domain that one gateway has and another one uses.

    ``number`` is that of the link at the gateway that has it.
    """

    number: Number


class ForeignLinkOpened(LinkMessage, frozen=True, tag=5):
    """The sender has a link which the receiver is to use; ``name`` is that of the gateway at the other end."""

    name: LinkName
    is_ours: bool = False
    """True if the sender has opened it, because the receiver has asked for that."""


class ForeignLinkMessage(LinkMessage, frozen=True, tag=6):
    """A message that came on the link, or one to send there."""

    payload: bytes


class ForeignLinkClosed(LinkMessage, frozen=True, tag=7):
    """The link is closed, or the gateway that uses it wants that; ``reason`` is a text for people."""

    reason: str


class ForeignLinkConsumed(LinkMessage, frozen=True, tag=8):
    """The gateway that uses the link has finished with the next ``count`` messages."""

    count: Number


class LossReported(PeerMessage, frozen=True, tag=9):
    """The gateway reports that ``count`` events of ``domain`` are lost, the last of them at its ``server``."""

    domain: Name
    server: Name
    count: Number
    reason: str


class EverywhereAsked(PeerMessage, frozen=True, tag=10):
    """A server asks when all interest that it has sent counts in the domains that the gateway has links to."""

    number: Number


class EverywhereAnswered(PeerMessage, frozen=True, tag=11):
    """The gateway answers that it counts there."""

    number: Number


SharedLinkMessage = ForeignLinkOpened | ForeignLinkMessage | ForeignLinkClosed | ForeignLinkConsumed


class ToFar(PeerMessage, frozen=True, tag=12):
    """A message of this server for ``server`` of another domain, which a gateway passes on if it has a link there."""

    domain: Name
    server: Name
    payload: bytes


class FromFar(PeerMessage, frozen=True, tag=13):
    """A message of ``server`` of another domain for the receiver."""

    domain: Name
    server: Name
    payload: bytes


class ServersAsked(PeerMessage, frozen=True, tag=14):
    """Question for the servers of another domain, and the one that is to take a session of ``user``."""

    domain: Name
    user: User


class ServersTold(PeerMessage, frozen=True, tag=15):
    """Answer to :class:`ServersAsked`."""

    domain: Name
    user: User
    servers: ServerNames
    chosen: str


class PartBegun(PeerMessage, frozen=True, tag=16):
    """The sender's part in the federation has begun again: on this link, all that was sent before is forgotten."""


class ForeignLinkAsked(PeerMessage, frozen=True, tag=17):
    """The gateway that uses all links asks the receiver for one to the gateway ``name``, or needs it no longer."""

    name: LinkName
    is_wanted: bool


Message = (
    PartBegun
    | CircuitOpened
    | CircuitMessage
    | CircuitClosed
    | InterestSent
    | SharedLinkMessage
    | LossReported
    | EverywhereAsked
    | EverywhereAnswered
    | ToFar
    | FromFar
    | ServersAsked
    | ServersTold
    | ForeignLinkAsked
)

_codec: Final[Codec[Message]] = Codec(Message, "a message about other domains", FEDERATION_PREFIX)
encode: Final = _codec.encode
decode: Final = _codec.decode
