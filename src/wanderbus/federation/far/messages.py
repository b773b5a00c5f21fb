"""Messages of links between servers of two domains (decision 0165).

Gateways pass them on and know nothing of these links: a message that is lost on its way is missed by its number. A
message is a msgpack array whose first item is the kind.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from wanderbus.event import Number
from wanderbus.protocol.bases import Codec

VERSION: Final = 1
"""Version of what servers of two domains say to each other; from 1 on, they ask for the sessions of visitors."""

CONTACTS_MAX: Final = 4
TEXT_CHARACTERS_MAX: Final = 1_024

Contacts = Annotated[
    tuple[Annotated[str, msgspec.Meta(max_length=TEXT_CHARACTERS_MAX)], ...], msgspec.Meta(max_length=CONTACTS_MAX)
]
"""SIP URIs at which users of other domains call a server."""


class FarId(msgspec.Struct, frozen=True, array_like=True):
    """Identifier of a link at its opener: the life of that server, and a number."""

    epoch: Number
    number: Number


class FarMessage(msgspec.Struct, frozen=True, array_like=True):
    """Base of the messages; ``by_opener`` says which of the two servers has sent one."""

    id: FarId


class Called(FarMessage, frozen=True, tag=1):
    """The sender opens a link."""


class Answered(FarMessage, frozen=True, tag=2):
    """The link is open; its acceptor is called at ``contacts``, and speaks ``version``."""

    contacts: Contacts
    version: Number = 0


class Carried(FarMessage, frozen=True, tag=3):
    """Message ``number`` of the sender on this link, from 1 on."""

    by_opener: bool
    number: Number
    payload: bytes


class Probed(FarMessage, frozen=True, tag=4):
    """The sender lives, and has sent messages up to ``last``."""

    by_opener: bool
    last: Number


class Ended(FarMessage, frozen=True, tag=5):
    """The link is closed."""

    by_opener: bool
    reason: Annotated[str, msgspec.Meta(max_length=TEXT_CHARACTERS_MAX)]


Message = Called | Answered | Carried | Probed | Ended

_codec: Final[Codec[Message]] = Codec(Message, "a message of a server of another domain")
encode: Final = _codec.encode
decode: Final = _codec.decode
