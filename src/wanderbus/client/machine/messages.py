"""What the agent machine may be told by its application, and what it reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from wanderbus import protocol
from wanderbus.client.machine.path_choice import WAYS, DataTransport, Way
from wanderbus.event import Event, EventId, Gap, Notification, Position
from wanderbus.machine import Address, Input, Output
from wanderbus.sip.message.targets import Transport
from wanderbus.subscription import Subscription

OnEnded = Literal["ignore", "renew", "resubmit"]
"""What an agent does about a subscription that ends without being asked to (SPEC G-11, X21)."""


class AgentProperties(msgspec.Struct, frozen=True):
    """Who the user is and how the broker is reached (SPEC Q-02, agent keys)."""

    uri: str
    """The user, ``sip:name@domain``."""

    server: Address
    """The home SIP server: registrar and proxy."""

    broker: str
    """URI of the broker."""

    device: str
    """UUID of this device; the same one replaces its earlier session (DESIGN 5.4)."""

    epoch: int
    """Names this life of the agent; publishes are numbered within it."""

    password: str | None = None

    transport: Transport = "UDP"
    """What signalling with the server goes over (SPEC Q-02)."""

    server_name: str | None = None
    """The name in the server's TLS certificate; its address when None."""

    encryption: bool = True
    """Whether the data channel is sealed; the broker has to say the same (SPEC U-05)."""

    data_transport: DataTransport = "AUTO"
    """What the data channel takes: reliable UDP, or TCP; AUTO takes either (SPEC F-01, I-08)."""

    data_ways: tuple[Way, ...] = WAYS
    """The ways it may take, of that transport, in the order in which they are tried (SPEC I-08)."""

    session: str = "default"
    """Name of the broker session to join."""

    resume: Position | None = None
    """The last position that the application has committed, for all subscriptions."""

    keep: bool = True
    """Whether to keep the subscriptions that the session has already (SPEC G-09)."""

    keep_queue: bool = False
    """Whether to keep, without them, what they have queued for this device (SPEC X20)."""

    on_ended: OnEnded = "ignore"
    """What to do about a subscription that has ended without being asked to: nothing, have it back as it was, or
    subscribe anew (SPEC G-11, X21)."""

    digest_algorithms: tuple[Literal["SHA-256", "MD5"], ...] = ("SHA-256", "MD5")
    """The digests that the user proves themselves by: with ``["SHA-256"]`` no server, and nobody in between, can make
    the agent use a weaker one."""

    untaken_bytes_max: int = 64 * 2**20
    """Bytes of notifications that a broker may send ahead of what the application has taken; one that sends more loses
    the connection. A broker's ``device_unacknowledged_bytes_max`` has to be less."""

    strangers_per_s: float = 20.0
    """SIP messages a second that others than the hosts of server and broker may send here, all together; more are
    dropped unread. Five seconds' worth may come at once."""

    register_expires_s: int = 600
    """Lifetime of the registration; refreshed at a third of what is granted (SPEC D-03)."""

    keepalive_s: float = 5.0
    """A silent data channel is tried this often, so that an idle subscriber learns of a dead one (DESIGN 6.1)."""

    probe_s: float = 1.0
    """While DISCONNECTED, the connection that failed is probed this often; an answer heals at once (SPEC D-10)."""

    heal_s: float = 4.0
    """While DISCONNECTED, a fresh re-INVITE goes out after this time, for a broker that has moved or forgotten; then
    after twice as long, and so on."""

    heal_s_max: float = 16.0
    """The longest pause between two of them."""

    drain_s: float = 2.0
    """How long leaving waits for what was sent to be acknowledged."""

    answer_s_max: float = 2.0
    """In the mode of the original ECI: how long an answer is waited for, once, as nothing is repeated (SPEC X36)."""

    def __repr__(self) -> str:
        return f"AgentProperties(uri={self.uri!r}, ...)"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("uri", self.uri)]


class Connect(Input, frozen=True):
    """Register and open the session."""


class Disconnect(Input, frozen=True):
    """Send what is outstanding, end the session, unregister; then :class:`Disconnected`."""


class Moved(Input, frozen=True):
    """This device is reached at new addresses from now on: ``sip`` for signalling, ``data`` for the data channel."""

    sip: Address
    data: Address


class PublishEvent(Input, frozen=True):
    """Publish ``event`` as ``number``; numbers count from 1 without holes.

    With ``outbox`` it is the number in the epoch of that name, which outlives the agent.
    """

    number: int
    event: Event
    outbox: int | None = None


class Ask(Input, frozen=True):
    """Make a request of the broker; its ``request`` number is the application's to choose, once each.

    With ``reads`` a subscription that is asked for is read from the moment it is there.
    """

    message: protocol.OfSubscriptions | protocol.OfOperators | protocol.Leave
    reads: bool = False


class StartReading(Input, frozen=True):
    """The application reads ``subscription`` from now on, until it says :class:`StopReading`.

    ``resume`` is the last position of it that it has committed.
    """

    subscription: str
    resume: Position | None = None


class StopReading(Input, frozen=True):
    """The application does not read ``subscription`` any more; what it has not taken waits at the broker."""

    subscription: str


class Acknowledge(Input, frozen=True):
    """The application has taken what came for ``subscription`` up to ``position``."""

    subscription: str
    position: Position


class AgentStatusChanged(Output, frozen=True):
    """The ECIAgent Status is ``CONNECTED`` or ``DISCONNECTED`` now (SPEC E-07), at local data address ``address``.

    Also reported when a move is complete and the status was CONNECTED all along.
    """

    status: str
    address: Address
    reason: str
    way: Way = "udp"
    """The way of the data channel, or the one to be tried next (SPEC I-08)."""


class PublishSettled(Output, frozen=True):
    """Publish ``number`` is durable as ``id``, or was refused because of ``reason``.

    ``answered`` is False if the broker said nothing in time: it may have taken the event all the same.
    """

    number: int
    id: EventId | None
    reason: str | None = None
    answered: bool = True
    outbox: bool = False
    limit: str | None = None
    """The bound that was met, if that was the reason."""


class SubscriptionOver(Output, frozen=True):
    """``subscription`` has ended without being asked to; ``successor`` is what stands for it now, None for nothing.

    That is itself, renewed, or one that was submitted in its place.
    """

    subscription: Subscription
    reason: str
    successor: Subscription | None = None


class SubscriptionNotRead(Output, frozen=True):
    """So many notifications wait for ``subscription`` of the agent's session, and nobody reads it."""

    subscription: Subscription
    waiting: int


class RequestSettled(Output, frozen=True):
    """The broker answered ``request``: with subscriptions, or a refusal.

    ``answered`` is False if it said nothing in time, and the refusal is ours.
    """

    request: int
    subscriptions: tuple[Subscription, ...]
    refusal: protocol.RequestRefused | None = None
    answered: bool = True
    rows: tuple[Mapping[str, Any], ...] = ()
    """What was listed, if that was asked for."""
    next: str | None = None
    """Where to go on from, if there is more."""


class Arrived(Output, frozen=True):
    """The next item for these ``subscriptions``, which are read: to each its own once, in order."""

    item: Notification | Gap
    subscriptions: tuple[str, ...]


class ConnectRefused(Output, frozen=True):
    """We are not wanted: by the registrar (``registration``), on the way to the broker or by it (``session``).

    ``status`` is the SIP answer; None when the broker took the session and would not attach us (``attachment``).
    """

    stage: Literal["registration", "session", "attachment"]
    status: int | None
    reason: str


class ServerUnreachable(Output, frozen=True):
    """A registration, the first call of the broker, or a connection to it came to nothing because of ``reason``.

    It is tried again.
    """

    reason: str


class Disconnected(Output, frozen=True):
    """Nothing more will come; the sockets may be closed."""
