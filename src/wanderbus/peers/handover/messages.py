"""Messages between servers about sessions that move (SPEC L-02; decision 0142).

::

    source                                                target
      │ Part of an offer: the subscriptions  ────────────▶  │  awaits the session, tells all servers what it wants
      │ ◀────────────────────────────────────── MoveReady   │
      │ HeadAsked, HeadAnswered: all other servers              │
      │ fences                                              │
      │ Part of an export: everything        ────────────▶  │  imports
      │ ◀────────────────────────────────────── MoveTaken   │
      │ drops the export                                    │

A long queue follows in pieces, a few of them at once (decision 0153)::

      │ Part of an export: its first piece   ────────────▶  │  imports
      │ ◀──────────────────────────────────── RestWanted    │  serves devices
      │ drops what the target has                           │
      │ Part of a rest: the next piece       ────────────▶  │  adds it
      │ ◀──────────────────────────────────── RestWanted    │
      │ ... the last piece                   ────────────▶  │  reads its log
      │ ◀────────────────────────────────────── MoveTaken   │

A device that has come without its session makes its server ask the former one: PastAsked, PastAnswered (decision 0149).

A server that is to transfer a session to a dormant instance, or to make one of a copy, asks the others: HeadAsked with
a question, SessionAnswered.

A server of another domain that a user has called asks for the user's session: VisitorCame, VisitorAnswered.

A message is a prefix and a msgpack array whose first item is the kind.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from wanderbus.broker.sessions.handover_messages import (
    DORMANT_MAX,
    DevicePast,
    Head,
    Name,
    PastQuestion,
    SessionQuestion,
)
from wanderbus.channels.interest.messages import NumberedFilter
from wanderbus.event import Number
from wanderbus.protocol.bases import Codec
from wanderbus.sip.proxy.visit_proofs import MAC_BYTES
from wanderbus.subscription import Subscription

HANDOVER_PREFIX: Final = b"\x05"
"""First byte of a message about a session that moves; messages of agents are arrays, and begin with another."""

PART_BYTES_MAX: Final = 32 * 2**10
"""Largest part of an offer, an export or a piece of a queue in one message."""

VERSION: Final = 2
"""Version of these messages, which a target says; from 2 on, a long queue follows its session in pieces, and
patterns move."""

Content = Literal["offer", "export", "rest"]

DOMAINS_MAX: Final = 200
"""Domains that the domain of a target gets events from, at most."""

FILTERS_MAX: Final = 4_096
"""Filters that it wants of one of them for a session, at most."""


DEVICES_MAX: Final = 4_096
"""Devices of a session that leaves for another domain, at most."""


class Move(msgspec.Struct, frozen=True, array_like=True):
    """A move of a session: the target owns it in ``owner_epoch``."""

    user: Name
    session: Name
    owner_epoch: Number

    @property
    def key(self) -> tuple[str, str]:
        """Return user and name of the session."""
        return self.user, self.session


class Part(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Part ``number`` of an offer, an export or a piece of the rest of a queue; a part 0 begins again."""

    move: Move
    what: Content
    number: Number
    is_last: bool
    data: bytes


class WantedOf(msgspec.Struct, frozen=True, array_like=True):
    """Filters that the target's domain has at another ``domain`` for a session."""

    domain: Name
    filters: Annotated[tuple[NumberedFilter, ...], msgspec.Meta(max_length=FILTERS_MAX)]


class MoveReady(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Every event for the offered subscriptions reaches the target, which speaks ``version`` of these messages.

    A target in another domain says what that wants of others for the session.
    """

    move: Move
    version: Number = 1
    wanted: Annotated[tuple[WantedOf, ...], msgspec.Meta(max_length=DOMAINS_MAX)] = ()


class MoveTaken(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """The target has the whole session durably; or a device ``has_come`` there, maybe before the rest of the queue."""

    move: Move
    has_come: bool = False


class MoveRefused(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """The target does not take the session."""

    move: Move
    reason: Name


class MoveWithdrawn(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """The session stays at the source."""

    move: Move


class MoveAwaited(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The target still waits for the session: what has become of it?"""

    move: Move


class HeadAsked(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Question for the end of the receiver's log, or about a session: then the answer is :class:`SessionAnswered`.

    A server of the version before passes over ``question``, and answers with the end, for which nobody waits. For a
    session that leaves for the domain ``wanted_by``, the answer waits until that wants all that is ``wanted`` there,
    and has the answers to the publishes of ``devices`` of the ``user``, who is one of the own domain.
    """

    request: Number
    question: SessionQuestion | None = None
    wanted_by: Name = ""
    wanted: Annotated[tuple[NumberedFilter, ...], msgspec.Meta(max_length=FILTERS_MAX)] = ()
    user: Name = ""
    devices: Annotated[tuple[Name, ...], msgspec.Meta(max_length=DEVICES_MAX)] = ()


class HeadAnswered(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Answer to ``request``."""

    request: Number
    head: Head


class PastAsked(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """A device has come from the receiver to the sender."""

    request: Number
    question: PastQuestion


class PastAnswered(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Answer to ``request``."""

    request: Number
    past: DevicePast


class RestWanted(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """The target owns the session durably, with its queue up to number ``through``, and wants the rest."""

    move: Move
    through: Number


class SessionAnswered(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Answer to ``question``: the dormant instances that wait, and whether the session is here, or on its way."""

    question: SessionQuestion
    names: Annotated[tuple[Name, ...], msgspec.Meta(max_length=DORMANT_MAX)]
    is_here: bool = False


class VisitorCame(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """A user of the receiver's domain has called the sender, of another domain, in the call ``call`` for ``session``.

    With ``wants_session`` the session is to move there, if ``at_s`` and ``mac`` prove the call. ``is_certain`` is true
    if no server of the sender's domain has the session.
    """

    request: Number
    user: Name
    session: Name
    call: Name
    wants_session: bool = False
    is_certain: bool = False
    at_s: Number = 0
    mac: Annotated[bytes, msgspec.Meta(max_length=MAC_BYTES)] = b""


class VisitorAnswered(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """Answer to ``request``: the session is on its way, or it does not come for ``reason``, also after a first answer.

    A server that has no such session gives no reason.
    """

    request: Number
    is_coming: bool
    reason: Name = ""


OfMoves = (
    RestWanted | Part | MoveReady | MoveTaken | MoveRefused | MoveWithdrawn | MoveAwaited | HeadAsked | HeadAnswered
)
"""Messages about sessions that move."""

OfVisitors = VisitorCame | VisitorAnswered
"""Messages between servers of two domains about the visitors of one."""

Message = OfMoves | OfVisitors | PastAsked | PastAnswered | SessionAnswered

_codec: Final[Codec[Message]] = Codec(Message, "a message about a session that moves", HANDOVER_PREFIX)
encode: Final = _codec.encode
decode: Final = _codec.decode
_offers: Final[Codec[tuple[Subscription, ...]]] = Codec(tuple[Subscription, ...], "an offer of a session")
encode_offer: Final = _offers.encode
decode_offer: Final = _offers.decode


def parts_of(move: Move, what: Content, data: bytes) -> list[Part]:
    """Return the messages with ``data``."""
    starts = range(0, max(1, len(data)), PART_BYTES_MAX)
    last = starts[-1]
    return [
        Part(move, what, number, start == last, data[start : start + PART_BYTES_MAX])
        for number, start in enumerate(starts)
    ]
