"""Inputs and outputs of :class:`~wanderbus.peers.session_owners.SessionOwners`, and what it sends on links.

A message between servers is a prefix and a msgpack array whose first item is the kind.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from wanderbus.machine import CancelTimer, Input, Output, SetTimer, TimerFired
from wanderbus.peers.far_servers import FarServerMet
from wanderbus.peers.messages import (
    CloseServerLink,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.protocol.bases import Codec
from wanderbus.sip.proxy.visit_proofs import VisitProof

OWNER_PREFIX: Final = b"\x04"
"""First byte of a message about the owner of a session; messages of agents are arrays, and begin with another."""

TEXT_CHARACTERS_MAX: Final = 1_024
"""Largest length of a user or of a contact in a message."""

CONTACTS_MAX: Final = 4
"""Most contacts of a server: one for each transport."""


class OwnerWanted(Input, frozen=True):
    """Decide which server serves the new call of ``user``.

    :class:`CallServed`, :class:`CallRedirected` or :class:`CallPostponed` follows. The caller wants to join
    ``session``, "" if that is unknown, and has subscriptions at the server ``former``. With ``follows``, the device was
    in a call here as the session left. A call that is not decided yet is ignored.
    """

    call: str
    user: str
    session: str = ""
    former: str = ""
    follows: bool = False


class CallServed(Output, frozen=True):
    """This server serves the call; of the user :attr:`unowned` no server has a session, "" if that is not certain.

    If there is a ``session``, no server has this one.
    """

    call: str
    unowned: str = ""
    session: str = ""


class CallRedirected(Output, frozen=True):
    """Another server owns a session of the caller: redirect the call to one of its ``contacts``, SIP URIs."""

    call: str
    contacts: tuple[str, ...]


class CallPostponed(Output, frozen=True):
    """The server ``former``, which has subscriptions of the caller, cannot be reached: let the call come again."""

    call: str
    former: str


class CallRefused(Output, frozen=True):
    """The call is not served for ``reason``; the caller may call again."""

    call: str
    reason: str


class VisitorStays(Output, frozen=True):
    """The ``session`` of a visitor does not come here, as a server of the visitor's domain says with its ``reason``."""

    user: str
    session: str
    reason: str


OfVisitors = CallServed | CallRedirected | CallRefused
"""Decisions about the calls of visitors."""


class VisitorCalled(Input, frozen=True):
    """Decide about the new call of ``user``, who may be of another domain, and whose session nobody owns here.

    :class:`CallServed`, :class:`CallRedirected` or :class:`CallRefused` follows. ``is_certain`` is true if no server of
    the domain can own the ``session``. ``visit`` proves the call to the user's own domain.
    """

    call: str
    user: str
    session: str = ""
    is_certain: bool = False
    visit: VisitProof | None = None


OwnersInput = OwnerWanted | ServerLinkOpened | ServerLinkClosed | ServerMessageReceived | FarServerMet | TimerFired
"""Inputs of the owners of sessions."""

OwnersOutput = CallServed | CallRedirected | CallPostponed | SendOnServerLink | CloseServerLink | SetTimer | CancelTimer
"""Outputs of the owners of sessions."""

Text = Annotated[str, msgspec.Meta(max_length=TEXT_CHARACTERS_MAX)]
Contacts = Annotated[tuple[Text, ...], msgspec.Meta(max_length=CONTACTS_MAX)]


class OwnerAsked(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Question whether the receiver has this session of ``user``, or any if ``session`` is ""."""

    request: int
    user: Text
    session: Text = ""


class OwnerAnswered(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Answer to ``request``: the SIP URIs of the answering server if it has a session of the user, else none.

    A server that has given the session up names the one that owns it in ``owner_epoch``. One to which it is on its way
    names itself. One that takes new sessions has its SIP URIs in ``takes_at``. ``is_exact`` is true if it has the very
    session that was asked for.
    """

    request: int
    contacts: Contacts
    next_owner: Text = ""
    owner_epoch: int = 0
    takes_at: Contacts = ()
    is_exact: bool = False


Message = OwnerAsked | OwnerAnswered

_codec: Final[Codec[Message]] = Codec(Message, "a message about the owner of a session", OWNER_PREFIX)
encode: Final = _codec.encode
decode: Final = _codec.decode
