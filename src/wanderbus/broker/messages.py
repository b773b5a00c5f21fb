"""Inputs and outputs of the broker: links open and close, agents ask, the log confirms, the clock ticks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from wanderbus import protocol
from wanderbus.channels.interest.messages import FromReceiver, FromSender
from wanderbus.event import Event, EventId
from wanderbus.filters import Filter
from wanderbus.machine import Input, Output
from wanderbus.matching import Kernel
from wanderbus.protocol.domains import GroupLeaders, GroupPrepared, GroupPublishers, GroupPublishersKnown
from wanderbus.subscription import Since, Subscription


class LinkOpened(Input, frozen=True):
    """A data channel to ``device`` of the authenticated ``user`` is open; it replaces an earlier one of the device.

    If the user has too many devices, the broker refuses the link and then drops it. On an ``unattended`` link the
    broker sends everything at once and counts it as acknowledged, because nobody there acknowledges. With ``is_server``
    another server of the domain, or for a foreign domain a gateway, is at the other end, which the layer below has
    authenticated: ``user`` is one of those that are reserved for them, and nobody else can be.
    """

    link: int
    user: str
    device: str
    unattended: bool = False
    is_server: bool = False


class LinkClosed(Input, frozen=True):
    """A data channel is closed because of ``reason``: sending failed, or its session was ended (SPEC G-02)."""

    link: int
    reason: str


class DialogChanged(Input, frozen=True):
    """The signalling layer changed a device's dialog; ``binding`` is opaque to the broker, and empty for no dialog.

    The device's data goes to ``address``. The broker stores nothing for a device that is no member and has no link.
    """

    user: str
    device: str
    address: str
    binding: bytes


class MessageArrived(Input, frozen=True, gc=False):
    """``payload`` arrived on ``link``."""

    link: int
    payload: bytes


class Appended(Input, frozen=True):
    """Every record of ``log`` below offset ``durable`` is on disk."""

    log: str
    durable: int


class DiskFull(Input, frozen=True):
    """The disk has no room for the log: the broker refuses new events and subscriptions from now on."""


class DiskFreed(Input, frozen=True):
    """The disk has room for the log again."""


class KernelLoaded(Input, frozen=True):
    """The kernel that :class:`KernelWanted` requested is loaded."""

    kernel: Kernel


class EventArrived(Input, frozen=True, gc=False):
    """An event of this server's session at the server ``leader``: the content of a :class:`protocol.NotifyServer`.

    ``epoch`` is that of the number; ``encoded`` are the bytes of the event, if they are at hand. Either
    :class:`ArrivalsTaken` acknowledges it or :class:`ArrivalsWanted` asks for an earlier one.
    """

    leader: str
    epoch: int
    number: int
    before: int
    id: EventId
    accepted_us: int
    event: Event
    encoded: bytes = b""


class ArrivalsTaken(Output, frozen=True):
    """Events of ``leader`` up to ``number`` are durable here: acknowledge them there."""

    leader: str
    epoch: int
    number: int


class ArrivalsWanted(Output, frozen=True):
    """Events of ``leader`` behind ``number`` are missing: attach to the session there again, at that position."""

    leader: str
    epoch: int
    number: int


class LeaderEventsLost(Input, frozen=True):
    """Events of this server's session at the server ``leader``, up to ``number``, are lost: ``count`` of them.

    ``before`` is the number that was sent before them, ``reason`` the bound at the leader.
    """

    leader: str
    epoch: int
    before: int
    number: int
    count: int
    reason: str


class ArrivalMatched(Output, frozen=True):
    """An event of ``leader`` arrived; ``is_matched`` tells adaptive merging if a subscription here matches it."""

    leader: str
    subject: str
    is_matched: bool


class ForwardPublish(Output, frozen=True):
    """Publish an event of a device here at the ``leader`` of its channel; :class:`PublishAnswered` answers it."""

    leader: str
    publish: protocol.PublishFor


class ForgetPublishes(Output, frozen=True):
    """Wait no longer for the answers of ``leader`` to :class:`ForwardPublish` with these ``requests``."""

    leader: str
    requests: tuple[int, ...]


class PublishAnswered(Input, frozen=True):
    """Answer to :class:`ForwardPublish` with this ``request``: the ``id`` of the event, or the ``reason`` of a refusal.

    ``limit`` is the bound that was met.
    """

    request: int
    id: EventId | None
    reason: str = ""
    limit: str | None = None


class OrderedInterestChanged(Output, frozen=True):
    """Subscriptions here that begin, each with the subject and filter of its entries, and those that end.

    Each has a name that is used once. :class:`InterestEffective` reports when those that begin are effective at
    all leaders of their subjects, or at the server ``at`` alone.
    """

    added: Mapping[str, tuple[tuple[str, Filter], ...]]
    removed: tuple[str, ...] = ()
    at: str = ""


class InterestEffective(Input, frozen=True):
    """The subscriptions of these names are effective at every server that leads one of their subjects.

    One that was also reported by :class:`DecentralisedInterestChanged` gets two of these.
    """

    names: tuple[str, ...]


class DirectLinkOpened(Input, frozen=True):
    """A new link to ``server`` is open for messages of the causal order, in place of an earlier one (SPEC K-06)."""

    link: int
    server: str


class DirectLinkClosed(Input, frozen=True):
    """The link to ``server`` is closed; what was sent on it may be lost."""

    link: int
    server: str


class CausalMessageArrived(Input, frozen=True, gc=False):
    """A message of the causal order arrived from ``server``; answers are :class:`SendOnLink` with the same prefix."""

    link: int
    server: str
    payload: bytes


class RoutesArrived(Input, frozen=True):
    """The server ``leader`` sent a ``message`` about the interest of another server (SPEC K-05).

    ``encoded`` are the bytes of the message, and ``link`` has to carry the answer, :class:`RoutesAnswered`. A message
    that came by multicast (``is_multicast``) may be late, repeated or without the one before: it is ignored unless it
    is the next one.
    """

    leader: str
    link: int
    message: FromSender
    encoded: bytes
    is_multicast: bool = False


class RoutesAnswered(Output, frozen=True):
    """Answer to :class:`RoutesArrived`; a confirmation is sent when the interest is durable and in use here."""

    leader: str
    link: int
    answer: FromReceiver


class DecentralisedInterestChanged(Output, frozen=True):
    """The same as :class:`OrderedInterestChanged`, for decentralised channels."""

    added: Mapping[str, tuple[tuple[str, Filter], ...]]
    removed: tuple[str, ...] = ()


class DomesticInterestChanged(Output, frozen=True):
    """Subscriptions of users here, by their ids, that begin and end, for the domains connected with this one."""

    added: Mapping[str, tuple[tuple[str, Filter], ...]]
    removed: tuple[str, ...] = ()


class AdvertisementsChanged(Output, frozen=True):
    """Advertisements here that begin, each with its subject and filter, and those that end, for decentralised channels.

    :class:`InterestEffective` reports by their names when this server has what all servers want of these events.
    """

    added: Mapping[str, tuple[str, Filter]]
    removed: tuple[str, ...] = ()


class DecentralisedArrivalMatched(Output, frozen=True):
    """An event came from its server directly; ``is_matched`` tells whether a subscription here matches it."""

    subject: str
    is_matched: bool


class LogBegins(Input, frozen=True):
    """Retention has removed the records of the server's log below offset ``first``."""

    first: int


class Append(Output, frozen=True):
    """Write ``entries`` (offset, wall time in µs, record bytes) to ``log`` and sync; then report :class:`Appended`.

    If it is not ``urgent``, nothing waits for the sync: it may be delayed and combined with the next one.
    """

    log: str
    entries: tuple[tuple[int, int, bytes], ...]
    urgent: bool = True


class ExtensionFailed(Output, frozen=True):
    """A restriction, policy or hook of the operator has failed ``count`` times, the last time for ``reason``."""

    count: int
    reason: str


class ServerAsked(Output, frozen=True):
    """A client on ``link`` requests a listing of the whole server; :class:`ServerAnswered` answers it.

    ``sources`` are the networks from which the client's own data come, as far as the layer below knows.
    """

    link: int
    request: protocol.Inspect
    sources: tuple[str, ...] = ()


class ServerAnswered(Input, frozen=True):
    """All ``rows`` of the listing requested by ``asked``; the broker shows the client those that it may see."""

    asked: ServerAsked
    rows: tuple[Mapping[str, Any], ...]


class OffsetWanted(Output, frozen=True):
    """Find the offset of the first record that a subscription of this session reads; :class:`OffsetFound` answers it.

    A record cannot be found if the log does not go back so far; the log's first record is always found.
    """

    lookup: int
    since: Since
    user: str
    session: str


class OffsetFound(Input, frozen=True):
    """Answer to :class:`OffsetWanted`; without an ``offset`` the ``reason`` is a line for the subscriber.

    ``log`` are the server and the incarnation of a log that is not that of this server, whose number was accepted under
    ``leader_epoch``.
    """

    lookup: int
    offset: int | None
    reason: str = ""
    log: tuple[str, int] | None = None
    leader_epoch: int = 0


class PastReader(msgspec.Struct, frozen=True):
    """A further subscription that reads a piece of a log, as in :class:`HistoryWanted`."""

    subscription: Subscription
    subjects: tuple[str, ...] = ()
    steps: tuple[tuple[str, ...], ...] = ()


class HistoryWanted(Output, frozen=True):
    """Read a piece of a log for a subscription: the events that it matches, from offset ``first`` up to ``end``.

    The log is that of ``server`` in ``incarnation``; all records below ``end`` are durable. The piece may end earlier,
    as soon as it has ``events_max`` events or ``bytes_max`` bytes of them. :class:`HistoryRead` answers it.
    ``subjects`` are the subject of the subscription and those below it; the subject alone if there are none. For a
    pattern, ``steps`` has the same of each step. An event that ``others`` match is read for them, too. If another
    server has the log, it is what that has accepted as the leader under ``leader_epoch``; its incarnation may be
    unknown, 0.
    """

    piece: int
    subscription: Subscription
    server: str
    incarnation: int
    first: int
    end: int
    events_max: int
    bytes_max: int
    filter_work_max: int
    subjects: tuple[str, ...] = ()
    others: tuple[PastReader, ...] = ()
    steps: tuple[tuple[str, ...], ...] = ()
    leader_epoch: int = 0

    @property
    def readers(self) -> list[PastReader]:
        """Return all subscriptions that read the piece."""
        return [PastReader(self.subscription, self.subjects, self.steps), *self.others]

    @property
    def identities(self) -> list[str]:
        """Return the ids of all subscriptions that read the piece."""
        return [each.subscription.id for each in self.readers]


class PastEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of the log, as its acceptance stored it; ``undecided`` names the bound if its filter is too costly.

    ``user`` is its publisher, "" if another server accepted it. If several subscriptions read the log together, these
    are the ``subscriptions`` that it matches, and ``unsure`` those of them whose filter is too costly. ``steps`` has a
    bit for every step that it matches, by subscription to a pattern.
    """

    offset: int
    id: EventId
    at_us: int
    received_us: int
    event: bytes
    undecided: str = ""
    user: str = ""
    is_decentralised: bool = False
    subscriptions: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    steps: tuple[tuple[str, int], ...] = ()


class HistoryRead(Input, frozen=True):
    """Answer to :class:`HistoryWanted`: all matching ``events`` below offset ``end``, in order.

    ``failed`` is the reason for which the piece cannot be read, "" if it was read. With ``retry_s`` it can be requested
    again after so many seconds; else it is lost, below ``kept_from`` if that is known. ``is_at_end`` tells of another
    server's log that all of it was read, and ``is_over`` that it led the channel no longer from there on. That log has
    this ``incarnation``, and ``epoch`` is its present one.
    """

    piece: int
    end: int
    events: tuple[PastEvent, ...] = ()
    failed: str = ""
    retry_s: float = 0.0
    is_at_end: bool = False
    epoch: int = 0
    kept_from: int = 0
    is_over: bool = False
    incarnation: int = 0


class HistoryFailed(Output, frozen=True):
    """The history of a subscription cannot be read for this ``reason``, so the subscription has ended.

    If it ``goes_on``, it does so behind a gap, with what the channel's next leader has.
    """

    subscription: str
    reason: str
    goes_on: bool = False


class EventsWanted(Output, frozen=True):
    """Read the events of a channel that this server has accepted; :class:`EventsRead` answers it (SPEC K-03).

    They are those of ``piece``, by their numbers, or the ``newest`` of these alone. The answer may end earlier, and is
    one piece of the log if the subscription has an expression. With ``since``, only the number of that point is wanted.
    """

    piece: HistoryWanted
    newest: int | None = None
    since: Since | None = None


class EventsRead(Input, frozen=True):
    """Answer to :class:`EventsWanted`: all ``events`` below number ``end``, in order; or the number of a point.

    ``kept_from`` is the lowest number that is kept, if that is why the answer begins there; else 0. ``failed`` is the
    reason for which the events cannot be read, "" if they were read; ``is_lost`` if they never can be.
    """

    reading: int
    end: int
    kept_from: int = 0
    events: tuple[PastEvent, ...] = ()
    failed: str = ""
    is_lost: bool = False


class AskLeader(Output, frozen=True):
    """Pass a ``request`` about a channel to the server that leads it, ``leader``; :class:`LeaderAnswered` answers it.

    Its number is used once.
    """

    leader: str
    request: protocol.ListEvents | protocol.MoveGroup


class LeaderAnswered(Input, frozen=True):
    """Answer to :class:`AskLeader`, or one of its parts; a refusal also if the leader cannot be reached."""

    answer: protocol.Listing | protocol.RequestRefused


class LeaderLinkChanged(Input, frozen=True):
    """The link to ``leader`` has this number now; None while there is none."""

    leader: str
    link: int | None


class SendToLeader(Output, frozen=True):
    """Send a message about filters, or groups that move, to ``leader``, unless its link has another number now."""

    leader: str
    link: int
    message: protocol.FilterMessage | GroupPrepared | GroupPublishersKnown


class GroupsArrived(Input, frozen=True):
    """A leader has sent a message about channel groups that move, on its present link (SPEC J-08)."""

    leader: str
    link: int
    message: GroupLeaders | GroupPublishers


class FiltersArrived(Input, frozen=True):
    """A leader has sent filters of a subject whose channel it leads, on its present link (SPEC N-02)."""

    leader: str
    filters: protocol.Filters


class MatchesWanted(Output, frozen=True):
    """Return the matches of the matching engine from offset ``first`` on; :class:`MatchesRead` answers it (SPEC T-06).

    With ``subscriptions`` it has to begin there, with these; ``number`` names this beginning. The matches below
    ``durable`` are durable. ``parents`` are the parents of subjects (SPEC J-13).
    """

    number: int
    first: int
    durable: int
    subscriptions: tuple[Subscription, ...] | None
    filter_work_max: int
    parents: Mapping[str, str] = {}


class EngineEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of the log, and the ids of the subscriptions that it matches or may match; too many are allowed.

    ``undecided`` are those whose filters are too costly for this event. With ``is_for_users`` other servers have no
    part in it: the server that accepted it sends it to them.
    """

    event: PastEvent
    matched: tuple[str, ...]
    undecided: tuple[str, ...] = ()
    is_for_users: bool = False


class MatchesRead(Input, frozen=True):
    """Answer to :class:`MatchesWanted`: all matches of events below offset ``next``, in order.

    With ``is_lost`` the engine has to begin again. Otherwise ``failed`` is the reason why there is no answer, "" if
    there is one, and the engine can be asked again after ``retry_s``.
    """

    number: int
    next: int
    events: tuple[EngineEvent, ...] = ()
    is_lost: bool = False
    failed: str = ""
    retry_s: float = 0.0


class SendOnLink(Output, frozen=True, gc=False):
    """Send ``payload`` on ``link``, reliably and in order while the link lives."""

    link: int
    payload: bytes


class DevicesDoubted(Output, frozen=True):
    """A bound counts the connected devices of ``user``: check whether they still answer, so that dead ones give way."""

    user: str


class LinkDropped(Output, frozen=True):
    """Close ``link`` and its connection because of ``reason``; ``LinkClosed`` follows."""

    link: int
    reason: str


class UserStatusChanged(Output, frozen=True):
    """The User Status of ``user`` is ``CONNECTED`` or ``DISCONNECTED`` now (SPEC E-07)."""

    user: str
    status: str


class SubscriptionUnreadable(Output, frozen=True):
    """A stored subscription's expression can no longer be parsed because of ``reason``: no event matches it.

    The subscription itself stays as it is.
    """

    subscription: str
    reason: str


class SubscriptionUnread(Output, frozen=True):
    """The reader of a subscription on ``device`` is stalled or missing, while ``waiting`` notifications wait.

    ``device`` is None if the subscription has no reader; ``since_s`` is the time since the reader stalled or was found
    missing.
    """

    user: str
    session: str
    subscription: str
    device: str | None
    waiting: int
    since_s: float


class KernelWanted(Output, frozen=True):
    """This kernel would save matching work: load it, which may take seconds, and report it as loaded."""

    kernel: Kernel
