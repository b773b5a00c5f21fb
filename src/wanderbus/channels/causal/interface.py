"""Inputs, outputs, messages between servers, and records of the causal order of a server."""

from __future__ import annotations

import msgspec

from wanderbus.channels.causal.header import CausalPast, Dot, Header, HeaderEntry, Origin
from wanderbus.event import EventId
from wanderbus.machine import Input, Output


class CausalLimits(msgspec.Struct, frozen=True):
    """Bounds and times of the causal order."""

    window_events: int = 256
    """Events that may be on their way to one server without acknowledgement; it may have to hold them all."""
    retained_events_max: int = 100_000
    """Events of this server that wait for a server which is away; beyond it that server gets a gap."""
    kept_events_max: int = 10_000
    """Events of other servers that are kept for servers which may ask for them."""
    lag_events: int = 64
    """A server that is this many events behind is named as lagging, so that it does not hold up the settled mark."""
    mark_after_s: float = 0.005
    """Time until the settled mark is sent by itself."""
    ask_after_s: float = 1.0
    """Time after which a missing cause is asked for, and asked for again."""
    patience_s: float | None = None
    """Time after which a cause that nobody supplied becomes a gap; None to wait until its log is known to be lost."""


# Records -------------------------------------------------------------------------------------------------------------


class CausalRecord(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of the records from which the state is restored, in the order of the log."""


class CausalSent(CausalRecord, frozen=True):
    """This server published an event."""

    header: Header
    payload: bytes


class CausalDelivered(CausalRecord, frozen=True):
    """An event of another server was delivered here."""

    header: Header
    payload: bytes


class CausalAcknowledged(CausalRecord, frozen=True):
    """``server`` has delivered all events of this server up to ``number``. It may be written late, or never."""

    server: int
    number: int
    incarnation: int = 0
    """Incarnation of ``server``, 0 if it is unknown."""


class MarkHeard(CausalRecord, frozen=True):
    """All events of ``origin`` up to ``number`` are delivered, except at the ``lagging``. It may be written late."""

    origin: Origin
    number: int
    lagging: int


class EventsDropped(CausalRecord, frozen=True):
    """Events of this server up to ``number`` were dropped before ``server`` had them."""

    server: int
    number: int


class Passed(CausalRecord, frozen=True):
    """The events of ``origin`` up to ``number`` that have not been delivered here never will be."""

    origin: Origin
    number: int


class OriginEnded(CausalRecord, frozen=True):
    """``origin`` lost its log, or left the domain: it sends nothing more."""

    origin: Origin


class EntriesLearnt(CausalRecord, frozen=True):
    """This server learnt what others may lack, by a session that moved here or an event that it had passed over."""

    entries: tuple[HeaderEntry, ...]
    token: int = 0
    """Name of the session's past; 0 if there is none."""


class ServerRemoved(CausalRecord, frozen=True):
    """``server`` left the domain for good; ``is_forgotten`` once every server has all that it sent."""

    server: int
    is_forgotten: bool


AnyCausalRecord = (
    CausalSent
    | CausalDelivered
    | CausalAcknowledged
    | MarkHeard
    | EventsDropped
    | Passed
    | OriginEnded
    | EntriesLearnt
    | ServerRemoved
)


# Messages ------------------------------------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """First message of a server on a new link: its incarnation, and its cursor into the events of the other."""

    incarnation: int
    cursor_incarnation: int
    """Incarnation of the other server that the cursor belongs to; 0 if none is known."""
    cursor: int
    numbering: bytes = b""
    """Digest of the numbers of the servers, which the caller sets and compares: they must be the same everywhere."""
    seen: EventId | None = None
    """Id of the last event of the other server that was delivered here, which the caller sets and compares."""
    is_rolled_back: bool = False
    """True if the sender has lost events of an earlier incarnation, which the caller sets."""
    is_marked: bool = False
    """True if a mark follows in this incarnation, in place of what is lost of an earlier one; the caller sets it."""


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Answer to :class:`Hello`: the events that follow are those after ``base``."""

    incarnation: int
    base: int
    is_lossy: bool = False
    """True if events before ``base`` were dropped that the other server has not delivered."""
    entries: tuple[HeaderEntry, ...] = ()
    """Knowledge of the sender, if the other server lacks events before ``base`` that would have told it."""
    is_forgotten: bool = False
    """True if the other server acknowledged events before ``base`` which it does not know any more."""


class Carried(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """An event, in the order of its origin; the header is encoded for this link."""

    header: bytes
    payload: bytes


class Acked(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """All events of the receiver up to ``number`` are durably delivered; also the settled mark of the sender."""

    incarnation: int
    """Incarnation of the receiver."""
    number: int
    settled_more: int
    """Difference of the settled mark of the sender from the one before on this link, at first from 0."""
    lagging: int


class Marked(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The settled mark of the sender, as in :class:`Acked`; sent if nothing else carries it soon."""

    settled_more: int
    lagging: int


class AskForEvent(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Request for an event that the other server knows as a cause."""

    origin: Origin
    number: int


class AskAnswered(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Answer to :class:`AskForEvent`; ``header`` is empty if the event is not here."""

    origin: Origin
    number: int
    header: bytes = b""
    payload: bytes = b""


Message = Hello | Welcome | Carried | Acked | Marked | AskForEvent | AskAnswered


# Inputs --------------------------------------------------------------------------------------------------------------


class PublishTo(Input, frozen=True):
    """Publish an event to those of ``servers`` that are in the domain; this server itself is not one of them."""

    servers: frozenset[int]
    payload: bytes


class CausalLinkOpened(Input, frozen=True):
    """A new FIFO link to ``server`` exists; nothing that was sent on an earlier one arrives any more."""

    server: int


class CausalLinkClosed(Input, frozen=True):
    """The link to ``server`` is broken; what was sent on it may be lost."""

    server: int


class MessageCame(Input, frozen=True):
    """``message`` arrived from ``server``."""

    server: int
    message: Message


class ExportPast(Input, frozen=True):
    """Request :class:`PastExported` for a session that leaves this server."""

    token: int


class ImportPast(Input, frozen=True):
    """A session moved here with its ``past``; ``token`` names it in :class:`PastReached`."""

    token: int
    past: CausalPast
    source: int
    """Server that the session left; it is asked for missing causes."""


class RemoveServer(Input, frozen=True):
    """``server`` left the domain for good; with ``is_forgotten`` no server waits for its events any more."""

    server: int
    is_forgotten: bool = False


# Outputs -------------------------------------------------------------------------------------------------------------


class WriteRecord(Output, frozen=True):
    """Append ``record`` to the log. All later outputs, except timers, wait until it is durable."""

    record: AnyCausalRecord


class SendToPeer(Output, frozen=True):
    """Send ``message`` on the link to ``server``; it is lost if there is none."""

    server: int
    message: Message


class Deliver(Output, frozen=True):
    """Deliver an event of another server to the sessions of this one."""

    header: Header
    payload: bytes


class GapFound(Output, frozen=True):
    """Events of ``origin`` after ``after`` are lost for this server, up to ``until``; None if nobody knows how many."""

    origin: Origin
    after: int
    until: int | None


class PastExported(Output, frozen=True):
    """The causal past to send along with a session."""

    token: int
    past: CausalPast


class PastReached(Output, frozen=True):
    """Everything in the past of the session ``token`` that concerns this server is delivered; it may continue."""

    token: int


class LogRewound(Output, frozen=True):
    """The log of this server lacks what ``server`` knows: it has to go on in another incarnation.

    ``missing`` is an event of this server, or one of ``server`` that this one has acknowledged.
    """

    server: int
    missing: Dot
