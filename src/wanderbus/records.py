"""The records of the event log: the one truth that state, history and analytics derive from (DESIGN 5.1, SPEC T-01).

A record is a msgpack map with its kind under ``"kind"``. Fields may be added with a default; a field is never
renamed or given another meaning: that takes a new kind and :data:`SCHEMA_VERSION` one higher. Times are
microseconds since the Unix epoch by the broker's clock. ``user`` is a canonical ``sip:name@domain``; of the original
ECI, an address as ``eci:host:port``.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.event import Event
from wanderbus.subscription import Subscription

SCHEMA_VERSION: Final = 3


class Record(msgspec.Struct, frozen=True, tag_field="kind", kw_only=True, omit_defaults=True):
    """Base of all records; ``at_us`` is the broker's wall clock when it decided."""

    at_us: int


class Started(Record, frozen=True, tag="started", kw_only=True):
    """The server ``server`` began to serve, with ``schema`` as its record schema."""

    server: str
    schema: int = SCHEMA_VERSION


class Notified(msgspec.Struct, frozen=True, array_like=True):
    """One notification generated: its session (``user``, ``session``), number, and matched subscription ids.

    ``bound`` pairs those of them that are bound to a device with that device (SPEC E-05).
    """

    user: str
    session: str
    number: int
    subscriptions: tuple[str, ...]
    bound: tuple[tuple[str, str], ...] = ()


class Published(Record, frozen=True, tag="published", kw_only=True):
    """An event was accepted, and these notifications were generated of it: one record, so one commit.

    (``device``, ``epoch``, ``number``) is the publisher's own name for it, by which a repeat is recognised; those of
    its ``outbox`` are counted apart. ``restricted`` names the subscriptions that matched and the first of their
    restrictions, by its place, that forbade a notification. ``received_us`` is the wall clock as it was read, where
    the broker's own, ``at_us``, is still on its way there; time windows look at it (DESIGN 5.8).
    """

    event: Event
    user: str
    device: str
    epoch: int
    number: int
    notified: tuple[Notified, ...] = ()
    restricted: tuple[tuple[str, int], ...] = ()
    received_us: int | None = None
    outbox: bool = False


class Dropped(Record, frozen=True, tag="dropped", kw_only=True):
    """Notifications ``first`` to ``last`` of a session left the queues of these ``subscriptions`` undelivered.

    That is because of ``reason``; it holds for all subscriptions of the session if none are named.
    """

    user: str
    session: str
    first: int
    last: int
    reason: str
    subscriptions: tuple[str, ...] = ()


class Acknowledged(Record, frozen=True, tag="acknowledged", kw_only=True):
    """The application on ``device`` has taken what came for these ``subscriptions`` up to ``number`` (notify-ack).

    It holds for all subscriptions of the session if none are named. ``resumed`` says that the application committed
    its results together with this position, so that nothing behind it was seen before.
    """

    user: str
    session: str
    device: str
    number: int
    subscriptions: tuple[str, ...] = ()
    resumed: bool = False


class Subscribed(Record, frozen=True, tag="subscribed", kw_only=True):
    """A subscription was accepted; what waits for the ended one named ``inherits`` waits for it from now on."""

    subscription: Subscription
    inherits: str | None = None


class Changed(Record, frozen=True, tag="changed", kw_only=True):
    """A subscription was renewed or given restrictions: this is it from now on, also if it had ended (SPEC X21)."""

    subscription: Subscription


class Unsubscribed(Record, frozen=True, tag="unsubscribed", kw_only=True):
    """A subscription ended; ``reason`` is ``asked``, ``expired``, ``discarded`` or ``removed`` by an operator."""

    user: str
    subscription: str
    reason: str


class Forgotten(Record, frozen=True, tag="forgotten", kw_only=True):
    """Subscriptions that ended long ago can no longer be renewed under their ids; what waited for them is dropped.

    Of ``devices``, pairs of user and name, that were removed, publishes are no longer recognised as repeated.
    """

    subscriptions: tuple[str, ...] = ()
    devices: tuple[tuple[str, str], ...] = ()


class Attached(Record, frozen=True, tag="attached", kw_only=True):
    """A device opened its data channel to a session; ``epoch`` names that life of the agent.

    ``redelivered`` says for which subscriptions, and up to which number, an earlier life of it may have seen
    notifications that it has not acknowledged; an unchanged epoch leaves that as it was.
    """

    user: str
    session: str
    device: str
    epoch: int
    redelivered: tuple[tuple[str, int], ...] = ()


class DialogStored(Record, frozen=True, tag="dialog_stored", kw_only=True):
    """The signalling layer's state for a device's dialog changed; ``binding`` is opaque outside that layer.

    ``address`` is where its data goes now, ``host:port``.
    """

    user: str
    device: str
    address: str
    binding: bytes


class StatusChanged(Record, frozen=True, tag="status", kw_only=True):
    """A device became ``CONNECTED`` or ``DISCONNECTED`` (its Remote Media Status), because of ``reason``.

    ``grace_s`` is how long it may be away this time, where the operator's hook has said so (SPEC G-24).
    """

    user: str
    device: str
    status: str
    reason: str
    grace_s: float | None = None


class Left(Record, frozen=True, tag="left", kw_only=True):
    """A device is no longer a member of its session; ``reason`` is ``asked``, ``grace``, ``kicked`` or ``hook``."""

    user: str
    session: str
    device: str
    reason: str


AnyRecord = (
    Started
    | Published
    | Dropped
    | Acknowledged
    | Subscribed
    | Changed
    | Unsubscribed
    | Forgotten
    | Attached
    | DialogStored
    | StatusChanged
    | Left
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyRecord] = msgspec.msgpack.Decoder(AnyRecord)


def encode_record(record: Record) -> bytes:
    """Return the bytes that the log stores for ``record``."""
    return _encoder.encode(record)


def decode_record(payload: bytes) -> AnyRecord:
    """Return the record that ``payload`` holds; ``msgspec.DecodeError`` if it is none of this schema."""
    return _decoder.decode(payload)
