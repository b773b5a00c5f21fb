"""Inputs and outputs of the broker about sessions that move from server to server (SPEC L; decision 0142)."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from wanderbus.channels.interest.messages import NumberedFilter
from wanderbus.event import EventId
from wanderbus.machine import Input, Output
from wanderbus.subscription import Subscription

Name = Annotated[str, msgspec.Meta(max_length=1_024)]
"""Name of a user, a session, a device or a server, in messages between servers."""

DORMANT_MAX: Final = 16
"""Dormant instances that wait on one link, and names of such in a message."""


class Head(msgspec.Struct, frozen=True, array_like=True):
    """End of a server's log, and what the server has sent to another one until there.

    ``epoch`` and ``number`` are those of the last notification in the session of the other server; ``number`` is 0 if
    there was none. ``direct`` is the number of the last event that was sent directly, in ``incarnation``.
    With ``is_mixed``, notifications come in another order than their events, so that no number in the log divides them.
    ``answers`` are those to publishes that were asked for, encoded by publisher.
    """

    end: EventId
    epoch: int = 0
    number: int = 0
    incarnation: int = 0
    direct: int = 0
    is_mixed: bool = False
    answers: bytes = b""


class MoveSession(Output, frozen=True):
    """Move a session of this server to the server ``target``; :class:`SessionMoveEnded` answers it.

    ``cause`` is for the record of the move, which explains it.
    """

    user: str
    session: str
    target: str
    cause: str = ""


class SessionMoveEnded(Input, frozen=True):
    """The session is at ``target`` now, or it stays here because of ``reason``: the target's own if it has refused."""

    user: str
    session: str
    target: str
    reason: str = ""
    has_refused: bool = False


class DeviceLocated(Input, frozen=True):
    """The data of a connected device goes to ``host`` now."""

    user: str
    device: str
    host: str


class DrainingSet(Output, frozen=True):
    """This server has begun to drain, or takes sessions again; its state says which."""


# At the source -------------------------------------------------------------------------------------------------------


class HeadWanted(Input, frozen=True):
    """The server ``server`` asks how far this log goes; :class:`HeadFound` with the same ``request`` answers it.

    If a session leaves for another domain, the answer waits until the domain ``wanted_by`` wants here all that is
    ``wanted``, and until the domain ``taken_by`` has what was sent to it before, unless that is "". It has the answers
    to the publishes of the ``devices`` of a user. With ``pauses``, a session of the user at this server itself, what
    its devices publish waits from now on, and the answer waits until the leaders have answered all before.
    """

    server: str
    request: int
    wanted_by: str = ""
    wanted: tuple[NumberedFilter, ...] = ()
    taken_by: str = ""
    user: str = ""
    devices: tuple[str, ...] = ()
    pauses: str | None = None


class HeadFound(Output, frozen=True):
    """Answer to :class:`HeadWanted`."""

    server: str
    request: int
    head: Head


class FenceSession(Input, frozen=True):
    """Another server becomes the owner of a session in ``owner_epoch``: give up the session and export it.

    :class:`SessionExported` answers it, also when it is repeated; :class:`SessionMoveRefused` if the epoch is too low.
    In a domain of several servers, ``target`` gets the events for ``subscriptions`` already; the ``heads`` of all other
    servers were taken after that. The session is fenced once everything below them is here.
    """

    user: str
    session: str
    owner_epoch: int
    target: str = ""
    subscriptions: tuple[str, ...] = ()
    heads: tuple[Head, ...] = ()
    cause: str = ""
    queue_bytes: int = 0
    """Bytes of the notifications in the export, about; the others follow in pieces. All are in it if this is 0."""
    far_heads: tuple[Head, ...] | None = None
    """Ends of the logs in other domains, whose servers have names ``DOMAIN/SERVER``, if ``target`` is one of them."""


class KeepSession(Input, frozen=True):
    """Do not give up a session; :class:`SessionMoveRefused` answers it, unless it is too late for that."""

    user: str
    session: str


class ResumePublishes(Input, frozen=True):
    """A session leaves for another domain no more: what its devices have published meanwhile waits no longer."""

    user: str
    session: str


class DropExport(Input, frozen=True):
    """The next owner of a fenced session has it durably, so its export is no longer needed.

    With ``through``, it has the queue up to this number.
    """

    user: str
    session: str
    through: int | None = None


class SessionExported(Output, frozen=True):
    """The session is durably fenced here; its owner in ``owner_epoch`` begins with ``export``."""

    user: str
    session: str
    owner_epoch: int
    export: bytes


class SessionMoveRefused(Output, frozen=True):
    """A session was not fenced, or not imported, because of ``reason``; nothing has changed.

    With ``has_more`` the session has a further subscription, for which the target gets no events yet.
    """

    user: str
    session: str
    reason: str
    has_more: bool = False


# At the target -------------------------------------------------------------------------------------------------------


class AwaitSession(Input, frozen=True):
    """The server ``source`` is about to give a session to this one, which will own it in ``owner_epoch``.

    Get the events for its ``subscriptions`` from now on. :class:`AwaitedEffective` answers it, also when it is repeated
    with further subscriptions; :class:`SessionMoveRefused` if the session is here.
    """

    user: str
    session: str
    owner_epoch: int
    source: str
    subscriptions: tuple[Subscription, ...]


class AwaitedEffective(Output, frozen=True):
    """Every event for the subscriptions of a session reaches this server, which awaits the session durably."""

    user: str
    session: str
    owner_epoch: int


class ForgetAwaited(Input, frozen=True):
    """The session stays where it is."""

    user: str
    session: str


class ImportSession(Input, frozen=True):
    """This server becomes the owner of a session; ``export`` is that of :class:`SessionExported`.

    :class:`SessionOwned` answers it, also when it is repeated; :class:`SessionMoveRefused` if the session is here.
    """

    export: bytes


class ContinueQueue(Input, frozen=True):
    """The next piece of the queue of an imported session has come; an empty one asks how much of the queue is here.

    :class:`QueueReached` answers it, or :class:`SessionOwned` if all is here.
    """

    user: str
    session: str
    owner_epoch: int
    piece: bytes


class UserUnowned(Input, frozen=True):
    """No server of the domain has a session of ``user``: those that have moved from here are over.

    If a ``session`` is named, this holds for that one alone.
    """

    user: str
    session: str = ""


class SessionOwned(Output, frozen=True):
    """The session is durably owned here, in ``owner_epoch``."""

    user: str
    session: str
    owner_epoch: int


class QueueReached(Output, frozen=True):
    """The session is durably owned here, in ``owner_epoch``, and so is its queue up to number ``through``."""

    user: str
    session: str
    owner_epoch: int
    through: int


# Devices without a handover ------------------------------------------------------------------------------------------


class PastQuestion(msgspec.Struct, frozen=True, array_like=True):
    """Question about the past of a device at the server that is asked. From then on that one names who asks.

    It does so if it named the server ``named`` until now, or nobody.
    """

    user: Name
    session: Name
    device: Name
    named: Name = ""


class DevicePast(msgspec.Struct, frozen=True, array_like=True):
    """Publishes of a device at a server, and the causal past of that server, both encoded.

    ``publishers`` is empty if it has published nothing. Where the device has gone since, or its session with
    ``has_moved``, ``next_server`` knows more.
    """

    publishers: bytes
    past: bytes
    next_server: Name = ""
    has_moved: bool = False


class FormerServerAsked(Output, frozen=True):
    """A device on the link ``request`` was at ``server`` before; :class:`PastReported` answers the question."""

    server: str
    request: int
    question: PastQuestion


class FormerServerSilent(Input, frozen=True):
    """The server of ``request`` cannot be reached now; it is asked when it can."""

    request: int


class PastWanted(Input, frozen=True):
    """A device has come to ``server``, which asks what it did here; :class:`PastFound` answers it."""

    server: str
    request: int
    question: PastQuestion


class PastFound(Output, frozen=True):
    """Answer to :class:`PastWanted`."""

    server: str
    request: int
    past: DevicePast


class PastReported(Input, frozen=True):
    """Answer of ``server`` to :class:`FormerServerAsked`."""

    server: str
    request: int
    past: DevicePast


# Questions about a session -------------------------------------------------------------------------------------------

ASK_S: Final = 1.0
"""Time for the other servers to answer a question about a session."""


class SessionQuestion(msgspec.Struct, frozen=True, array_like=True):
    """Question whether a session is at a server, and its dormant instance ``name``; with ``starts`` that is started.

    The server that asks has the session, or is to make it.
    """

    user: Name
    session: Name
    name: Name = ""
    starts: bool = False


class OthersAsked(Output, frozen=True):
    """Ask ``server``, or all others without one; each answer is a :class:`SessionReported`."""

    question: SessionQuestion
    server: str = ""


class SessionWanted(Input, frozen=True):
    """The server ``server`` asks; :class:`SessionFound` answers."""

    server: str
    question: SessionQuestion


class SessionFound(Output, frozen=True):
    """Answer to :class:`SessionWanted`: whether the session is here, and its dormant instances that wait here."""

    server: str
    question: SessionQuestion
    names: tuple[str, ...]
    is_here: bool = False


class SessionReported(Input, frozen=True):
    """Answer of ``server`` to :class:`OthersAsked`."""

    server: str
    question: SessionQuestion
    names: tuple[str, ...]
    is_here: bool = False


HandoverInput = (
    HeadWanted
    | SessionWanted
    | SessionReported
    | FormerServerSilent
    | PastWanted
    | PastReported
    | FenceSession
    | KeepSession
    | ResumePublishes
    | DropExport
    | AwaitSession
    | ForgetAwaited
    | ImportSession
    | ContinueQueue
    | UserUnowned
    | SessionMoveEnded
)
"""Inputs of the broker about sessions that move."""

HandoverOutput = (
    MoveSession
    | DrainingSet
    | HeadFound
    | SessionExported
    | SessionMoveRefused
    | AwaitedEffective
    | SessionOwned
    | QueueReached
    | FormerServerAsked
    | PastFound
    | OthersAsked
    | SessionFound
)
"""Outputs of the broker about sessions that move."""
