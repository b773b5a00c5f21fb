"""Silver tables: what the records of the log say, by subject and time (SPEC T-03)."""

from __future__ import annotations

from typing import Final

from wanderbus.pipeline.tables.bronze import AT_US, DATE, KIND, OFFSET, OFFSET_VALID, SESSION, SUBJECT, USER
from wanderbus.pipeline.tables.conditions import column
from wanderbus.pipeline.tables.specification import MICROSECONDS, Check, Column, TableSpecification

EVENTS: Final = TableSpecification(
    name="events",
    layer="silver",
    meaning="Events that a server accepted. Each declared attribute has a column of its own type, after these.",
    columns=(
        OFFSET,
        AT_US,
        Column("server", "string", "server that accepted the event; first part of the event's id"),
        Column("incarnation", "bigint", "epoch of that server's log; second part of the event's id"),
        Column("number", "bigint", "offset in that log; third part of the event's id"),
        Column("published_us", "bigint", "time of publication by the publisher's clock", MICROSECONDS, nullable=True),
        Column("received_us", "bigint", "wall clock at receipt, if `at_us` differs", MICROSECONDS, nullable=True),
        Column("user", "string", "user that published the event"),
        Column("device", "string", "device that published the event"),
        Column("device_epoch", "bigint", "life of the publishing agent"),
        Column("device_number", "bigint", "number of the event within that life"),
        SUBJECT,
        Column("attributes", "variant", "attributes without a column, or with a value of another type", nullable=True),
        DATE,
    ),
    partitioned_by=("subject", "date"),
    checks=(
        OFFSET_VALID,
        Check("subject_named", column("subject") != "", "drop", "a subject has at least one character"),
        Check(
            "publisher_clock",
            column("published_us").is_null() | (column("published_us") <= column("at_us") + 60_000_000),
            "warn",
            "the publisher's clock is at most a minute ahead of the server's",
        ),
    ),
)

NOTIFICATIONS: Final = TableSpecification(
    name="notifications",
    layer="silver",
    meaning="Notifications that events generated, one row for each session of a user.",
    columns=(
        OFFSET,
        AT_US,
        SUBJECT,
        USER,
        SESSION,
        Column("number", "bigint", "number of the notification in its session"),
        Column("subscriptions", "array<string>", "ids of the subscriptions that the event matched"),
        Column("event_offset", "bigint", "offset of the event, if another record accepted it", nullable=True),
        DATE,
    ),
    partitioned_by=("subject", "date"),
    checks=(
        OFFSET_VALID,
        Check("subject_named", column("subject") != "", "drop", "a subject has at least one character"),
        Check("subscription_matched", column("subscriptions").size() > 0, "warn", "a notification has a subscription"),
    ),
)

DELIVERIES: Final = TableSpecification(
    name="deliveries",
    layer="silver",
    meaning="Ends of notifications: acknowledged by the application, or dropped from a queue.",
    columns=(
        OFFSET,
        AT_US,
        Column("kind", "string", "`acknowledged` or `dropped`"),
        USER,
        SESSION,
        Column("device", "string", "device that acknowledged", nullable=True),
        Column("first", "bigint", "first dropped notification; an acknowledgement has none", nullable=True),
        Column("last", "bigint", "last notification that is acknowledged or dropped"),
        Column("reason", "string", "reason for dropping", nullable=True),
        Column("subscriptions", "array<string>", "ids of the subscriptions concerned; empty for all of the session"),
        Column("resumed", "boolean", "the application stores its position together with its results"),
        DATE,
    ),
    partitioned_by=("date",),
    checks=(
        OFFSET_VALID,
        Check(
            "kind_known", column("kind").is_in("acknowledged", "dropped"), "drop", "no other record ends a notification"
        ),
        Check(
            "range_ordered",
            column("first").is_null() | (column("first") <= column("last")),
            "drop",
            "a range does not end before it begins",
        ),
    ),
)

SESSIONS: Final = TableSpecification(
    name="sessions",
    layer="silver",
    meaning="Changes of sessions and of their devices: attached, connected or not, moved, left, handed over.",
    columns=(
        OFFSET,
        AT_US,
        KIND,
        USER,
        Column("session", "string", "name of the session, if the change concerns one", nullable=True),
        Column("device", "string", "device that changed", nullable=True),
        Column("epoch", "bigint", "life of the agent that attached", nullable=True),
        Column("status", "string", "`CONNECTED` or `DISCONNECTED`", nullable=True),
        Column("reason", "string", "reason for the change; of a handover, who wanted it", nullable=True),
        Column("grace_s", "double", "time that the device may be away", "seconds", nullable=True),
        Column("address", "string", "address of the device's data channel", nullable=True),
        Column("owner_epoch", "bigint", "epoch of the session's owner, in a handover", nullable=True),
        Column(
            "other_server",
            "string",
            "server from which a session comes, or to which it or a device goes",
            nullable=True,
        ),
        Column(
            "export_bytes",
            "bigint",
            "size of the session, or the piece of its queue, that has come",
            "bytes",
            nullable=True,
        ),
        DATE,
    ),
    partitioned_by=("date",),
    checks=(
        OFFSET_VALID,
        Check(
            "status_known",
            column("status").is_null() | column("status").is_in("CONNECTED", "DISCONNECTED"),
            "warn",
            "a device is connected or disconnected",
        ),
    ),
)

SUBSCRIPTIONS: Final = TableSpecification(
    name="subscriptions",
    layer="silver",
    meaning="Versions of subscriptions. A version holds for records of its log from `from_offset` up to `to_offset`, "
    "without it.",
    columns=(
        Column("id", "string", "id of the subscription"),
        Column("from_offset", "bigint", "offset of the record that made the version"),
        Column("to_offset", "bigint", "offset of the record that ended it; null while it is live", nullable=True),
        Column("from_us", "bigint", "time of `from_offset`", MICROSECONDS),
        Column("to_us", "bigint", "time of `to_offset`", MICROSECONDS, nullable=True),
        Column(
            "ended",
            "string",
            "reason for the end: `changed`, `moved` to another server, or that of the server",
            nullable=True,
        ),
        Column("owner", "string", "user of the subscription"),
        SESSION,
        Column("subject", "string", "subject of the events, `*` for all"),
        Column("expression", "string", "filter expression"),
        Column("language", "string", "language of the expression"),
        Column("format", "string", "form of the notifications"),
        Column("device", "string", "device to which the subscription is bound", nullable=True),
        Column("expires_us", "bigint", "time of expiry", MICROSECONDS, nullable=True),
        Column("restrictions", "string", "restrictions, as a JSON list"),
        Column("queue", "string", "bounds of the queue, as a JSON object"),
        Column("is_live", "boolean", "the version has not ended"),
    ),
    partitioned_by=("is_live",),
    checks=(
        Check(
            "lifetime_ordered",
            column("to_offset").is_null() | (column("to_offset") > column("from_offset")),
            "fail",
            "a lifetime is not empty",
        ),
        Check(
            "live_without_end", column("is_live") == column("to_offset").is_null(), "fail", "a live version has no end"
        ),
    ),
)

SCHEMAS: Final = TableSpecification(
    name="schemas",
    layer="silver",
    meaning="Versions of the schemas of subjects. A batch of events gets the columns of the newest ones up to its end.",
    columns=(
        OFFSET,
        AT_US,
        SUBJECT,
        Column("version", "bigint", "number of the version of the subject's schema, from 1 on"),
        Column("by", "string", "user that declared the version"),
        Column("attributes", "string", "all attributes with name, type, unit and meaning, as a JSON list"),
        DATE,
    ),
    partitioned_by=("date",),
    checks=(OFFSET_VALID,),
)
