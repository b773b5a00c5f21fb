"""Messages between agents and broker over the data channel: msgpack arrays whose first item is the kind.

A server is to another one what an agent is to a broker, with :class:`PublishFor` and :class:`NotifyServer` in addition.

An agent may repeat every request after a reconnection. The broker recognises repeated publishes by (device, epoch,
number) and repeated subscriptions by their content; the other requests are idempotent (DESIGN 5.2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from wanderbus.event import CopiedItem, DeclaredAttribute, Event, EventId, Loss, Number, Position
from wanderbus.limits import EVENT_BYTES_MAX, REASON_CHARACTERS_MAX
from wanderbus.protocol.bases import AgentMessage as AgentMessage
from wanderbus.protocol.bases import BrokerMessage as BrokerMessage
from wanderbus.protocol.bases import decoded
from wanderbus.protocol.domains import SESSION_MOVED as SESSION_MOVED
from wanderbus.protocol.domains import TRANSFERRED as TRANSFERRED
from wanderbus.protocol.domains import AwaitTransfer as AwaitTransfer
from wanderbus.protocol.domains import Drain as Drain
from wanderbus.protocol.domains import GroupMessage as GroupMessage
from wanderbus.protocol.domains import ImportSession as ImportSession
from wanderbus.protocol.domains import ListEvents as ListEvents
from wanderbus.protocol.domains import MoveGroup as MoveGroup
from wanderbus.protocol.domains import MoveSession as MoveSession
from wanderbus.protocol.domains import PublishesWait as PublishesWait
from wanderbus.protocol.domains import ServerMessage as ServerMessage
from wanderbus.protocol.domains import SettleInterest as SettleInterest
from wanderbus.protocol.domains import TransferSession as TransferSession
from wanderbus.subscription import Format, QueuePolicy, Restriction, Since, Subscription


class Attach(AgentMessage, frozen=True, tag=1):
    """First message on every new link.

    ``epoch`` identifies this life of the agent; publishes are numbered within it. ``resume`` is the last position that
    the application has committed. ``keep`` False discards the session's subscriptions (SPEC G-09), and also the queue
    for this device unless ``keep_queue`` (SPEC X20). The broker sends a subscription only after :class:`Read`.
    With ``is_filtering`` the agent may send :class:`RequestFilters`; it holds back nothing before the answer. A broker
    that does not know the highest ``received`` position, or the last ids ``seen``, has lost records (decision 0108).
    ``knows_waits`` is true if :class:`PublishesWait` may be sent to it. ``was_at`` is the server of the domain at which
    the device was last (decision 0149).
    """

    epoch: Number
    session: str
    resume: Position | None
    keep: bool
    keep_queue: bool = False
    is_filtering: bool = False
    received: Position | None = None
    seen: tuple[EventId, ...] = ()
    knows_waits: bool = False
    was_at: str = ""


class Publish(AgentMessage, frozen=True, tag=2):
    """Publish ``event`` as this epoch's ``number``.

    An event of the device's outbox is numbered in the epoch ``outbox``, which outlives the agent's own epochs.
    """

    number: Number
    event: Event
    outbox: Number | None = None


class Subscribe(AgentMessage, frozen=True, tag=3):
    """Subscribe; a repeated subscription in one session is answered with the existing one.

    It lives for ``lifetime_s``, or until ``expires_us``, or for the broker's default if neither is given (SPEC X17).
    ``reader`` opens a reader at once, as :class:`Read` does, unless this link has one; ``resume`` is the last position
    of the subscription that the application has committed. With ``since`` a new subscription begins in the past, or
    where the ended subscription ``succeeds`` has got to. If not ``is_kept``, it ends with the devices that asked. With
    ``everywhere`` the answer waits until other domains know the subscription.
    """

    request: int
    subject: str
    expression: str
    lifetime_s: float | None
    restrictions: tuple[Restriction, ...]
    this_device_only: bool
    queue: QueuePolicy = QueuePolicy()
    expires_us: int | None = None
    language: str = "eci"
    format: Format = "event"
    reader: int | None = None
    resume: Position | None = None
    since: Since | None = None
    succeeds: str | None = None
    is_kept: bool = True
    everywhere: bool = False


class Unsubscribe(AgentMessage, frozen=True, tag=4):
    """End a subscription; succeeds also if it has already ended.

    With ``abandon`` this device will not read the rest of its queue; otherwise it may (SPEC G-07).
    """

    request: int
    subscription: str
    abandon: bool = False


class Renew(AgentMessage, frozen=True, tag=5):
    """Extend a subscription to ``lifetime_s`` from now, or until ``expires_us`` (neither: without an end).

    A subscription that ended a while ago lives again, with the same id and state (SPEC X21).
    """

    request: int
    subscription: str
    lifetime_s: float | None
    expires_us: int | None = None


class Restrict(AgentMessage, frozen=True, tag=6):
    """Replace the restrictions of a subscription."""

    request: int
    subscription: str
    restrictions: tuple[Restriction, ...]


class Query(AgentMessage, frozen=True, tag=7):
    """Request the session's subscriptions (SPEC G-08)."""

    request: int


class NotifyAck(AgentMessage, frozen=True, tag=8):
    """The application has acknowledged everything up to ``number`` that was sent to a ``reader``."""

    reader: int
    number: Number


class Leave(AgentMessage, frozen=True, tag=9):
    """This device will not come back: the session need not keep anything for it."""

    request: int


Listed = Literal[
    "sessions",
    "subscriptions",
    "queues",
    "limits",
    "bounds",
    "engine",
    "servers",
    "filtering",
    "routes",
    "advertisements",
    "groups",
    "loads",
    "server",
    "domains",
    "metrics",
]
"""Kinds of listing: three of sessions, and twelve of the whole server: the limited parties, the bounds, the matching
engine, the other servers of the domain, the counts of filtering, what other servers want of decentralised channels,
what devices advertise, the channel groups that have moved or are about to, the events of each group, the server's own
process, the foreign domains, and the metrics."""


class Inspect(AgentMessage, frozen=True, tag=10):
    """Request the rows of ``user``, or of all users that the client may see; :class:`Listing` answers it.

    The answer has at most ``limit`` rows, from the cursor ``after`` on, which an earlier answer returned.
    """

    request: int
    what: Listed
    user: str | None
    after: str | None = None
    limit: int = 1_000


class Peek(AgentMessage, frozen=True, tag=11):
    """Show ``count`` waiting numbers of a session from ``first`` on, without acknowledging them.

    The numbers are those of all its subscriptions, or of one. One answer may have fewer, and then a cursor for the
    next.
    """

    request: int
    user: str
    session: str
    first: int
    count: int
    subscription: str | None = None


class Purge(AgentMessage, frozen=True, tag=12):
    """Drop the queue of a session, or of one ``subscription``; in steps, each ``after`` the cursor of the previous."""

    request: int
    user: str
    session: str
    subscription: str | None
    after: str | None = None


class Kick(AgentMessage, frozen=True, tag=13):
    """End the connection of ``device``, or of all the user's devices except the one that asks.

    With ``forget`` the devices also leave their sessions.
    """

    request: int
    user: str
    device: str | None
    forget: bool


class Reader(msgspec.Struct, frozen=True, array_like=True):
    """One subscription to read; ``handle`` is a number that the agent chooses for it in messages of this link.

    ``taken`` is the last position that the application has acknowledged in this life of the agent. Readers of one
    ``group`` are served in one order: none is sent an item while another has an earlier one unsent.
    """

    handle: int
    subscription: str
    taken: Position | None = None
    group: int | None = None


class Read(AgentMessage, frozen=True, tag=14):
    """Open readers of these subscriptions: the broker sends each queue, a window ahead of the acknowledgements.

    A notification that matched several of them is sent once if their positions are equal.
    """

    readers: tuple[Reader, ...]


class StopReading(AgentMessage, frozen=True, tag=15):
    """Close a reader: the broker sends nothing further, and keeps what is not acknowledged."""

    reader: int


class DeclareSchema(AgentMessage, frozen=True, tag=16):
    """Declare the attributes of a subject, all of them; :class:`Listing` answers it with the newest version.

    A version is added if they differ from those of the newest one.
    """

    request: int
    subject: str
    attributes: tuple[DeclaredAttribute, ...]


class ListSchemas(AgentMessage, frozen=True, tag=17):
    """Request the schemas of all subjects, or of one: the newest version of each, or every version.

    ``after`` and ``limit`` are those of :class:`Inspect`.
    """

    request: int
    subject: str | None = None
    every_version: bool = False
    after: str | None = None
    limit: int = 1_000


class PublishFor(AgentMessage, frozen=True, tag=18):
    """Publish an event that a ``device`` of ``user`` has published at another server of the domain (SPEC K-02).

    Only a server may send it. (``user``, ``device``, ``epoch``, ``number``) is the publisher's own identifier, by which
    a repeat is recognised, whichever server sends it; events of the device's outbox are numbered separately.
    ``received_us`` is the wall clock as the other server read it, in µs since the Unix epoch. ``request`` is the
    server's own number for this message on this link; the answer carries it as its number. The event is sent as stored.
    """

    request: Number
    user: str
    device: str
    epoch: Number
    number: Number
    event: msgspec.Raw
    received_us: Number
    is_outbox: bool = False


class Advertise(AgentMessage, frozen=True, tag=21):
    """Declare that this device will publish events of ``subject`` that match ``expression`` (SPEC A-17).

    Answered with :class:`Done` when the declaration is durable and counts; a repeated one, with the existing one.
    """

    request: int
    subject: str
    expression: str = ""
    language: str = "eci"


class Withdraw(AgentMessage, frozen=True, tag=22):
    """End this device's advertisement with this content; succeeds also if there is none."""

    request: int
    subject: str
    expression: str = ""
    language: str = "eci"


class RequestFilters(AgentMessage, frozen=True, tag=24):
    """Request the merged filters of all who want events of ``subject``; :class:`Filters` answers it (SPEC N-02).

    ``number`` identifies the request on this link. ``examined`` and ``held_back`` count the events since the last such
    report, of all subjects (SPEC N-01).
    """

    number: Number
    subject: str
    examined: Number = 0
    held_back: Number = 0


class ConfirmFilters(AgentMessage, frozen=True, tag=25):
    """The filters of ``subject`` in ``version`` are in use, in place of all earlier ones (SPEC N-03)."""

    subject: str
    version: Number


class ReleaseFilters(AgentMessage, frozen=True, tag=26):
    """This agent holds back no more events on this link; the counts are those of :class:`RequestFilters`."""

    examined: Number = 0
    held_back: Number = 0


class Attachment(BrokerMessage, frozen=True, tag=1):
    """Answer to :class:`Attach`: the present epoch of the session, with its first number, and the ``earlier`` ones.

    ``removed`` is the reason if the device had been removed from its session meanwhile: ``grace``, ``kicked``,
    ``hook`` or a bound. ``taken``, for servers, is what the device has acknowledged. Publishes have a bound, too.
    The device is at ``server`` now, "" while that has to learn from the former one what the device has published.
    """

    epoch: Number
    removed: str = ""
    first: Number = 1
    earlier: tuple[tuple[Number, Number], ...] = ()
    taken: Number = 0
    event_bytes_max: Number = EVENT_BYTES_MAX
    server: str = ""


class PublishAccepted(BrokerMessage, frozen=True, tag=2):
    """Publish-ack: ``number`` is durable in the log as ``id``; ``outbox`` is true for an event of the outbox."""

    number: int
    id: EventId
    outbox: bool = False


class PublishRefused(BrokerMessage, frozen=True, tag=3):
    """``number`` will not be published, because of ``reason``; ``limit`` is the bound that was met."""

    number: int
    reason: str
    limit: str | None = None
    outbox: bool = False


class Notify(BrokerMessage, frozen=True, tag=4):
    """A notification for these ``readers``, or for all readers if none are named.

    ``subscriptions`` are all that it matched; see :class:`wanderbus.event.Notification`. ``event`` stays encoded, so
    that each event is encoded only once: see :func:`encode_event`. It may be replaced by the notification as XML text
    (SPEC O-03): see :mod:`wanderbus.protocol.presentation`.
    """

    number: int
    id: EventId
    event: msgspec.Raw
    subscriptions: tuple[str, ...]
    redelivered: bool
    readers: tuple[int, ...] = ()
    is_history: bool = False


class NotifyGap(BrokerMessage, frozen=True, tag=5):
    """Notifications of one subscription between numbers ``first`` and ``last`` were dropped.

    ``lost`` has the counts and reasons; see :class:`wanderbus.event.Gap`.
    """

    first: int
    last: int
    lost: tuple[Loss, ...]
    reader: int | None = None


class Done(BrokerMessage, frozen=True, tag=6):
    """``request`` is durable; ``subscriptions`` are its result, with ``more`` if others follow."""

    request: int
    subscriptions: tuple[Subscription, ...]
    more: bool = False


class RequestRefused(BrokerMessage, frozen=True, tag=7):
    """``request`` was refused; ``position`` is the wrong character of an expression, ``limit`` the bound met."""

    request: int
    reason: str
    position: int | None = None
    limit: str | None = None


class SubscriptionEnded(BrokerMessage, frozen=True, tag=8):
    """``subscription`` has ended without a request of this device, because of ``reason`` (SPEC G-10)."""

    subscription: Subscription
    reason: str


class Listing(BrokerMessage, frozen=True, tag=9):
    """Answer to a request of :data:`ListingRequest`: ``rows`` of named values, with ``more`` if others follow.

    ``next`` of the last part is the cursor for the next request, None if the listing is complete.
    """

    request: int
    rows: tuple[Mapping[str, Any], ...]
    more: bool = False
    next: str | None = None


class NotRead(BrokerMessage, frozen=True, tag=10):
    """``waiting`` notifications wait for ``subscription``, which has had no reader for a while."""

    subscription: Subscription
    waiting: int


class NotifyServer(BrokerMessage, frozen=True, tag=11):
    """A notification for a server of the domain, which matches the event itself (SPEC K-02).

    ``before`` is the number that was sent before this one, as an event or as the last one of a gap; 0 for the first on
    this link. ``at_us`` is the time of the record of the event's acceptance, in µs since the Unix epoch.
    """

    number: int
    before: int
    id: EventId
    at_us: int
    event: msgspec.Raw


class Filters(BrokerMessage, frozen=True, tag=16):
    """Merged filters of all who want events of ``subject``, as ``expressions`` in ECI; the agent confirms them.

    An event that none of them matches need not be published. They may be used for ``lease_s`` from the moment on at
    which the agent sent request ``number``, less a margin for the rates of the clocks. Number 0 is a change without a
    request, which extends no lease. Without ``expressions`` every event has to be published.
    """

    number: Number
    subject: str
    version: Number
    lease_s: float
    expressions: tuple[str, ...] | None


SubscriptionRequest = Subscribe | Unsubscribe | Renew | Restrict | Query
"""Requests about the subscriptions of one's own session."""

AdvertisementRequest = Advertise | Withdraw
"""Requests about the advertisements of one's own device."""

SessionRequest = SubscriptionRequest | AdvertisementRequest
"""Requests of a device about its session; those with an expression are paced."""

PacedRequest = SessionRequest | ImportSession
"""Requests that may have an expression."""

SchemaRequest = DeclareSchema | ListSchemas
"""Administration requests about the schemas of subjects, which need a role."""

OperatorRequest = (
    Inspect | Peek | Purge | Kick | MoveSession | MoveGroup | ImportSession | TransferSession | Drain | SchemaRequest
)
"""Administration requests, about one's own sessions or, with a role, about those of others and about schemas."""

ListingRequest = OperatorRequest | ListEvents | AwaitTransfer
"""Requests that :class:`Listing` answers."""

ReaderMessage = Read | StopReading | NotifyAck
"""Messages about readers."""

FilterMessage = RequestFilters | ConfirmFilters | ReleaseFilters
"""Messages about the filters of subjects that an agent publishes to."""

AgentRequest = SessionRequest | ListingRequest | Leave
"""Requests that the broker answers with :class:`Done`, :class:`Listing` or :class:`RequestRefused`."""

FromAgent = Attach | Publish | PublishFor | ServerMessage | AgentRequest | ReaderMessage | FilterMessage
FromBroker = (
    Attachment
    | PublishAccepted
    | PublishRefused
    | PublishesWait
    | Notify
    | NotifyGap
    | Done
    | RequestRefused
    | SubscriptionEnded
    | Listing
    | NotRead
    | NotifyServer
    | Filters
    | GroupMessage
)


_encoder = msgspec.msgpack.Encoder()
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
_from_broker: msgspec.msgpack.Decoder[FromBroker] = msgspec.msgpack.Decoder(FromBroker)
_event = msgspec.msgpack.Decoder(Event)
_MESSAGE: Final = "a message of the data channel"

NUMBER_USED: Final = "number_used"
"""Limit of the refusal of a publish whose number was another event's; another epoch is needed (SPEC X25)."""

DEVICE_USED_TWICE: Final = "device_used_twice"
"""Limit of the refusal of an agent whose device another running agent has taken since."""

encode: Final[Callable[[AgentMessage | BrokerMessage], bytes]] = _encoder.encode
"""Return the bytes of one message."""


class _EncodedPublish(AgentMessage, frozen=True, tag=2):
    """:class:`Publish` whose event is encoded already."""

    number: int
    event: msgspec.Raw
    outbox: int | None


def encode_publish(number: int, event: bytes, outbox: int | None) -> bytes:
    """Return the bytes of a :class:`Publish` whose ``event`` was encoded by :func:`encode_event`."""
    return _encoder.encode(_EncodedPublish(number, msgspec.Raw(event), outbox))


def size_of(value: Event | Subscription | CopiedItem) -> int:
    """Return how many bytes an event, a subscription or an item of a queue takes in a message."""
    return len(_encoder.encode(value))


SESSION_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Form of the names of sessions."""

OPERATIONS: Final = "operations"
"""Session of clients that only send requests of operators: without subscriptions, with access to all of the user."""


def shortened(reason: object) -> str:
    """Return ``reason`` shortened for a refusal; it may quote a text of any length."""
    return str(reason)[:REASON_CHARACTERS_MAX]


def decode_from_agent(payload: bytes) -> FromAgent:
    """Return the agent's message; :class:`RemoteProtocolError` for an invalid ``payload``."""
    return decoded(_from_agent, payload, _MESSAGE)


def decode_from_broker(payload: bytes) -> FromBroker:
    """Return the broker's message; :class:`RemoteProtocolError` for an invalid ``payload``."""
    return decoded(_from_broker, payload, _MESSAGE)


encode_event: Final[Callable[[Event], bytes]] = _encoder.encode
"""Return the bytes of an event for messages and queues."""


def decode_event(data: bytes) -> Event:
    """Return the event in ``data``; :class:`RemoteProtocolError` for invalid data."""
    return decoded(_event, data, _MESSAGE)
