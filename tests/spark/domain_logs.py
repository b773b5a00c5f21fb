"""Logs of two servers of a domain: s1 leads the channel of departures, s2 that of prices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from tests.log_files import write_records
from tests.published import published
from wanderbus.event import Event, EventId
from wanderbus.pipeline.lake import Ingestion
from wanderbus.pipeline.lake.log_identity import log_identity
from wanderbus.pipeline.lake.logs import add_logs
from wanderbus.protocol import encode_event
from wanderbus.records import (
    Acknowledged,
    Arrival,
    Arrived,
    Attached,
    CausalChanged,
    Delivery,
    Notified,
    Record,
    RoutesChanged,
    SchemaDeclared,
    Started,
    StatusChanged,
    Subscribed,
)
from wanderbus.runtime.segment_files import durable_end
from wanderbus.subscription import Frequency, Subscription

START_US = 1_700_000_000_000_000
STEP_US = 1_000_000
BOB, CAROL = "sip:bob@localhost", "sip:carol@localhost"
SECOND_SERVER = "sip:s2@servers.localhost"
INCARNATIONS = {"s1": 7, "s2": 9}


def departure(delay: float) -> Event:
    """Return a departure."""
    return Event("Departure", {"Dest": "IAH", "Delay": delay}, published_us=START_US)


def subscription(identifier: str, owner: str, **more: object) -> Subscription:
    """Return a subscription to late departures, unless more is given."""
    wanted = {"subject": "Departure", "expression": "Delay > 30"} | more
    return Subscription(identifier, owner, "default", **wanted)  # type: ignore[arg-type]


def at(second: int) -> int:
    """Return a time within the records."""
    return START_US + second * STEP_US


def accepted(server: str, number: int, event: Event, second: int, *notified: Notified, device: int = 0) -> Record:
    """Return the record of an event that a server accepted."""
    return published(
        event,
        id=EventId(server, INCARNATIONS[server], number),
        at_us=at(second),
        user="sip:airline@localhost",
        number=device or number,
        notified=notified,
    )


def arrived(number: int, event: Event, second: int, *notified: Notified) -> Record:
    """Return the record of an event of s1 that arrived at s2."""
    arrival = Arrival(
        "s1", 1, number, number - 1, EventId("s1", 7, number), at(second), msgspec.Raw(encode_event(event))
    )
    return Arrived(at_us=at(second) + 1_000, arrival=arrival, delivery=Delivery(notified=notified))


def first_records() -> list[Record]:
    """Return the log of s1; its events at the offsets 4 and 6 also go to s2."""
    to_s2 = [Notified(SECOND_SERVER, "default", number, ("s1-7-3",)) for number in (1, 2)]
    return [
        Started(at_us=at(0), server="s1", incarnation=7),
        Attached(at_us=at(1), user=BOB, session="default", device="b", epoch=1),
        Subscribed(at_us=at(2), subscription=subscription("s1-7-2", BOB), number=1),
        Subscribed(at_us=at(3), subscription=subscription("s1-7-3", SECOND_SERVER), number=1),
        accepted("s1", 4, departure(42.0), 10, Notified(BOB, "default", 1, ("s1-7-2",)), to_s2[0]),
        accepted("s1", 5, departure(2.0), 11),
        accepted("s1", 6, departure(77.0), 12, Notified(BOB, "default", 2, ("s1-7-2",)), to_s2[1]),
        Acknowledged(at_us=at(13), user=BOB, session="default", device="b", number=2),
        Acknowledged(at_us=at(14), user=SECOND_SERVER, session="default", device="s2", number=2),
    ]


def second_records() -> list[Record]:
    """Return the log of s2: two events of s1 arrive, the second within a minute, and it accepts two itself.

    Bob has a session here, too, with numbers of its own.
    """
    prices = subscription("s2-9-12", BOB, subject="Price", expression="Value > 4")
    rare = subscription("s2-9-3", CAROL, restrictions=(Frequency(60.0),))
    return [
        Started(at_us=at(0), server="s2", incarnation=9),
        SchemaDeclared(at_us=at(1), subject="Departure", version=1, attributes=(), by=CAROL),
        Attached(at_us=at(2), user=CAROL, session="default", device="c", epoch=1),
        Subscribed(at_us=at(3), subscription=rare, number=1),
        RoutesChanged(at_us=at(4), leader="s1", message=b"\x80"),
        StatusChanged(at_us=at(5), user=CAROL, device="c", status="CONNECTED", reason="attached", grace_s=30.0),
        arrived(4, departure(42.0), 10, Notified(CAROL, "default", 1, ("s2-9-3",))),
        accepted("s2", 7, Event("Price", {"Value": 3.0}), 11),
        arrived(6, departure(77.0), 12),
        CausalChanged(at_us=at(13), changes=()),
        Acknowledged(at_us=at(14), user=CAROL, session="default", device="c", number=1),
        Attached(at_us=at(15), user=BOB, session="default", device="b2", epoch=1),
        Subscribed(at_us=at(16), subscription=prices, number=1),
        accepted("s2", 13, Event("Price", {"Value": 5.0}), 17, Notified(BOB, "default", 1, ("s2-9-12",))),
        Acknowledged(at_us=at(18), user=BOB, session="default", device="b2", number=1),
    ]


def fill(spark: SparkSession, logs: Sequence[Path], lake: Path) -> None:
    """Bring a lake up to several logs, without the queries of a run."""
    add_logs(lake, list(map(log_identity, logs)))
    for log in logs:
        Ingestion(spark, log, lake).store(0, durable_end(log))


def write_logs(directory: Path) -> list[Path]:
    """Write both logs, each into the data directory of its server, and return their directories."""
    return [
        write_records(directory / "s1" / "log", first_records(), per_segment=4),
        write_records(directory / "s2" / "log", second_records(), per_segment=5),
    ]
