"""Messages about a domain of several servers: leaders that publishes wait for, and whole sessions."""

from __future__ import annotations

from typing import Final

from wanderbus.event import CopiedItem
from wanderbus.protocol.bases import AgentMessage, BrokerMessage
from wanderbus.subscription import Subscription

SESSION_MOVED: Final = "session_moved"
"""Limit of the refusal of a device whose session is at another server, or on its way there: it has to call again."""


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


class Drain(AgentMessage, frozen=True, tag=41):
    """Let the server that is asked drain, or take sessions again; without ``on`` only ask how far it is."""

    request: int
    on: bool | None = None
