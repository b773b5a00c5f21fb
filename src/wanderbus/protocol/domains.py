"""Messages about a domain of several servers: leaders that publishes wait for, channels, and whole sessions."""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.epochs import Leadership
from wanderbus.event import CopiedItem, Number
from wanderbus.protocol.bases import AgentMessage, BrokerMessage
from wanderbus.subscription import Since, Subscription

SESSION_MOVED: Final = "session_moved"
"""Limit of the refusal of a device whose session is at another server, or on its way there: it has to call again."""


TRANSFERRED: Final = "transferred"
"""Reason of the end of a subscription at one device, because another one reads it now: it lives on."""


class SettleInterest(AgentMessage, frozen=True, tag=27):
    """All that the sender's users want of the receiver's channels is in its subscriptions there (SPEC J-10).

    Only a server may send it, on each new link once these subscriptions are confirmed. It is not answered.
    """


class PublishesWait(BrokerMessage, frozen=True, tag=17):
    """Publishes of this link wait, for ``reason``; with "" they wait no longer. They need not be sent again.

    If a ``server`` is named, the device is there now, as in an attachment.
    """

    reason: str
    server: str = ""


class ListEvents(AgentMessage, frozen=True, tag=19):
    """Request the events of an ordered channel by number; :class:`Listing` answers it (SPEC K-03).

    They are those of ``subject`` and of the subjects below it, with numbers from ``first`` to ``last``, or the
    ``newest`` of these alone. The answer has at most ``limit`` of them. Numbers are those of the leader under
    ``epoch``; with 0 the present one, or the first one if no number is given. The cursor of the answer is the next
    ``first``, as ``EPOCH:NUMBER`` if the channel has had several leaders, and ``EPOCH:`` where another one follows.

    A server reads so for a subscription that begins in the past (SPEC T-05): with ``since`` the answer is the number at
    which to begin, with ``expression`` it has the matching events alone. ``subject`` may be ``*`` then. The first row
    names the log by its ``incarnation``, and the ``end`` of what was read, or the reason why that has ``failed``. It
    also says if that is all of the epoch (``is_over``), and in which epoch (``led_under``) the number is.
    """

    request: int
    subject: str
    first: Number | None = None
    last: Number | None = None
    newest: int | None = None
    limit: int = 1_000
    since: Since | None = None
    expression: str | None = None
    language: str = "eci"
    epoch: Number = 0


class MoveSession(AgentMessage, frozen=True, tag=40):
    """Move a session of the server that is asked to another ``server`` of its domain."""

    request: int
    user: str
    session: str
    server: str


class ImportSession(AgentMessage, frozen=True, tag=45):
    """Make a session from a copy, in pieces on one link; ``place`` counts them from 0.

    A piece has one subscription of the copy, or items of its queue, in their order. The session is made with the piece
    that ``is_last``.
    """

    request: int
    user: str
    session: str
    place: int
    subscription: Subscription | None = None
    items: tuple[CopiedItem, ...] = ()
    is_last: bool = False


class AwaitTransfer(AgentMessage, frozen=True, tag=46):
    """Wait as a dormant instance ``name`` of the application of an own session, which need not exist (SPEC L-07).

    The answer comes when the end point of the session comes; it has no content that could say what to start.
    """

    request: int
    session: str
    name: str


class TransferSession(AgentMessage, frozen=True, tag=47):
    """Transfer the end point of a session from ``device``, or all its devices, to the dormant instance ``to``."""

    request: int
    user: str
    session: str
    to: str
    device: str | None = None


class Drain(AgentMessage, frozen=True, tag=41):
    """Let the server that is asked drain, or take sessions again; without ``on`` only ask how far it is."""

    request: int
    on: bool | None = None


class MoveGroup(AgentMessage, frozen=True, tag=42):
    """Let another ``server`` of the domain lead a channel group: that with a number, or that of a subject.

    The leader of the group decides about it, or with ``force`` the next one, because the leader is gone. Any other
    server passes the request on.
    """

    request: int
    group: int | str
    server: str
    force: bool = False


class GroupPrepared(AgentMessage, frozen=True, tag=43):
    """The sender has its interest in a channel group at the next leader too; or the reason why the group cannot move.

    Only a server may send it, to the leader of the group; ``attempt`` names the move. On a new link the sender does not
    know whether that goes on, and ``attempt`` is 0.
    """

    group: int
    attempt: int
    reason: str = ""


class GroupPublishersKnown(AgentMessage, frozen=True, tag=44):
    """The next leader of a channel group has a part of the :class:`GroupPublishers` durably."""

    group: int
    attempt: int
    part: int


ServerMessage = SettleInterest | GroupPrepared | GroupPublishersKnown
"""Messages that only a server of the domain may send, beside :class:`~wanderbus.protocol.PublishFor`."""


class LedGroup(msgspec.Struct, frozen=True, array_like=True):
    """A channel group that has moved: its leader, the epoch, and the leader before, which was gone if it is forced.

    ``earlier`` are all leaders before this one, in order, as far as they are known.
    """

    group: int
    server: str
    epoch: Number
    former: str
    forced: bool = False
    earlier: tuple[Leadership, ...] = ()


class MovingGroup(msgspec.Struct, frozen=True, array_like=True):
    """A channel group that its leader is about to give to the server ``target``, under ``epoch``.

    If it is ``forced``, the leader is gone, and the target itself says so.
    """

    group: int
    target: str
    epoch: Number
    attempt: int
    forced: bool = False


class GroupLeaders(BrokerMessage, frozen=True, tag=18):
    """All channel groups that have moved, and those of the sender that are about to: sent to servers alone.

    It is sent on each new link if groups have moved, with each change, and to a server that asks about a move. What the
    sender has accepted before has numbers up to ``head`` in the session of the receiver. While events wait for its
    matching engine, that is None, and follows.
    """

    led: tuple[LedGroup, ...]
    moving: tuple[MovingGroup, ...] = ()
    head: int | None = 0


class GroupPublishers(BrokerMessage, frozen=True, tag=19):
    """A part of what a leader knows of the publishers of a group, for its next leader; parts are numbered from 0."""

    group: int
    attempt: int
    part: int
    publishers: bytes


GroupMessage = GroupLeaders | GroupPublishers
"""Messages of leaders to other servers about channel groups that move."""
