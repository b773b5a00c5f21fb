"""``wanderbus explain`` across the servers of a domain, and by names (SPEC U-01)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.log_files import write_records
from wanderbus import protocol, records
from wanderbus.broker.state.exported_session import encode_export, export_session
from wanderbus.broker.state.state import BrokerState
from wanderbus.cli.application import run
from wanderbus.event import Event, EventId
from wanderbus.records import Notified, Record
from wanderbus.runtime.files.domain_file import create_domain
from wanderbus.subscription import PATTERN, Subscription

ALICE = "sip:alice@example.org"
SUBSCRIPTION = Subscription("s2-1-2", ALICE, "sub.late", "Departure", "n > 1")
ATTACHED = records.Attached(at_us=1, user=ALICE, device="phone", session="sub.late", epoch=1)


def filler(count: int) -> list[Record]:
    return [records.StatusChanged(at_us=1, user="sip:x@y", device="d", status="CONNECTED", reason="")] * count


def event_of(n: int) -> msgspec.Raw:
    return msgspec.Raw(protocol.encode_event(Event("Departure", {"n": n})))


def submitted(subscription: Subscription) -> records.Subscribed:
    return records.Subscribed(at_us=2, subscription=subscription, number=0)


def published(offset: int, n: int) -> Record:
    acceptance = records.Acceptance(EventId("s1", 1, offset), event_of(n), "sip:bob@example.org", "b", 1, n)
    return records.Published(at_us=10 + n, acceptance=acceptance)


def arrived(offset: int, n: int, *, is_matched: bool) -> records.Arrived:
    arrival = records.Arrival("s1", 1, n, n - 1, EventId("s1", 1, offset), 10 + n, event_of(n))
    notified = (Notified(ALICE, "sub.late", 1, (SUBSCRIPTION.id,)),) if is_matched else ()
    return records.Arrived(at_us=20 + n, arrival=arrival, delivery=records.Delivery(notified))


def exported(several: Sequence[records.AnyRecord]) -> bytes:
    """Return the export of the session that these records make."""
    state = BrokerState("s2", 100)
    for offset, record in enumerate([records.Started(at_us=0, server="s2", incarnation=1), *several]):
        state.apply(offset, record)
    return encode_export(export_session(state, ALICE, "sub.late", 2))


@pytest.fixture
def domain(tmp_path: Path) -> Path:
    """Event 5 was not wanted by s2; 6 arrived without a match, 7 with one, and 8 has not arrived."""
    s1: list[Record] = [*filler(5), *(published(4 + n, n) for n in (1, 2, 3, 4))]
    s2: list[Record] = [ATTACHED, *filler(1), submitted(SUBSCRIPTION)]
    s2 += [arrived(6, 2, is_matched=False), arrived(7, 3, is_matched=True)]
    acknowledged = records.Acknowledged(at_us=30, user=ALICE, session="sub.late", device="phone", number=1)
    create_domain(tmp_path, "localhost", 3)
    write_records(tmp_path / "data" / "s1" / "log", s1)
    write_records(tmp_path / "data" / "s3" / "log", [])
    write_records(tmp_path / "data" / "s2" / "log", [*s2, acknowledged])
    return tmp_path


def explained(domain: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(["explain", *words, "--data-dir", str(domain), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("name", [SUBSCRIPTION.id, "late", "sub.late"])
@pytest.mark.parametrize(
    ("event", "outcome"), [("s1-1-5", "filtered"), ("s1-1-7", "delivered"), ("s1-1-8", "not_arrived")]
)
def test_u01_an_event_is_followed_to_the_server_of_the_subscription(
    domain: Path, capsys: pytest.CaptureFixture[str], name: str, event: str, outcome: str
) -> None:
    found = explained(domain, capsys, event, name)
    assert (found["outcome"], found["subscription"], found["event"]) == (outcome, SUBSCRIPTION.id, event)


def test_u01_an_event_that_arrived_for_others_is_found_there(domain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strict = msgspec.structs.replace(SUBSCRIPTION, expression="n > 2")
    s2: list[Record] = [ATTACHED, *filler(1), submitted(strict), arrived(6, 2, is_matched=False)]
    write_records(domain / "data" / "s2" / "log", s2)
    found = explained(domain, capsys, "s1-1-6", "late")
    assert (found["outcome"], found["published_us"]) == ("filtered", 22)


def test_u01_an_event_after_a_session_moved_is_explained_by_its_new_server(
    domain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced = records.SessionFenced(at_us=3, user=ALICE, session="sub.late", owner_epoch=2)
    s2: list[Record] = [ATTACHED, *filler(1), submitted(SUBSCRIPTION), fenced]
    write_records(domain / "data" / "s2" / "log", [*s2, arrived(7, 3, is_matched=False)])
    imported = records.SessionImported(
        at_us=3, user=ALICE, session="sub.late", owner_epoch=2, export=exported([ATTACHED, submitted(SUBSCRIPTION)])
    )
    write_records(domain / "data" / "s3" / "log", [imported, arrived(7, 3, is_matched=True)])
    found = explained(domain, capsys, "s1-1-7", SUBSCRIPTION.id)
    assert (found["outcome"], found["reason"]) == ("queued", "waits for phone"), "its devices have come along"


def test_u01_an_event_after_a_session_moved_is_compared_with_the_subscription_that_came_along(
    domain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strict = msgspec.structs.replace(SUBSCRIPTION, expression="n > 3")
    changed = records.Changed(at_us=2, subscription=strict)
    fenced = records.SessionFenced(at_us=3, user=ALICE, session="sub.late", owner_epoch=2)
    write_records(domain / "data" / "s2" / "log", [ATTACHED, *filler(1), submitted(SUBSCRIPTION), changed, fenced])
    export = exported([ATTACHED, submitted(SUBSCRIPTION), changed])
    imported = records.SessionImported(at_us=3, user=ALICE, session="sub.late", owner_epoch=2, export=export)
    write_records(domain / "data" / "s3" / "log", [imported, arrived(7, 3, is_matched=False)])
    found = explained(domain, capsys, "s1-1-7", SUBSCRIPTION.id)
    assert (found["outcome"], found["reason"]) == ("filtered", "n > 3 is false: n is 3")


def test_u01_an_event_that_came_while_its_session_was_awaited_is_explained_there(
    domain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fenced = records.SessionFenced(at_us=3, user=ALICE, session="sub.late", owner_epoch=2)
    write_records(domain / "data" / "s2" / "log", [ATTACHED, *filler(1), submitted(SUBSCRIPTION), fenced])
    own: dict[str, Any] = {"user": ALICE, "session": "sub.late"}
    awaited = records.SessionAwaited(at_us=2, **own, owner_epoch=2, source="s2", subscriptions=(SUBSCRIPTION,))
    event = arrived(7, 3, is_matched=False)
    export = exported([ATTACHED, submitted(SUBSCRIPTION)])
    imported = records.SessionImported(at_us=24, **own, owner_epoch=2, export=export)
    read = records.ReplayedEvent(id=event.arrival.id, at_us=event.at_us, event=event.arrival.event)
    replayed = records.Replayed(at_us=25, **own, subscription=SUBSCRIPTION.id, first=1, events=(read,), next=None)
    taken = records.Acknowledged(at_us=1_000_020, **own, device="phone", number=1)
    write_records(domain / "data" / "s3" / "log", [awaited, event, imported, replayed, taken])
    found = explained(domain, capsys, "s1-1-7", SUBSCRIPTION.id)
    assert (found["outcome"], [each["device"] for each in found["devices"]]) == ("delivered", ["phone"])


def test_u01_a_notification_is_followed_over_all_servers_of_its_session(
    domain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own: dict[str, Any] = {"user": ALICE, "session": "sub.late"}

    def left(at_us: int, epoch: int, target: str) -> Record:
        return records.SessionFenced(at_us=at_us, **own, owner_epoch=epoch, target=target)

    def come(at_us: int, epoch: int) -> Record:
        return records.SessionImported(at_us=at_us, **own, owner_epoch=epoch, export=export)

    s2: list[Record] = [ATTACHED, *filler(1), submitted(SUBSCRIPTION), arrived(7, 3, is_matched=True)]
    export = exported([ATTACHED, submitted(SUBSCRIPTION)])
    taken = records.Acknowledged(at_us=1_000_023, **own, device="phone", number=1)
    write_records(domain / "data" / "s2" / "log", [*s2, left(31, 2, "s3"), come(50, 3), left(60, 4, "s3")])
    late = arrived(7, 3, is_matched=False)
    write_records(domain / "data" / "s3" / "log", [come(32, 2), late, left(40, 3, "s2"), come(70, 4), taken])
    found = explained(domain, capsys, "s1-1-7", SUBSCRIPTION.id)
    assert (found["outcome"], found["servers"]) == ("delivered", ["s3", "s2", "s3"])
    assert found["reason"].endswith("1.000 s after the event; its session has gone to s3, then s2, then s3")
    write_records(domain / "data" / "s3" / "log", [])
    found = explained(domain, capsys, "s1-1-7", SUBSCRIPTION.id)
    assert (found["outcome"], found["reason"]) == ("queued", "waits at s3, whose log goes on with it")


def test_u01_an_event_takes_part_in_a_pattern_also_if_it_arrived_and_was_blocked_for_another_subscription(
    domain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "pattern twice match A: Departure (n > 1) then B: Departure within 1 hour"
    pattern = Subscription("s2-1-3", ALICE, "sub.late", "twice", text, language=PATTERN)
    delivery = records.Delivery(restricted=((SUBSCRIPTION.id, 0),), steps=((pattern.id, 1),))
    arrival = records.Arrived(at_us=22, arrival=arrived(6, 2, is_matched=False).arrival, delivery=delivery)
    s2: list[Record] = [ATTACHED, *filler(1), submitted(SUBSCRIPTION), submitted(pattern), arrival]
    write_records(domain / "data" / "s2" / "log", s2)
    assert explained(domain, capsys, "s1-1-6", pattern.id)["outcome"] == "took_part"


@pytest.mark.parametrize(("least", "outcome"), [(3, "not_arrived"), (4, "filtered")])
def test_u01_an_event_that_has_not_arrived_takes_no_part_in_a_pattern_yet(
    domain: Path, capsys: pytest.CaptureFixture[str], least: int, outcome: str
) -> None:
    text = f"pattern twice match A: Departure (n > {least}) then B: Arrival within 1 hour"
    pattern = Subscription("s2-1-3", ALICE, "sub.late", "twice", text, language=PATTERN)
    s2: list[Record] = [ATTACHED, *filler(1), submitted(SUBSCRIPTION), submitted(pattern)]
    write_records(domain / "data" / "s2" / "log", s2)
    assert explained(domain, capsys, "s1-1-8", pattern.id)["outcome"] == outcome


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (("s1-1-9", "late"), 1, "the log has no event s1-1-9"),
        (("s1-1-7", "early"), 2, "'early' is neither the id of a subscription nor the name of a session"),
        (("s1-1-7", "s2-1-0"), 1, "has no subscription s2-1-0"),
    ],
)
def test_u01_an_unknown_event_or_subscription_is_named(
    domain: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], status: int, complaint: str
) -> None:
    assert run(["explain", *words, "--data-dir", str(domain)]) == status
    assert complaint in " ".join(capsys.readouterr().err.split())


def test_u01_a_name_with_several_subscriptions_lists_them(domain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = msgspec.structs.replace(SUBSCRIPTION, id="s2-1-3")
    s2: list[Record] = [ATTACHED, *filler(1)]
    s2 += [submitted(each) for each in (SUBSCRIPTION, other)]
    write_records(domain / "data" / "s2" / "log", s2)
    assert run(["explain", "s1-1-7", "late", "--data-dir", str(domain)]) == 2
    assert "s2-1-2, s2-1-3" in capsys.readouterr().err
