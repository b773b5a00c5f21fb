"""Inputs of the agent machine from its application, and its reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from wanderbus import protocol
from wanderbus.event import EventId, Gap, Notification, Position
from wanderbus.machine import Address, Input, Output
from wanderbus.sip.authentication.digest_values import Secret
from wanderbus.sip.message.targets import Transport
from wanderbus.subscription import Subscription

DataTransport = Literal["AUTO", "UDP", "TCP"]
"""Transport of the data channel: reliable UDP, TCP, or the first one that works."""

DataPathKind = Literal["udp", "udp-relay", "tcp", "tcp-relay"]

DATA_PATH_KINDS: Final[tuple[DataPathKind, ...]] = ("udp", "udp-relay", "tcp", "tcp-relay")
"""All paths, the best first."""

OnEnded = Literal["ignore", "renew", "resubmit"]
"""Reaction of an agent to a subscription that ends without a request (SPEC G-11, X21)."""


class AgentProperties(msgspec.Struct, frozen=True):
    """Identity and parameters of an agent (SPEC Q-02, agent keys)."""

    uri: str
    """The user, ``sip:name@domain``."""

    server: Address
    """The home SIP server: registrar and proxy."""

    broker: str
    """URI of the broker."""

    device: str
    """UUID of this device; a new connection of the same device replaces the earlier one (DESIGN 5.4)."""

    epoch: int
    """Number of this run of the agent; publishes are numbered within it."""

    was_at: str = ""
    """Server of a domain that knows what this device has published, as far as an earlier agent knew it."""

    password: Secret | None = None

    transport: Transport = "UDP"
    """Transport of SIP to the server (SPEC Q-02)."""

    server_name: str | None = None
    """Name in the server's TLS certificate; its address if None."""

    encryption: bool = True
    """Encrypt the data channel; the broker needs the same setting (SPEC U-05)."""

    data_transport: DataTransport = "AUTO"
    """Transport of the data channel: reliable UDP, TCP, or AUTO for either (SPEC F-01, I-08)."""

    data_paths: tuple[DataPathKind, ...] = DATA_PATH_KINDS
    """Paths that the data channel may take, in the order in which they are tried (SPEC I-08)."""

    session: str = "default"
    """Name of the broker session to join."""

    resume: Position | None = None
    """The last position that the application has committed, for all subscriptions."""

    keep: bool = True
    """Keep the subscriptions that the session already has (SPEC G-09)."""

    keep_queue: bool = False
    """Keep what is queued for this device when ``keep = false`` ends the subscriptions (SPEC X20)."""

    on_ended: OnEnded = "ignore"
    """Reaction to a subscription that ended without a request: ignore it, renew the same one, or resubmit it as a new
    one (SPEC G-11, X21)."""

    digest_algorithms: tuple[Literal["SHA-256", "MD5"], ...] = ("SHA-256", "MD5")
    """Digests that the user authenticates with. With ``["SHA-256"]`` no server and no attacker on the path can make the
    agent use a weaker one."""

    untaken_bytes_max: int = 64 * 2**20
    """Most bytes of notifications that a broker may send before the application acknowledges them; beyond it the agent
    closes the connection. A broker's ``device_unacknowledged_bytes_max`` has to be less."""

    strangers_per_s: float = 20.0
    """Most SIP messages per second from hosts other than the server's and the broker's, together; more are discarded
    unread. The burst is five seconds' worth."""

    register_expires_s: int = 600
    """Lifetime of the registration; refreshed at a third of the granted time (SPEC D-03)."""

    keepalive_s: float = 5.0
    """Interval of keep-alives on a silent data channel, so that an idle subscriber detects a dead one (DESIGN 6.1)."""

    probe_s: float = 1.0
    """Interval of probes of the failed connection while DISCONNECTED; a response starts healing at once (SPEC D-10)."""

    heal_s: float = 4.0
    """Time while DISCONNECTED until another re-INVITE, for a broker that has moved or restarted; it doubles with each
    attempt."""

    heal_s_max: float = 16.0
    """Longest time between two such re-INVITEs."""

    drain_s: float = 2.0
    """Longest time that closing waits for acknowledgements of sent messages."""

    answer_s_max: float = 2.0
    """Timeout of a response in the mode of the original ECI, which retransmits nothing (SPEC X36)."""

    publisher_filtering: bool = False
    """Get the merged filters of all who want the events that this agent publishes, and send only events that match.
    The others are in no log, and the agent's ``held_back`` counts them (SPEC N-02)."""

    def __repr__(self) -> str:
        return f"AgentProperties(uri={self.uri!r}, ...)"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("uri", self.uri)]


class Connect(Input, frozen=True):
    """Register and open the session."""


class Disconnect(Input, frozen=True):
    """Send pending messages, end the session, unregister; then report :class:`Disconnected`."""


class Moved(Input, frozen=True):
    """The device has new addresses: ``sip`` for SIP, ``data`` for the data channel.

    :param places: places of other devices of the user, to be sent to the broker with the new address (SPEC D-14)
    :param by_other: another device sends the new address to the broker; :attr:`AgentMachine.place` is what it needs
    """

    sip: Address
    data: Address
    places: tuple[str, ...] = ()
    by_other: bool = False


class PublishEvent(Input, frozen=True):
    """Publish ``event`` as ``number``; numbers count from 1 without gaps.

    ``event`` is encoded by :func:`wanderbus.protocol.encode_event`, and goes into the message as it is. With
    ``outbox``, the number belongs to that epoch, which outlives the agent. ``suspended_s`` is the time for which the
    device was suspended since it was booted: the clock of the machine stood still then.
    """

    number: int
    event: bytes
    outbox: int | None = None
    suspended_s: float = 0.0


class AskBroker(Input, frozen=True):
    """Send a request to the broker; the application chooses a unique ``request`` number.

    With ``reads``, a requested subscription is read from its start.
    """

    message: protocol.AgentRequest
    reads: bool = False


class StartReading(Input, frozen=True):
    """The application reads ``subscription`` from now on, until :class:`EndReading`.

    ``resume`` is the last position of it that it has committed.
    """

    subscription: str
    resume: Position | None = None


class ReadTogether(Input, frozen=True):
    """The application reads these ``subscriptions`` as one stream, in the order of their numbers.

    Each of them continues until :class:`EndReading`; none is being read yet.
    """

    subscriptions: tuple[str, ...]


class EndReading(Input, frozen=True):
    """The application no longer reads ``subscription``; unacknowledged notifications stay queued at the broker."""

    subscription: str


class Acknowledge(Input, frozen=True):
    """The application acknowledges the notifications of ``subscription`` up to ``position``."""

    subscription: str
    position: Position


class AgentStatusChanged(Output, frozen=True):
    """The agent's status is now ``CONNECTED`` or ``DISCONNECTED`` (SPEC E-07), with local data address ``address``.

    Also reported when a move is complete, even if the status was CONNECTED throughout.
    """

    status: str
    address: Address
    reason: str
    data_path: DataPathKind = "udp"
    """Path of the data channel, or the one to be tried next (SPEC I-08)."""


class PublishSettled(Output, frozen=True):
    """Publish ``number`` is durable as ``id``, or was refused for ``reason``; or ``id`` is :data:`HELD_BACK`.

    ``answered`` is False after a timeout: the broker may have stored the event nevertheless.
    """

    number: int
    id: EventId | None
    reason: str | None = None
    answered: bool = True
    outbox: bool = False
    limit: str | None = None
    """Name of the limit that was reached, if that was the reason."""


class SubscriptionOver(Output, frozen=True):
    """``subscription`` has ended without a request; ``successor`` replaces it: itself, renewed, a new one, or None."""

    subscription: Subscription
    reason: str
    successor: Subscription | None = None


class MembershipLost(Output, frozen=True):
    """The device had been removed from its session for ``reason``, and is a new member of it.

    ``reason`` is that of :class:`wanderbus.protocol.Attachment`.
    """

    reason: str


class SubscriptionNotRead(Output, frozen=True):
    """``waiting`` notifications are queued for ``subscription`` of the agent's session, which nobody reads."""

    subscription: Subscription
    waiting: int


class ServerKnown(Output, frozen=True):
    """The server ``name`` of a domain knows what this device has published, or where its session has gone.

    Later agents of the device begin with it: :attr:`AgentProperties.was_at`.
    """

    name: str


class PublishesDelayed(Output, frozen=True):
    """The broker has not published events yet, for ``reason``; with "" that is over."""

    reason: str


class RequestSettled(Output, frozen=True):
    """The broker responded to ``request`` with subscriptions, rows or a refusal.

    ``answered`` is False after a timeout; the refusal is then the agent's own.
    """

    request: int
    subscriptions: tuple[Subscription, ...]
    refusal: protocol.RequestRefused | None = None
    answered: bool = True
    rows: tuple[Mapping[str, Any], ...] = ()
    """Rows of a listing, if one was requested."""
    next: str | None = None
    """Cursor of the next page, if there is one."""


class StreamReplaced(Output, frozen=True):
    """The session's stream at the broker is another one behind ``number``, but ``received`` had arrived before.

    The broker's data was replaced by an earlier copy, or removed (decision 0108); or the server ``former`` has that
    stream, and cannot be reached (decision 0154).
    """

    received: Position
    number: int
    former: str = ""


class ItemArrived(Output, frozen=True):
    """The next item for these ``subscriptions``: each receives its items once, in order."""

    item: Notification | Gap
    subscriptions: tuple[str, ...]


class ConnectRefused(Output, frozen=True):
    """The agent was refused: by the registrar (``registration``), or by a proxy or the broker (``session``).

    ``status`` is the SIP status; None if the broker accepted the session but refused the attachment (``attachment``).
    """

    stage: Literal["registration", "session", "attachment"]
    status: int | None
    reason: str
    limit: str | None = None
    """The bound that was met, if any."""
    sent_to: str = ""
    """The broker of another domain that was called because the agent's own broker has sent the call there."""


class ServerUnreachable(Output, frozen=True):
    """A registration, the first INVITE to the broker, or a connection to it failed for ``reason``; it is retried."""

    reason: str
    remedy: str = ""
    """Remedy, if it is known; the user is then warned at once."""


def long_requests_lost(size_bytes: int) -> ServerUnreachable:
    """Return the report of a path that seems to drop requests of this size, to a server without TCP."""
    return ServerUnreachable(
        f"it answers short requests by UDP, but not one of {size_bytes} bytes, and accepts no TCP: "
        "the path may drop long packets",
        "let the server accept SIP over TCP (wanderbus up --tcp, and no firewall on the way)",
    )


class Disconnected(Output, frozen=True):
    """The machine has ended; the sockets may be closed."""
