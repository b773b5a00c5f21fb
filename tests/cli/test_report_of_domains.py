"""``wanderbus report`` and ``plan`` over the lakes of two domains that share events (SPEC T-08, T-10, M-01).

Each domain has a server s1, whose log has the same incarnation: ids of events, subscriptions and channel groups occur
twice. Bob's session goes from alpha to beta.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.log_files import write_records
from tests.published import published
from wanderbus.cli.application import run
from wanderbus.cli.pipeline import plan, report
from wanderbus.event import Event, EventId
from wanderbus.pipeline.lake.jobs import ingest
from wanderbus.pipeline.lake.lake_domain import store_domain
from wanderbus.planning.interest import interest_of
from wanderbus.planning.loads import Activity, load_us
from wanderbus.records import (
    Acknowledged,
    Attached,
    Delivery,
    ExportDropped,
    GroupMoved,
    GroupPrepared,
    Notified,
    Published,
    Record,
    SessionAwaited,
    SessionFenced,
    SessionImported,
    Started,
    StatusChanged,
    Subscribed,
    encode_record,
)
from wanderbus.runtime.log.log_name import write_log_name
from wanderbus.subscription import Subscription

START_US = 1_700_000_000_000_000
OWNER_EPOCH = 99
ALICE, BOB, CAROL, FRANK = (
    "sip:alice@alpha.example",
    "sip:bob@alpha.example",
    "sip:carol@beta.example",
    "sip:f@beta.example",
)
ALPHA, BETA = "sip:alpha.example@domains.beta.example", "sip:beta.example@domains.alpha.example"
Run = Callable[..., Any]


def at(second: float) -> int:
    """Return a time within the records."""
    return START_US + int(second * 1_000_000)


def wanted(id: str, owner: str, expression: str = "") -> Subscription:
    """Return a subscription to prices."""
    return Subscription(id, owner, "default", "Price", expression)


def attached(user: str, second: float = 1) -> Record:
    """Return the record of a user whose only device is attached."""
    return Attached(at_us=at(second), user=user, session="default", device="d", epoch=1)


def connected(user: str) -> Record:
    """Return the record of a user whose only device is connected."""
    return StatusChanged(at_us=at(2), user=user, device="d", status="CONNECTED", reason="attached")


def taken(user: str, second: float, number: int) -> Record:
    """Return the record of an acknowledgement."""
    return Acknowledged(at_us=at(second), user=user, session="default", device="d", number=number)


def price(domain: str, number: int, second: float, notified: Sequence[tuple[str, str, int]], of: int = 0) -> Published:
    """Return the record of an event that s1 of a domain accepted, or got from alpha, where it has the number ``of``."""
    own: dict[str, Any] = (
        {"user": ALPHA, "device": "s1/Price", "epoch": 7, "number": of} if of else {"user": f"sip:desk@{domain}"}
    )
    event = Event("Price", {"Value": of or number}, published_us=at(second - 0.25))
    made = published(event, id=EventId("s1", 7, number), at_us=at(second), **{"number": number, **own})
    every = tuple(Notified(user, "default", count, (identifier,)) for user, identifier, count in notified)
    return msgspec.structs.replace(made, delivery=Delivery(notified=every))


def group_moved(second: float) -> list[Record]:
    """Return the records of a channel group that leaves s1 for another server."""
    prepared = GroupPrepared(at_us=at(second), group=3, target="s2", epoch=2, leader="s1")
    moved = GroupMoved(at_us=at(second + 1), group=3, server="s2", epoch=2, former="s1", servers=("s1", "s2"))
    return [prepared, msgspec.structs.replace(moved, paused_us=at(second + 0.5))]


def of_alpha() -> list[Record]:
    """Return the log of s1 of alpha: the event 9 does not go to beta."""
    readers = [(ALICE, "s1-7-4"), (BOB, "s1-7-6"), (BETA, "s1-7-2")]
    return [
        Started(at_us=at(0), server="s1", incarnation=7),
        attached(BETA),
        Subscribed(at_us=at(1), subscription=wanted("s1-7-2", BETA, "Value < 9"), number=1),
        attached(ALICE),
        Subscribed(at_us=at(1), subscription=wanted("s1-7-4", ALICE), number=1),
        attached(BOB),
        Subscribed(at_us=at(1), subscription=wanted("s1-7-6", BOB), number=1),
        price("alpha.example", 7, 10, [(*each, 1) for each in readers]),
        price("alpha.example", 8, 12, [(*each, 2) for each in readers]),
        price("alpha.example", 9, 12.25, [(*each, 3) for each in readers[:2]]),
        taken(ALICE, 13, 3),
        taken(BETA, 14, 2),
        connected(BOB),
        SessionFenced(
            at_us=at(20),
            user=BOB,
            session="default",
            owner_epoch=OWNER_EPOCH,
            target="beta.example/s1",
            cause="user",
            subscriptions=("s1-7-6",),
        ),
        ExportDropped(at_us=at(22), user=BOB, session="default"),
        *group_moved(23),
    ]


def of_beta() -> list[Record]:
    """Return the log of s1 of beta: its event 7 is its own, and two of alpha come to it."""
    moved = wanted("s1-7-6", BOB)
    export = msgspec.msgpack.encode({"subscriptions": [{"subscription": moved}]})
    own: dict[str, Any] = {"user": BOB, "session": "default", "owner_epoch": OWNER_EPOCH}
    return [
        Started(at_us=at(0), server="s1", incarnation=7),
        attached(ALPHA),
        attached(CAROL),
        Subscribed(at_us=at(1), subscription=wanted("s1-7-4", CAROL), number=1),
        Subscribed(at_us=at(1), subscription=wanted("s1-7-2", FRANK, "Value > 1000"), number=1),
        price("beta.example", 5, 10.5, [(CAROL, "s1-7-4", 1)], of=7),
        taken(CAROL, 11, 1),
        price("beta.example", 7, 11.5, [(CAROL, "s1-7-4", 2)]),
        price("beta.example", 8, 12.5, [(CAROL, "s1-7-4", 3)], of=8),
        SessionAwaited(at_us=at(18), source="alpha.example/s1", subscriptions=(moved,), **own),
        SessionImported(at_us=at(21), export=export, **own),
        attached(BOB, 21),
        taken(BOB, 25, 3),
        *group_moved(26),
    ]


def in_order(records: Sequence[Record]) -> list[Record]:
    """Return records whose times do not decrease."""
    last_us = max(each.at_us for each in records[:1])
    made = []
    for each in records:
        last_us = max(last_us, each.at_us)
        made.append(msgspec.structs.replace(each, at_us=last_us))
    return made


@pytest.fixture(scope="module")
def lakes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The lakes of alpha, whose server has named its domain, and of beta, which foreign users name."""
    directory = tmp_path_factory.mktemp("lakes")
    made = []
    for name, records in (("alpha", of_alpha()), ("beta", of_beta())):
        log = write_records(directory / f"{name}-data" / "log", in_order(records))
        lake = directory / name
        ingest(spark, log, lake, directory / f"{name}-checkpoint")
        if name == "alpha":
            write_log_name(log, "s1", 7, "alpha.example")
            store_domain(lake, [log])
        made.append(lake)
    return made


@pytest.fixture
def wanderbus(use_session: Callable[..., None], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Return a function that runs a command on lakes, and returns its figures, or the last line of its errors."""
    use_session(report, plan)

    def command(name: str, lakes: Sequence[object], *words: str, status: int = 0) -> Any:
        where = [word for each in lakes for word in ("--lake", str(each))]
        own = ["--out", str(tmp_path / "out"), "--json"]
        assert run([name, *where, *words, *own]) == status
        output = capsys.readouterr()
        return output.err.splitlines()[-1] if status else json.loads(output.out)

    return command


@pytest.mark.spark
def test_m01_t08_a_report_of_two_domains_counts_each_event_match_and_handover_once(
    wanderbus: Run, lakes: list[Path], tmp_path: Path
) -> None:
    found = wanderbus("report", lakes)
    totals = found["totals"]
    assert found["server"] == "alpha.example/s1, beta.example/s1"
    assert (totals["events"], totals["repeated_events"]) == (4, 0)
    names = ("generated", "delivered", "queued", "handed_over", "missing", "repeated")
    assert [totals[name] for name in names] == [9, 7, 2, 0, 0, 0]
    sessions = {row["user"]: (row["generated"], row["delivered"]) for row in found["sessions"]["rows"]}
    assert sessions == {ALICE: (3, 3), BOB: (3, 3), CAROL: (3, 1)}, "matches on the way to beta are those of its users"
    assert (totals["subscriptions"], totals["live"]) == (4, 4)
    (never,) = found["never"]["rows"]
    assert (never["user"], never["id"], never["events_seen"]) == (FRANK, "s1-7-2", 3), "the event 9 is not in beta"
    (subject,) = found["subjects"]["rows"]
    assert (subject["events"], subject["generated"]) == (4, 9)
    (handover,) = found["handovers"]["rows"]
    steps = ("user", "source", "target", "cause", "outcome", "notifications", "gap_us")
    expected = (BOB, "alpha.example/s1", "beta.example/s1", "user", "moved", 3, 5_000_000)
    assert tuple(handover[name] for name in steps) == expected
    moves = sorted((row["source"], row["target"]) for row in found["group_moves"]["rows"])
    assert moves == [(f"{each}.example/s1", f"{each}.example/s2") for each in ("alpha", "beta")]
    times = {row["part"]: row["max_ms"] for row in found["latencies"]["user"]["rows"] if row["user"] == CAROL}
    assert times == {"accepting": 250.0, "matching": 500.0, "away": 0.0, "acknowledging": 500.0, "total": 1_250.0}
    assert "report of alpha.example/s1, beta.example/s1" in (tmp_path / "out").read_text()


@pytest.mark.spark
def test_m01_t10_a_plan_over_two_domains_has_each_event_once(wanderbus: Run, lakes: list[Path]) -> None:
    counted = [each for each in in_order(of_alpha()) if isinstance(each, Published)]
    counted += [each for each in in_order(of_beta()) if isinstance(each, Published) and each.acceptance.user != ALPHA]
    activity = Activity(events=4, notifications=9, log_bytes=sum(len(encode_record(each)) for each in counted))
    interest = interest_of([("", "eci", 3), ("Value > 1000", "eci", 1)])
    (subject,) = wanderbus("plan", lakes, "--servers", "2")["subjects"].values()
    assert subject["load_us"] == load_us(activity, interest)


@pytest.mark.spark
def test_questions_to_one_lake_are_refused_for_several_in_one_line(
    wanderbus: Run, lakes: list[Path], tmp_path: Path
) -> None:
    alpha, beta = lakes
    for name, words in (("report", ()), ("plan", ("--servers", "2"))):
        assert "a directory is given twice" in wanderbus(name, [alpha, beta, f"{beta}/../beta"], *words, status=2)
        assert "none has no lake yet" in wanderbus(name, [alpha, tmp_path / "none"], *words, status=1)
        wrong = wanderbus(name, [f"gamma.example={alpha}", beta], *words, status=2)
        assert f"{alpha} is the lake of alpha.example, not of gamma.example" in wrong
    copied = shutil.copytree(beta, tmp_path / "copied")
    assert f"{beta} and {copied} both have the log s1-7; give one of them" in wanderbus(
        "report", [alpha, beta, copied], status=2
    )
    refused = wanderbus("report", lakes, "--server", "s1", status=2)
    assert "--server: s1 is a server of one domain; give the lake of that domain alone" in refused
    refused = wanderbus("plan", lakes, "--event-domain", "domain.toml", status=2)
    assert "--event-domain: a domain has the load of its own lake; give that lake alone" in refused
