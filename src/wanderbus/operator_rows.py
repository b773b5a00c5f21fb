"""Rows of the listings that :class:`wanderbus.Operator` yields.

Names that end in ``_us`` are microseconds since the Unix epoch, those in ``_s`` are seconds before the listing. A field
that the broker left out has its default; ``cut`` names those that did not fit a message.
"""

from __future__ import annotations

import msgspec

from wanderbus.subscription import Format, QueuePolicy, Restriction, WhenFull


class DeviceInfo(msgspec.Struct, frozen=True):
    """A device of a session: ``address`` of its data channel while CONNECTED, ``away_s`` while DISCONNECTED."""

    device: str
    status: str
    address: str | None
    away_s: float | None
    reading: int
    """Number of subscriptions that it reads."""


class ReaderInfo(msgspec.Struct, frozen=True):
    """A device that reads a subscription, and the number of notifications that it has not acknowledged."""

    device: str
    unacknowledged: int


class UnreadInfo(msgspec.Struct, frozen=True):
    """A subscription whose queue is not empty, and why: ``state`` is ``window_full`` or ``not_read``.

    ``queued`` are the notifications in its queue, ``oldest_s`` the age of the oldest, and ``blocked_s`` the time for
    which the window of its reader has been full.
    """

    subscription: str
    state: str
    queued: int
    oldest_s: float | None
    blocked_s: float | None
    readers: tuple[ReaderInfo, ...] = ()
    queued_bytes: int = 0


class DurationsInfo(msgspec.Struct, frozen=True):
    """Durations: their sum in microseconds, and their number by the bits that their microseconds take.

    The durations of 10 bits, for example, are those from 512 to 1,023 µs.
    """

    sum_us: int = 0
    by_bits: dict[int, int] = {}

    @property
    def count(self) -> int:
        """Return the number of durations."""
        return sum(self.by_bits.values())


class SessionInfo(msgspec.Struct, frozen=True):
    """A session with its devices and counters (SPEC G-21).

    A session that is over is removed. Those of a user with notifications leave the sum of their counters, in a row with
    the ``session`` "".

    ``status`` is CONNECTED while one of its ``devices`` can be reached. The counters are of matches:
    ``generated`` for all, ``delivered`` for acknowledged ones, ``dropped`` by reason, and ``restricted`` for those that
    a restriction suppressed. ``unread`` is the number of subscriptions with waiting notifications that nobody reads;
    ``unread_subscriptions`` are the longest of them.

    ``queued_max`` is the largest number of matches that were ``queued`` at once. ``acknowledgements`` are the times
    until a device acknowledged a match, from its notification on. ``absences`` are the times for which its devices were
    DISCONNECTED, those that have ended. The rest of the queue comes from the server ``arriving_from``, which had the
    session before; it is "" if everything is here.
    """

    user: str
    session: str
    status: str
    subscriptions: int
    queued: int
    delivered: int
    devices: tuple[DeviceInfo, ...] = ()
    generated: int = 0
    queued_bytes: int = 0
    dropped: dict[str, int] = {}
    restricted: int = 0
    unread: int = 0
    unread_subscriptions: tuple[UnreadInfo, ...] = ()
    queued_max: int = 0
    acknowledgements: DurationsInfo = DurationsInfo()
    absences: DurationsInfo = DurationsInfo()
    arriving_from: str = ""
    cut: tuple[str, ...] = ()


class SubscriptionInfo(msgspec.Struct, frozen=True):
    """A live subscription as it was submitted (SPEC A-04), and how it is read.

    ``state`` is ``reading``, ``window_full`` or ``not_read``; for the other fields of reading see :class:`UnreadInfo`.
    ``last_us`` is the time of its last notification, ``expires_us`` the time of its end, None for never. ``since`` is
    the point in the past at which it began, and ``history_from`` the next record of the log that it reads before it is
    live (SPEC T-05). ``pattern_events`` is the number of events that its pattern keeps, None if it has a filter.
    """

    subscription: str
    user: str
    session: str
    subject: str
    expression: str
    language: str
    expires_us: int | None
    last_us: int | None
    state: str
    queued: int
    oldest_s: float | None
    blocked_s: float | None
    format: Format = "event"
    restrictions: tuple[Restriction, ...] = ()
    device: str | None = None
    queue: QueuePolicy = QueuePolicy()
    readers: tuple[ReaderInfo, ...] = ()
    queued_bytes: int = 0
    since: str | None = None
    history_from: int | None = None
    pattern_events: int | None = None
    cut: tuple[str, ...] = ()


class QueueInfo(msgspec.Struct, frozen=True):
    """The queue of a session and its bounds (SPEC G-15 to G-17).

    ``notifications`` and ``gaps`` count its items, ``queued`` its matches, and ``missing`` the notifications lost in
    the gaps. The bounds are those of :class:`~wanderbus.QueuePolicy`.
    """

    user: str
    session: str
    notifications: int
    oldest_s: float | None
    notifications_max: int | None
    bytes_max: int | None
    age_max_s: float | None
    queued: int = 0
    queued_bytes: int = 0
    gaps: int = 0
    missing: int = 0
    unread: int = 0
    unread_subscriptions: tuple[UnreadInfo, ...] = ()
    when_full: WhenFull | None = None
    policy: str | None = None
    cut: tuple[str, ...] = ()


class LimitInfo(msgspec.Struct, frozen=True):
    """A limit that ``party`` has reached ``count`` times, the last time for ``reason``.

    ``party`` is a user, or a source: an IPv4 address or a /64 of IPv6. ``since_s`` and ``last_s`` are the times of the
    first and the last refusal; None for parties that are no longer counted one by one. ``value`` is the bound.
    """

    limit: str
    party: str
    count: int
    reason: str
    since_s: float | None = None
    last_s: float | None = None
    value: int | float | str | bool | None = None


class BoundInfo(msgspec.Struct, frozen=True):
    """A bound of the server: its name in the configuration, and its value; None for no bound."""

    limit: str
    value: int | float | str | bool | None = None


class EngineInfo(msgspec.Struct, frozen=True):
    """The matching engine beside the server: ``state`` is ``answers``, ``away`` or ``not asked yet`` (SPEC T-06).

    It matches the events of ``subjects``, which are patterns; those in ``remaining`` are the broker's after the next
    start at which no event waits. It has matched all events below offset ``matched_below`` of the log;
    ``records_behind`` are the records up to the last event that waits. ``away_s`` is the time for which it has not
    answered, because of ``reason``.
    """

    engine: str
    state: str
    subjects: tuple[str, ...] = ()
    away_s: float | None = None
    reason: str = ""
    matched_below: int = 0
    records_behind: int = 0
    remaining: tuple[str, ...] = ()


class ServerInfo(msgspec.Struct, frozen=True):
    """Another server of the event domain, as the server that was asked sees it.

    The first fields are about the session of the asked server there: whether its link is open (``is_linked``, None if
    the other server leads no channels), the ``subscriptions`` that it has or wants there, whether all of these count
    there (``is_settled``), the publishes that wait for an answer, and the number of the last event from there that is
    durable.

    Those with ``here`` are about the session of the other server at the asked one: whether its link is open, its
    subscriptions, and the notifications that wait for its acknowledgement, with events that were sent to it directly.

    ``multicast_changes`` are the changes of interest in decentralised channels that the asked server, as their leader,
    has sent it by multicast since its start, and ``repaired_changes`` those of them that it sent again on a link.

    ``leaving`` are the sessions that are on their way to the other server, or have gone there without its answer, and
    ``arriving`` those that are awaited from there; each has the time at which the oldest of these moves began.

    ``trouble`` is the reason why the other server cannot be reached, "" if it can. If the asked server does not know
    all that the other one wants of the ordered channels that it leads (``is_settled_here`` false), publishes to these
    channels wait.
    """

    server: str
    is_linked: bool | None = None
    subscriptions: int = 0
    is_settled: bool = False
    waiting_publishes: int = 0
    last_number: int = 0
    is_linked_here: bool = False
    subscriptions_here: int = 0
    waiting_here: int = 0
    waiting_bytes_here: int = 0
    multicast_changes: int = 0
    repaired_changes: int = 0
    leaving: int = 0
    leaving_since_us: int | None = None
    arriving: int = 0
    arriving_since_us: int | None = None
    trouble: str = ""
    is_settled_here: bool = True


class DomainInfo(msgspec.Struct, frozen=True):
    """A foreign domain, as a gateway of the own one sees it.

    ``is_linked`` tells whether this gateway uses the link to it, ``is_in_turn`` whether it should, as far as it knows:
    the first gateway that can be reached uses the links of all. ``is_settled`` tells whether all servers here have
    its ``filters``, of which there are so many in all. ``sent`` are the events that went there in this life of the
    gateway, ``waiting`` those from there that are not durable yet. The others from there were ``published``,
    ``repeated``, ``refused`` for good, of a type that is ``not_received``, or ``lost`` there before they were sent.
    ``awaited`` are servers of the own domain whose interest is not known yet: until then the other domain is told
    nothing. ``order`` is ``causal`` if both domains ask for causal order, else it says who asks; of the events from
    there, ``held`` have waited for a cause, and ``unordered`` went on without one that was late. ``through`` are the
    domains that the link goes through. ``trouble`` is the last reason why there was no link, "" while all is well.
    ``visitors`` is the service for its users who call here: ``own``, ``home`` or ``move``.
    """

    domain: str
    is_linked: bool = False
    through: tuple[str, ...] = ()
    is_in_turn: bool = True
    is_known: bool = False
    is_settled: bool = False
    filters: int = 0
    sent: int = 0
    waiting: int = 0
    published: int = 0
    repeated: int = 0
    refused: int = 0
    not_received: int = 0
    lost: int = 0
    held: int = 0
    unordered: int = 0
    awaited: tuple[str, ...] = ()
    order: str = ""
    trouble: str = ""
    visitors: str = "own"


class RouteInfo(msgspec.Struct, frozen=True):
    """A filter of another server in decentralised channels: ``server`` is sent the matching events of publishers here.

    ``subject`` is ``*`` for every subject. Filters are covered and merged, so they are not those of subscriptions.
    """

    server: str
    subject: str
    expression: str
    cut: tuple[str, ...] = ()


class AdvertisementInfo(msgspec.Struct, frozen=True):
    """A declaration of a device about the events that it will publish (SPEC A-17).

    ``counts`` is true once the server knows what all servers want of these events, if their channel requires that.
    """

    advertisement: str
    user: str
    device: str
    subject: str
    expression: str
    language: str
    counts: bool
    cut: tuple[str, ...] = ()


class PhaseInfo(msgspec.Struct, frozen=True):
    """Events that a phase of filtering has ``examined``, and those that it ``held_back``, since the server was started.

    ``phase`` is ``publisher``, ``channel`` or ``destination`` (SPEC N-01).
    """

    phase: str
    examined: int
    held_back: int


class DiscardedSession(msgspec.Struct, frozen=True):
    """Number of subscriptions that were ended, devices that were removed, and matches that were discarded."""

    subscriptions: int
    devices: int
    matches: int


class MovedSession(msgspec.Struct, frozen=True):
    """A session that is at another ``server`` now."""

    user: str
    session: str
    server: str


class TransferredSession(msgspec.Struct, frozen=True):
    """A session whose end point is at the dormant instance ``name`` now."""

    user: str
    session: str
    name: str


class ImportedSession(msgspec.Struct, frozen=True):
    """A ``session`` that was made from a copy: how many subscriptions it has, and how many notifications wait."""

    session: str
    subscriptions: int
    notifications: int


class DrainInfo(msgspec.Struct, frozen=True):
    """Drain of a server: whether it drains, the sessions that are still there, and how many are stuck for a reason."""

    server: str
    is_draining: bool
    sessions: int
    stuck: dict[str, int] = {}


class GroupInfo(msgspec.Struct, frozen=True):
    """A channel group whose leader is not that of the domain's file, or changes: it moves to ``target`` then.

    ``former`` led it before, and was gone when it was replaced if ``was_forced``.
    """

    group: int
    leader: str
    epoch: int
    target: str = ""
    cut: tuple[str, ...] = ()
    former: str = ""
    was_forced: bool = False


class GroupLoadInfo(msgspec.Struct, frozen=True):
    """Events of a channel group that the server has accepted since its start, and their bytes.

    ``notifications`` are those for other servers. ``group`` is None for all decentralised channels together.
    """

    group: int | None
    events: int
    event_bytes: int
    notifications: int


class ProcessInfo(msgspec.Struct, frozen=True):
    """The process of a server: its version, its start, and its id on its computer."""

    server: str
    version: str
    started_us: int
    pid: int


class MetricInfo(msgspec.Struct, frozen=True):
    """A metric of the server now: its name in docs/metrics.md, its labels' values there, and its value.

    Counters count from the start of the server. A histogram has ``durations`` instead of a ``value``.
    """

    metric: str
    labels: tuple[str, ...] = ()
    value: float = 0.0
    durations: DurationsInfo | None = None


class MovedGroup(msgspec.Struct, frozen=True):
    """A channel group that the ``server`` leads now, under ``epoch``."""

    group: int
    server: str
    epoch: int


class KickedDevice(msgspec.Struct, frozen=True):
    """A device whose connection was closed, if it was ``connected``, and that was ``forgotten`` by its session."""

    device: str
    connected: bool
    forgotten: bool
