"""Parameters of a broker that an operator can set (SPEC Q-02)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import product
from typing import Final, Literal

import msgspec

from wanderbus.limits import EVENT_BYTES_MAX, EVENT_BYTES_MOST
from wanderbus.parameters.subject_globs import overlap
from wanderbus.subscription import QueuePolicy

SUBSCRIPTIONS_MAX: Final = 1_100
"""Number of subscription ids that fit a message beside the largest event."""

_OTHER_BOUNDS: Final = {
    "disk_full": "disk_reserve_bytes",
    "identities_max": "eci.identities_max",
    "device_used_twice": "device_used_twice",
    "number_used": "number_used",
}
"""Settings of bounds that refusals name and that are not in :class:`BrokerConfig`; other names are constants.

State that was copied is refused without a setting.
"""

Role = Literal["operator", "administrator"]
"""Additional rights of a user: an operator sees everything, an administrator can also change it."""


FILTER_WORK_MAX: Final = 500_000
"""Units of work of one filter for one event, where nothing else is set."""


@lru_cache(maxsize=64)
def setting_of(limit: str) -> str:
    """Return the full name of the bound that a refusal or a counted drop of the broker names."""
    if limit.partition(".")[0] in BrokerConfig.__struct_fields__:
        return f"broker.{limit}"
    return _OTHER_BOUNDS.get(limit, f"limits.{limit.upper()}")


class BrokerConfig(msgspec.Struct, frozen=True):
    """Bounds of one broker; a refusal or a counted drop names the bound that was met.

    ``ValueError`` names a value that cannot work.
    """

    server: str = "wb"
    """Name of this server: the origin in event and subscription ids."""

    domain: str = ""
    """The domain of this server's own users; with "" the bounds of other domains apply to nobody."""

    federated: bool = False
    """True if other domains are connected with this one: the interest of the users here is reported for them."""

    zone: str = "UTC"
    """IANA name of the default time zone of daily windows (SPEC X27)."""

    queue: QueuePolicy = QueuePolicy(notifications_max=10_000, bytes_max=64 * 2**20, when_full="drop_oldest")
    """Bounds of the queue of each session (SPEC G-15 to G-18)."""

    refuse_when_full: tuple[str, ...] = ()
    """Subjects, with ``*`` and ``?`` as in file names, whose events are refused to the publisher instead of dropped if
    ``queue``, ``user_queued_bytes_max`` or ``queued_bytes_max`` is met (SPEC U-02)."""

    spark_subjects: tuple[str, ...] = ()
    """Subjects, with ``*`` and ``?`` as in file names, whose events the matching engine on Spark matches; ``["*"]`` for
    all. Such an event is acknowledged when it is durable, and waits in the log while the engine is away (SPEC T-06). A
    subject may not be in ``refuse_when_full`` too: its publisher is answered before the queues are known."""

    user_queued_bytes_max: int = 256 * 2**20
    """Bytes of events that wait for one user, in all sessions."""

    queued_bytes_max: int = 2 * 2**30
    """Bytes of events that wait in this broker; beyond it the longest queue loses notifications first."""

    event_bytes_max: int = EVENT_BYTES_MAX
    """Bytes of one event, encoded, from 1 KiB to 1 MiB; a larger one is refused. Agents learn it from the server. Each
    connection of a device may take so much memory, and 32 KiB more, for one message that is incomplete."""

    unacknowledged_max: int = 256
    """Notifications of one subscription sent to a device and not yet acknowledged by its application."""

    unacknowledged_bytes_max: int = 256 * 2**10
    """Bytes of their events; one notification may always be in flight."""

    device_unacknowledged_bytes_max: int = 4 * 2**20
    """Bytes of events sent to one device and not yet acknowledged, shared evenly by the subscriptions read there."""

    blocked_s: float = 60.0
    """Time after which a stalled reader with a full window, or a missing reader of a queue, causes a warning."""

    backlog_per_s: float | None = None
    """Most notifications per second of the backlog that is sent to a returning device, and most events per second of
    the past; unlimited if not set. Both use only the time that others leave, so this saves the bandwidth of devices
    (SPEC U-03)."""

    turn_units: int = 60
    """Work of one turn, after which the broker serves other users, in units: one for each message, record, answer and
    notification, and one for each KiB of them. Further messages of a user wait, and the user who has cost least goes
    first; nothing is refused. 60 units take a millisecond or two."""

    unsynced_units_max: int = 4_000
    """Work that may wait for the disk; with more, further messages of agents wait too, and the user who has cost least
    goes first."""

    user_subscriptions_max: int = 1_000
    """Subscriptions of one user, in all sessions."""

    user_advertisements_max: int = 100
    """Advertisements of one user, of all devices. Their filters may take as much memory as those of subscriptions,
    ``user_filter_bytes_max``, and an event that the user publishes is compared with each (SPEC A-17)."""

    user_filter_bytes_max: int = 64 * 2**20
    """Bytes of memory for the filters of one user's subscriptions, estimated from their text: 4 KiB for each attribute
    that a filter names, half a KiB for each comparison."""

    user_filter_characters_per_s: float = 50_000.0
    """Characters per second of the expressions with which a user subscribes; a burst of two seconds is read at once,
    and faster requests wait. Long expressions count more: one of 1,024 characters twice, one of 8,192 nine times."""

    filter_work_max: int = FILTER_WORK_MAX
    """Units of work of one filter for one event, about 10 ns each: operations, and the characters that they process. A
    subscription whose filter needs more units for an event with short texts is refused; for any other event beyond the
    bound the subscription gets a gap."""

    user_event_filter_work_max: int = 500_000
    """Units of work of all filters of one user for one event; subscriptions beyond it get a gap."""

    user_filter_work_per_s: float = 5_000_000.0
    """Units of work per second of all filters of one user, for all events; also the size of a burst."""

    user_pattern_events_max: int = 10_000
    """Events that the patterns of one user's subscriptions keep: those that wait for the watermark, and those of each
    partial match. An event with large values counts once more for each full KiB of those that its pattern uses, so
    this bounds memory. Beyond it, another pattern is refused, and for a new event the subscription gets a gap
    (SPEC T-07)."""

    pattern_work_max: int = 500_000
    """Units of work of one pattern for one event, about 10 ns each: an event looks at the partial matches of its key,
    and a condition at the events of each. A detection with values may take as many. Beyond it, the subscription gets a
    gap for the event or the detection (SPEC T-07)."""

    user_pattern_work_per_s: float = 5_000_000.0
    """Units of work per second of all patterns of one user. A fifth of it may be done at once; beyond it, events wait
    and are matched later, so detections are late."""

    sessions_max: int = 32
    """Sessions of one user, without the session of operators' requests. A new one replaces one that nobody uses."""

    devices_max: int = 32
    """Member devices of one session. A new one replaces the one that is away for longest."""

    user_devices_max: int = 128
    """Devices of one user: members of all sessions, and connected devices in no session. A new one
    replaces the one that is away for longest. Repeated publishes are still recognised for the same number of removed
    devices."""

    user_connects_per_s: float = 2.0
    """Sessions that the devices of one user may open per second, after the first 20; a new session that comes faster
    waits. Moves of a session are not limited."""

    domain_users_max: int = 500
    """Users of one other domain that have a session or a device here (SPEC D-13)."""

    domain_devices_max: int = 2_000
    """Devices of all users of one other domain."""

    publishes_remembered: int = 1_024
    """Recent publishes of a device whose event ids are remembered to answer repeats.

    Agents have up to 512 unacknowledged publishes; with a lower value, a repeat of an accepted publish may be refused.
    """

    lifetime_s_default: float | None = None
    """Lifetime of a subscription that requests none; None for no end (SPEC X17)."""

    lifetime_s_min: float = 0.0
    """A shorter lifetime is refused."""

    lifetime_s_max: float | None = None
    """A longer one is refused, and so is one without end; None allows both."""

    sweep_s: float | None = 60.0
    """Pause between two searches for expired subscriptions and old notifications; None turns them off (SPEC X18)."""

    tombstone_s: float = 7 * 86_400.0
    """Time for which an ended subscription can be renewed with its state (SPEC X21)."""

    device_grace_s: float = 7 * 86_400.0
    """Time after which a device that is away is removed from its session; the last device stays as long as the session
    has a subscription or a waiting notification (SPEC X40). Subscriptions that are not kept end with their devices."""

    clock_slew_max: float = 0.1
    """Largest relative rate error of the broker's clock while it follows a wall clock that was set (DESIGN 5.8);
    expiry and frequencies use this clock."""

    roles: Mapping[str, Role] = {}
    """Roles of users by URI: an ``operator`` sees everything, an ``administrator`` can also change it; a name without a
    domain belongs to the server's domain."""

    may_publish: Mapping[str, tuple[str, ...]] = {}
    """Subjects, with ``*`` and ``?`` as in file names, that a user may publish, by URI or name; ``"*"`` is the entry
    for all users who are not named. A user without an entry may publish every subject."""

    may_subscribe: Mapping[str, tuple[str, ...]] = {}
    """Subjects that a user may subscribe to, in the form of ``may_publish``. The subject ``*`` needs the pattern
    ``*``."""

    publisher_filter_lease_s: float = 10.0
    """Time for which a publishing agent may use the filters that it got from this server to hold back events that
    nobody wants; 0 gives filters to nobody, so every event is published. A new subscription waits for it at most, if
    such an agent does not answer (SPEC N-03)."""

    def __post_init__(self) -> None:
        for one, other in product(self.spark_subjects, self.refuse_when_full):
            if overlap(one, other):
                raise ValueError(
                    f"spark_subjects {one!r} and refuse_when_full {other!r} have subjects in common; an event that "
                    "Spark matches cannot be refused because of a full queue: leave them out of one of the two"
                )
        if self.sweep_s is not None and self.sweep_s <= 0:
            raise ValueError("sweep_s must be above 0, or None")
        if self.lifetime_s_max is not None and self.lifetime_s_max < self.lifetime_s_min:
            raise ValueError("lifetime_s_max must not be less than lifetime_s_min")
        if min(self.unacknowledged_max, self.sessions_max, self.devices_max, self.publishes_remembered) < 1:
            raise ValueError(
                "unacknowledged_max, sessions_max, devices_max and publishes_remembered must be at least 1"
            )
        if min(self.user_devices_max, self.domain_users_max, self.domain_devices_max) < 1:
            raise ValueError("user_devices_max, domain_users_max and domain_devices_max must be at least 1")
        if min(self.filter_work_max, self.user_event_filter_work_max, self.user_filter_work_per_s) < 1:
            raise ValueError(
                "filter_work_max, user_event_filter_work_max and user_filter_work_per_s must be at least 1"
            )
        if min(self.user_pattern_events_max, self.pattern_work_max, self.user_pattern_work_per_s) < 1:
            raise ValueError("user_pattern_events_max, pattern_work_max and user_pattern_work_per_s must be at least 1")
        if min(self.user_filter_characters_per_s, self.user_connects_per_s) <= 0:
            raise ValueError("user_filter_characters_per_s and user_connects_per_s must be above 0")
        if not 1_024 <= self.event_bytes_max <= EVENT_BYTES_MOST:
            raise ValueError(f"event_bytes_max must be from 1024 to {EVENT_BYTES_MOST}")
        if self.blocked_s <= 0:
            raise ValueError("blocked_s must be above 0")
        if self.user_subscriptions_max > SUBSCRIPTIONS_MAX:
            raise ValueError(
                f"user_subscriptions_max must be at most {SUBSCRIPTIONS_MAX}: a notification lists every match"
            )
        if min(self.turn_units, self.unsynced_units_max) < 1:
            raise ValueError("turn_units and unsynced_units_max must be at least 1")
        if self.backlog_per_s is not None and self.backlog_per_s <= 0:
            raise ValueError("backlog_per_s must be above 0")
        if not 0 <= self.publisher_filter_lease_s <= 3_600:
            raise ValueError("publisher_filter_lease_s must be from 0 to 3600")
        if self.clock_slew_max >= 1:
            raise ValueError("clock_slew_max must be below 1, so that the clock never stops")
