"""What agents and broker say to each other over the data channel: msgpack arrays, first item the kind.

Every request of an agent may be repeated after a reconnection and is then recognised: publishes by
(device, epoch, number), subscriptions by their content, the rest by being idempotent (DESIGN 5.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar

import msgspec

from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Event, EventId, Loss, Number, Position
from wanderbus.limits import REASON_CHARACTERS_MAX
from wanderbus.subscription import Format, QueuePolicy, Restriction, Subscription


class AgentMessage(msgspec.Struct, frozen=True, array_like=True):
    """Base of what an agent says."""


class Attach(AgentMessage, frozen=True, tag=1):
    """First message on every new link.

    ``epoch`` names this life of the agent; publishes are numbered within it. ``resume`` is the last position the
    application has committed. ``keep`` False discards the session's subscriptions (SPEC G-09), and what is queued for
    this device unless ``keep_queue`` (SPEC X20). Nothing is sent of a subscription before somebody reads it.
    """

    epoch: Number
    session: str
    resume: Position | None
    keep: bool
    keep_queue: bool = False


class Publish(AgentMessage, frozen=True, tag=2):
    """Publish ``event`` as this epoch's ``number``.

    An event of the device's outbox is counted in the epoch that the ``outbox`` has over all lives of its agent.
    """

    number: Number
    event: Event
    outbox: Number | None = None


class Subscribe(AgentMessage, frozen=True, tag=3):
    """Subscribe; the same subscription again in one session is answered with the one that is there.

    It lives for ``lifetime_s``, or until ``expires_us``; the broker's own default if neither is given (SPEC X17).
    ``reader`` begins to read it at once, as :class:`Read` does, unless it is read on this link already; ``resume`` is
    the last position of it that the application has committed.
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


class Unsubscribe(AgentMessage, frozen=True, tag=4):
    """End a subscription; done also when it had ended before.

    With ``abandon`` this device will not read what still waits for it, otherwise it may (SPEC G-07).
    """

    request: int
    subscription: str
    abandon: bool = False


class Renew(AgentMessage, frozen=True, tag=5):
    """Let a subscription live ``lifetime_s`` from now, or until ``expires_us`` (neither: for good).

    One that ended a while ago lives again, with the same id and state (SPEC X21).
    """

    request: int
    subscription: str
    lifetime_s: float | None
    expires_us: int | None = None


class Restrict(AgentMessage, frozen=True, tag=6):
    """Give a subscription these restrictions in place of its own."""

    request: int
    subscription: str
    restrictions: tuple[Restriction, ...]


class Query(AgentMessage, frozen=True, tag=7):
    """Ask for the session's subscriptions (SPEC G-08)."""

    request: int


class Take(AgentMessage, frozen=True, tag=8):
    """Notify-ack: the application has taken everything up to ``number`` that came for a ``reader``."""

    reader: int
    number: Number


class Leave(AgentMessage, frozen=True, tag=9):
    """This device will not come back: the session need not keep anything for it."""

    request: int


Listed = Literal["sessions", "subscriptions", "queues", "limits", "bounds"]
"""What can be listed: of a session, or of the whole server who is limited, and the bounds that are in force."""


class Inspect(AgentMessage, frozen=True, tag=10):
    """List what there is of ``user``, or of everybody that the asker may see; answered by :class:`Listing`.

    At most ``limit`` rows, and those that come ``after`` what an earlier answer said there is to go on from.
    """

    request: int
    what: Listed
    user: str | None
    after: str | None = None
    limit: int = 1_000


class Peek(AgentMessage, frozen=True, tag=11):
    """Show ``count`` numbers of a session from ``first`` on at which something waits, without taking it.

    That is for all of its subscriptions, or for one. There may be fewer in one answer, which says where to go on.
    """

    request: int
    user: str
    session: str
    first: int
    count: int
    subscription: str | None = None


class Purge(AgentMessage, frozen=True, tag=12):
    """Drop what waits in a session, or in it for ``subscription`` alone; in steps, each ``after`` the one before."""

    request: int
    user: str
    session: str
    subscription: str | None
    after: str | None = None


class Kick(AgentMessage, frozen=True, tag=13):
    """End the connection of ``device``, or of all of the user's but the one that asks.

    With ``forget`` they leave their sessions too.
    """

    request: int
    user: str
    device: str | None
    forget: bool


class Reader(msgspec.Struct, frozen=True, array_like=True):
    """One subscription that is read; ``handle`` is a number of the agent's choice for it in messages of this link.

    ``taken`` is up to where the application has taken it in this life of the agent.
    """

    handle: int
    subscription: str
    taken: Position | None = None


class Read(AgentMessage, frozen=True, tag=14):
    """Somebody reads these subscriptions: send what waits for each, a window ahead of what is acknowledged.

    What matched several of them is sent once where they are equally far.
    """

    readers: tuple[Reader, ...]


class StopReading(AgentMessage, frozen=True, tag=15):
    """Nobody reads this subscription here any more: send nothing further, and keep what is not acknowledged."""

    reader: int


class BrokerMessage(msgspec.Struct, frozen=True, array_like=True):
    """Base of what a broker says."""


class Attachment(BrokerMessage, frozen=True, tag=1):
    """Answer to :class:`Attach`: the epoch of the session's numbers."""

    epoch: int


class PublishAccepted(BrokerMessage, frozen=True, tag=2):
    """Publish-ack: ``number`` is durable in the log as ``id``; whether it is one of the ``outbox``."""

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
    """A notification for these ``readers``, or for all that there are if none are named.

    ``subscriptions`` are all that it matched; see :class:`wanderbus.event.Notification`. ``event`` stays encoded, so
    that one publish is encoded once however many it goes to: see :func:`encode_event`. In its place may stand the text
    of the notification in XML (SPEC O-03): see :mod:`wanderbus.protocol.presentation`.
    """

    number: int
    id: EventId
    event: msgspec.Raw
    subscriptions: tuple[str, ...]
    redelivered: bool
    readers: tuple[int, ...] = ()


class NotifyGap(BrokerMessage, frozen=True, tag=5):
    """Of one subscription notifications between numbers ``first`` and ``last`` were dropped.

    ``lost`` says how many and why; see :class:`wanderbus.event.Gap`.
    """

    first: int
    last: int
    lost: tuple[Loss, ...]
    reader: int | None = None


class Done(BrokerMessage, frozen=True, tag=6):
    """``request`` is durable; ``subscriptions`` are those it asked for or changed, ``more`` if others follow."""

    request: int
    subscriptions: tuple[Subscription, ...]
    more: bool = False


class RequestRefused(BrokerMessage, frozen=True, tag=7):
    """``request`` was declined; ``position`` is the character at fault in an expression, ``limit`` the bound met."""

    request: int
    reason: str
    position: int | None = None
    limit: str | None = None


class SubscriptionEnded(BrokerMessage, frozen=True, tag=8):
    """``subscription`` is over without having been asked to be, because of ``reason`` (SPEC G-10)."""

    subscription: Subscription
    reason: str


class Listing(BrokerMessage, frozen=True, tag=9):
    """Answer to a request for what there is: ``rows`` of named values, ``more`` if others follow.

    ``next`` of the last part is where to go on from when there is more than one answer lists.
    """

    request: int
    rows: tuple[Mapping[str, Any], ...]
    more: bool = False
    next: str | None = None


class NotRead(BrokerMessage, frozen=True, tag=10):
    """So many notifications wait for ``subscription``, which nobody has read for a while though its user is there."""

    subscription: Subscription
    waiting: int


OfSubscriptions = Subscribe | Unsubscribe | Renew | Restrict | Query
"""Requests about the subscriptions of one's own session."""

OfOperators = Inspect | Peek | Purge | Kick
"""Requests about what is at the broker, one's own or for a role."""

OfReaders = Read | StopReading | Take
"""What is said of readers."""

FromAgent = Attach | Publish | OfSubscriptions | OfReaders | Leave | OfOperators
FromBroker = (
    Attachment
    | PublishAccepted
    | PublishRefused
    | Notify
    | NotifyGap
    | Done
    | RequestRefused
    | SubscriptionEnded
    | Listing
    | NotRead
)

Decoded = TypeVar("Decoded")

_encoder = msgspec.msgpack.Encoder()
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
_from_broker: msgspec.msgpack.Decoder[FromBroker] = msgspec.msgpack.Decoder(FromBroker)
_event = msgspec.msgpack.Decoder(Event)


def limit_reached(limit: str, most: int) -> RequestRefused:
    """Return the refusal of an attachment because of a bound on ``most`` of something."""
    return RequestRefused(0, f"{limit} is {most}, and it is reached", limit=limit)


def encode(message: AgentMessage | BrokerMessage) -> bytes:
    """Return the bytes of one message."""
    return _encoder.encode(message)


def size_of(value: Event | Subscription) -> int:
    """Return how many bytes an event or a subscription takes in a message."""
    return len(_encoder.encode(value))


OPERATIONS: Final = "operations"
"""The session of who only asks: nothing is subscribed to there, and its links reach all that is the user's."""


def shortened(reason: object) -> str:
    """Return ``reason`` as a refusal carries it: it may quote a text of any length."""
    return str(reason)[:REASON_CHARACTERS_MAX]


def decode_from_agent(payload: bytes) -> FromAgent:
    """Return the agent's message; :class:`RemoteProtocolError` if ``payload`` is none."""
    return _decode(_from_agent, payload)


def decode_from_broker(payload: bytes) -> FromBroker:
    """Return the broker's message; :class:`RemoteProtocolError` if ``payload`` is none."""
    return _decode(_from_broker, payload)


def encode_event(event: Event) -> bytes:
    """Return the bytes of an event as messages and queues carry it."""
    return _encoder.encode(event)


def decode_event(data: bytes) -> Event:
    """Return the event in ``data``; :class:`RemoteProtocolError` if it holds none."""
    return _decode(_event, data)


def _decode(decoder: msgspec.msgpack.Decoder[Decoded], payload: bytes) -> Decoded:
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"not a message of the data channel: {error}", None) from None
