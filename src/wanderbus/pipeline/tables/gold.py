"""Gold tables: figures that analytics compute of the silver tables (SPEC T-08). The unit of counts is the match."""

from __future__ import annotations

from typing import Final

from wanderbus.pipeline.tables.bronze import SESSION, SUBJECT, USER
from wanderbus.pipeline.tables.conditions import column
from wanderbus.pipeline.tables.specification import MICROSECONDS, Check, Column, TableSpecification

SPAN: Final = "microseconds"
MILLISECONDS: Final = "milliseconds"

_DEVICE: Final = Column("device", "string", "name of the device")
_MATCHED: Final = (
    USER,
    SESSION,
    Column("number", "bigint", "number of the notification in its session"),
    Column("subscription", "string", "id of the subscription"),
)
_OFFSET: Final = Column("offset", "bigint", "offset of the record that generated the match")
_OUTCOMES: Final = (
    Column("delivered", "bigint", "matches that every target device has acknowledged"),
    Column("dropped", "bigint", "matches that left a queue undelivered"),
    Column("queued", "bigint", "matches that wait"),
    Column("handed_over", "bigint", "matches that waited when the session went to a server whose log is not here"),
)
_GENERATED: Final = Column("generated", "bigint", "matches")
_RESTRICTED: Final = Column("restricted", "bigint", "matches that a restriction blocked; they were never generated")
_ADD_UP: Final = Check(
    "outcomes_add_up",
    column("generated") == column("delivered") + column("dropped") + column("queued") + column("handed_over"),
    "warn",
    "each match has one outcome",
)

MATCHES: Final = TableSpecification(
    name="matches",
    layer="gold",
    meaning="Matches, one row for each notification and subscription, with their outcomes.",
    columns=(
        _OFFSET,
        Column("at_us", "bigint", "time of the match by the server's clock", MICROSECONDS),
        SUBJECT,
        *_MATCHED,
        Column("outcome", "string", "`delivered`, `dropped`, `queued` or `handed_over`"),
        Column("ended_us", "bigint", "time at which it left the queue", MICROSECONDS, nullable=True),
        Column("reason", "string", "reason for dropping", nullable=True),
        Column("device", "string", "device whose acknowledgement ended it", nullable=True),
    ),
    partitioned_by=(),
    checks=(
        Check(
            "end_ordered",
            column("ended_us").is_null() | (column("ended_us") >= column("at_us")),
            "warn",
            "a match does not end before it begins",
        ),
    ),
)

TAKINGS: Final = TableSpecification(
    name="acknowledgements",
    layer="gold",
    meaning="Acknowledgements, one row for each match and device, with the parts of the latency.",
    columns=(
        _OFFSET,
        SUBJECT,
        USER,
        SESSION,
        _DEVICE,
        *_MATCHED[2:],
        Column("published_us", "bigint", "time of publication by the publisher's clock", MICROSECONDS, nullable=True),
        Column("accepted_us", "bigint", "time of the event by the server's clock", MICROSECONDS),
        Column("matched_us", "bigint", "time of the match by the server's clock", MICROSECONDS),
        Column("taken_us", "bigint", "time of the acknowledgement by the server's clock", MICROSECONDS),
        Column("away_us", "bigint", "time between the last two in which the device was away", SPAN),
        Column(
            "is_redelivered",
            "boolean",
            "an earlier life of the device may have seen it, or another device before this one joined the session",
        ),
    ),
    partitioned_by=(),
)

SESSION_COUNTS: Final = TableSpecification(
    name="session_counts",
    layer="gold",
    meaning="Counts of each session; those of matches are the counters of the broker.",
    columns=(
        USER,
        SESSION,
        Column("notifications", "bigint", "notifications"),
        _GENERATED,
        *_OUTCOMES,
        _RESTRICTED,
        Column("missing", "bigint", "numbers of notifications that no record has"),
        Column("repeated", "bigint", "notifications whose number another one has"),
    ),
    partitioned_by=(),
    checks=(_ADD_UP,),
)

DROPS: Final = TableSpecification(
    name="drops",
    layer="gold",
    meaning="Dropped matches by session, subject and reason.",
    columns=(
        USER,
        SESSION,
        SUBJECT,
        Column("reason", "string", "reason for dropping"),
        Column("dropped", "bigint", "matches that left a queue undelivered"),
    ),
    partitioned_by=(),
)

LATENCIES: Final = TableSpecification(
    name="latencies",
    layer="gold",
    meaning="Percentiles of the parts of latency, for the server, and for each subject, user and device.",
    columns=(
        Column("scope", "string", "`server`, `subject`, `user` or `device`"),
        Column("subject", "string", "subject, in the scope of subjects", nullable=True),
        Column("user", "string", "user, in the scopes of users and devices", nullable=True),
        Column("device", "string", "device, in the scope of devices", nullable=True),
        Column("part", "string", "`accepting`, `matching`, `away`, `acknowledging` or `total`"),
        Column("acknowledgements", "bigint", "acknowledgements that have the part"),
        *(
            Column(f"{name}_ms", "double", meaning, MILLISECONDS)
            for name, meaning in (("p50", "median"), ("p95", "95 %"), ("p99", "99 %"), ("max", "greatest"))
        ),
    ),
    partitioned_by=(),
)

QUEUE_DEPTHS: Final = TableSpecification(
    name="queue_depths",
    layer="gold",
    meaning="Matches that wait in each session, for each minute with a change.",
    columns=(
        USER,
        SESSION,
        Column("from_us", "bigint", "begin of the minute", MICROSECONDS),
        Column("depth", "bigint", "matches that wait at its end"),
        Column("depth_max", "bigint", "greatest number in it"),
    ),
    partitioned_by=(),
)

ABSENCES: Final = TableSpecification(
    name="absences",
    layer="gold",
    meaning="Times in which a device was DISCONNECTED.",
    columns=(
        USER,
        _DEVICE,
        Column("from_us", "bigint", "begin, by the server's clock", MICROSECONDS),
        Column("to_us", "bigint", "end; null if it is still away", MICROSECONDS, nullable=True),
        Column("reason", "string", "reason for the begin"),
        Column("ended", "string", "`connected`, or `left` if the device left its session", nullable=True),
    ),
    partitioned_by=(),
)

MOVES: Final = TableSpecification(
    name="moves",
    layer="gold",
    meaning="Changes of the address of a device's data within one life of its agent.",
    columns=(
        USER,
        _DEVICE,
        Column("moved_us", "bigint", "time at which the server learned of the address", MICROSECONDS),
        Column("former", "string", "address before"),
        Column("address", "string", "address from then on"),
        Column("healed_us", "bigint", "first acknowledgement before the next move", MICROSECONDS, nullable=True),
        Column("healing_us", "bigint", "time until then in which a match waited", SPAN, nullable=True),
    ),
    partitioned_by=(),
)

HANDOVERS: Final = TableSpecification(
    name="handovers",
    layer="gold",
    meaning="Handovers of sessions from server to server, one row for each move, with its steps. Each time is by the "
    "clock of the server whose step it is.",
    columns=(
        USER,
        SESSION,
        Column("owner_epoch", "bigint", "epoch in which the target owns the session"),
        Column("source", "string", "server that the session left; null if no log here says it", nullable=True),
        Column("target", "string", "server to which it went; null if no log here says it", nullable=True),
        Column(
            "cause",
            "string",
            "`user`, `asked` for another user, `drain`, or `network` of a device; null before the fence",
            nullable=True,
        ),
        Column("outcome", "string", "`moved`, `withdrawn` or `under_way`"),
        Column("begun_us", "bigint", "time of its first step", MICROSECONDS),
        Column("awaited_us", "bigint", "the target began to get its events", MICROSECONDS, nullable=True),
        Column("fenced_us", "bigint", "the source gave the session up", MICROSECONDS, nullable=True),
        Column("imported_us", "bigint", "the target took it over", MICROSECONDS, nullable=True),
        Column("done_us", "bigint", "the source dropped what it had kept", MICROSECONDS, nullable=True),
        Column("notifications", "bigint", "notifications that waited and moved", nullable=True),
        Column("bytes", "bigint", "size of the whole session as it moved", "bytes", nullable=True),
        Column(
            "taken_us",
            "bigint",
            "first acknowledgement at the target, if a device was connected at the source",
            MICROSECONDS,
            nullable=True,
        ),
        Column(
            "gap_us",
            "bigint",
            "time until then from the fence, or from the event if that is later",
            SPAN,
            nullable=True,
        ),
    ),
    partitioned_by=(),
    checks=(
        Check(
            "outcome_known",
            column("outcome").is_in("moved", "withdrawn", "under_way"),
            "warn",
            "a handover has one outcome",
        ),
        Check(
            "import_after_fence",
            column("imported_us").is_null()
            | column("fenced_us").is_null()
            | (column("fenced_us") <= column("imported_us") + 60_000_000),
            "warn",
            "the target has the session after the source, as far as their clocks agree to a minute",
        ),
        Check(
            "done_after_fence",
            column("done_us").is_null() | column("fenced_us").is_null() | (column("fenced_us") <= column("done_us")),
            "warn",
            "a source drops its export after it has made it",
        ),
    ),
)

GROUP_MOVES: Final = TableSpecification(
    name="group_moves",
    layer="gold",
    meaning="Moves of channel groups from leader to leader, one row for each attempt, with its steps. Each time is by "
    "the clock of the server whose step it is.",
    columns=(
        Column("channel_group", "bigint", "number of the group"),
        Column("epoch", "bigint", "epoch in which the target leads"),
        Column("source", "string", "server that led the group"),
        Column("target", "string", "server that leads next"),
        Column("is_forced", "boolean", "true if the source was gone"),
        Column("outcome", "string", "`moved`, `stayed` or `under_way`"),
        Column("begun_us", "bigint", "servers began to prepare, or its first step here", MICROSECONDS),
        Column("paused_us", "bigint", "all were prepared, and publishes began to wait", MICROSECONDS, nullable=True),
        Column("moved_us", "bigint", "the source gave the group up, or was replaced", MICROSECONDS, nullable=True),
        Column("adopted_us", "bigint", "the target began to lead", MICROSECONDS, nullable=True),
        Column("stayed_us", "bigint", "the move was given up", MICROSECONDS, nullable=True),
        Column("pause_us", "bigint", "time from the begin of the pause until the target led", SPAN, nullable=True),
        Column("waited", "bigint", "publishes that waited at the source when it gave the group up", nullable=True),
        Column("publishers", "bigint", "publishers that the target knows from the source", nullable=True),
    ),
    partitioned_by=(),
    checks=(
        Check(
            "outcome_known",
            column("outcome").is_in("moved", "stayed", "under_way"),
            "warn",
            "a move has one outcome",
        ),
        Check(
            "pause_before_fence",
            column("paused_us").is_null() | column("moved_us").is_null() | (column("paused_us") <= column("moved_us")),
            "warn",
            "a leader pauses before it gives a group up",
        ),
    ),
)

SUBJECT_COUNTS: Final = TableSpecification(
    name="subject_counts",
    layer="gold",
    meaning="Counts of each subject.",
    columns=(
        SUBJECT,
        Column("events", "bigint", "events"),
        Column("events_in_peak_s", "bigint", "most events within one second"),
        _GENERATED,
        *_OUTCOMES,
        Column("first_us", "bigint", "time of the first event", MICROSECONDS, nullable=True),
        Column("last_us", "bigint", "time of the last event", MICROSECONDS, nullable=True),
    ),
    partitioned_by=(),
    checks=(_ADD_UP,),
)

DEVICE_COUNTS: Final = TableSpecification(
    name="device_counts",
    layer="gold",
    meaning="Counts of each device, as publisher and as subscriber.",
    columns=(
        USER,
        _DEVICE,
        Column("events", "bigint", "events that it published"),
        Column("repeated_events", "bigint", "of these, events that were accepted more than once"),
        Column("taken", "bigint", "matches that it acknowledged"),
        Column("redelivered", "bigint", "of these, matches with `is_redelivered`"),
        Column("absences", "bigint", "times away"),
        Column("away_us", "bigint", "sum of the times away that have ended", SPAN),
        Column("moves", "bigint", "changes of address"),
        Column("healed", "bigint", "of these, changes with an acknowledgement afterwards"),
        Column("is_away", "boolean", "the device is away"),
        Column(
            "taking_p95_ms",
            "double",
            "95 % of the times until it acknowledged, without absences",
            MILLISECONDS,
            nullable=True,
        ),
        Column("healing_p50_ms", "double", "median of the times until a move was healed", MILLISECONDS, nullable=True),
        Column("healing_max_ms", "double", "longest time until a move was healed", MILLISECONDS, nullable=True),
    ),
    partitioned_by=(),
)

SUBSCRIPTION_COUNTS: Final = TableSpecification(
    name="subscription_counts",
    layer="gold",
    meaning="Counts of each subscription, with its filter as it was last.",
    columns=(
        Column("id", "string", "id of the subscription"),
        USER,
        SESSION,
        Column("subject", "string", "subject of the events, `*` for all"),
        Column("expression", "string", "filter expression"),
        Column("language", "string", "language of the expression"),
        Column("is_live", "boolean", "the subscription has not ended"),
        Column("from_us", "bigint", "begin", MICROSECONDS),
        Column("events_seen", "bigint", "events of its subject while it lived"),
        _GENERATED,
        *_OUTCOMES,
        _RESTRICTED,
    ),
    partitioned_by=(),
    checks=(_ADD_UP,),
)

COVERINGS: Final = TableSpecification(
    name="coverings",
    layer="gold",
    meaning="Pairs of different filters of live subscriptions to one subject, of which one covers the other.",
    columns=(
        Column("subject", "string", "subject of the events, `*` for all"),
        Column("covering", "string", "first subscription with the filter that covers"),
        Column("covering_expression", "string", "filter that covers"),
        Column("covering_subscriptions", "bigint", "subscriptions with it"),
        Column("covered", "string", "first subscription with the filter that is covered"),
        Column("covered_expression", "string", "filter that is covered"),
        Column("covered_subscriptions", "bigint", "subscriptions with it"),
        Column("is_equal", "boolean", "both match the same events"),
    ),
    partitioned_by=(),
)

UNCOMPARED_FILTERS: Final = TableSpecification(
    name="uncompared_filters",
    layer="gold",
    meaning="Filters of live subscriptions that were not compared with all others of their subject in `coverings`: "
    "only those that most subscriptions have are compared, each with a bounded amount of work.",
    columns=(
        Column("subject", "string", "subject of the events, `*` for all"),
        Column("id", "string", "first subscription with the filter"),
        Column("expression", "string", "filter expression"),
        Column("subscriptions", "bigint", "subscriptions with it"),
        Column("uncompared", "bigint", "other filters with which it was not compared"),
    ),
    partitioned_by=(),
)

GOLD_TABLES: Final = (
    *(MATCHES, TAKINGS, SESSION_COUNTS, DROPS, LATENCIES, QUEUE_DEPTHS, ABSENCES, MOVES, HANDOVERS),
    *(GROUP_MOVES, SUBJECT_COUNTS, DEVICE_COUNTS, SUBSCRIPTION_COUNTS, COVERINGS, UNCOMPARED_FILTERS),
)
