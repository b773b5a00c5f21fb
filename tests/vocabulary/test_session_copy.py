"""Files with copies of sessions: what is written is read, and anything else is refused (SPEC J-05)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.event import CopiedItem, Event, Loss
from wanderbus.protocol import session_copy
from wanderbus.protocol.session_copy import SessionCopy
from wanderbus.runtime.files import session_file
from wanderbus.runtime.files.session_file import read_session, write_session
from wanderbus.subscription import Frequency, QueuePolicy, Subscription

ALICE = "sip:alice@example.org"
PRICES = Subscription(
    "s1-1-1", ALICE, "work", "Price", "Price < 25", 50, (Frequency(3),), queue=QueuePolicy(age_max_s=9.0)
)
NEWS = Subscription("s1-1-2", ALICE, "work", "News", "", format="xml")
QUOTE = Event(
    "Price",
    {"Stock": "PETR4", "Price": 25.0, "N": 3, "Up": True, "At": datetime(2024, 1, 2, tzinfo=UTC), "L": [1, 2.0, "x"]},
    7,
    8,
)
ENDLESS = Event("News", {"Least": float("-inf"), "Text": "ü\n\u2028"})
COPY = SessionCopy(
    ALICE,
    "work",
    1_700_000_000_000_000,
    (PRICES, NEWS),
    (
        CopiedItem(None, (), (Loss("s1-1-1", "purged", 3),)),
        CopiedItem(QUOTE, ("s1-1-1", "s1-1-2")),
        CopiedItem(ENDLESS, ("s1-1-2",)),
    ),
)


def test_j05_a_copy_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_session(tmp_path / "copy", COPY)
    found = read_session(tmp_path / "copy")
    assert found == COPY
    types = [type(each) for each in found.items[1].event.attributes.values()] if found.items[1].event else []
    assert types == [str, float, int, bool, datetime, list]
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600


def test_j05_an_expired_subscription_is_left_out_with_its_notifications() -> None:
    living = COPY.living(50)
    assert living.subscriptions == (NEWS,)
    assert living.items == (CopiedItem(QUOTE, ("s1-1-2",)), CopiedItem(ENDLESS, ("s1-1-2",)))
    assert COPY.living(49) == COPY


def test_j05_every_damage_of_a_copy_is_noticed() -> None:
    content = session_copy.written(COPY)
    assert session_copy.read(content) == COPY
    for place in range(0, len(content) - 1, 7):
        for damaged in (content[:place], content[:place] + b"\x00" + content[place + 1 :]):
            with pytest.raises(StorageError):
                session_copy.read(damaged)
    lines = content.splitlines(keepends=True)
    for wrong in ([*lines[:2], *lines[3:]], [*lines, lines[-1]], [lines[0], lines[-1]], [lines[0]]):
        with pytest.raises(StorageError, match="not complete"):
            session_copy.read(b"".join(wrong))


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "no copy of a session"),
        (["{}"], "no copy of a session"),
        (["[" * 100_000], "no copy of a session"),
        ([{"kind": "copy of a wanderbus session", "version": 9, "user": "", "session": "", "exported_us": 1}], "9"),
        ([None, {"subscription": {"id": 1}}], "line 2 of the copy cannot be read"),
        ([None, {"surprise": 1}], "line 2 of the copy cannot be read"),
    ],
)
def test_j05_a_file_of_another_form_is_refused(lines: list[object], complaint: str) -> None:
    head = json.loads(session_copy.written(COPY).splitlines()[0])
    shown = [each if isinstance(each, str) else json.dumps(head if each is None else each) for each in lines]
    with pytest.raises(StorageError, match=complaint):
        session_copy.read("\n".join(shown).encode())


@pytest.mark.parametrize("count", [0, -(2**70), 2**31 + 1])
def test_j05_an_impossible_count_is_refused_before_anything_is_sent(count: int) -> None:
    bad = SessionCopy(ALICE, "work", 1, (NEWS,), (CopiedItem(None, (), (Loss("s1-1-2", "purged", count),)),))
    with pytest.raises(StorageError, match="line 3 of the copy has a gap with an impossible count"):
        session_copy.read(session_copy.written(bad))


def test_j05_an_invalid_event_is_refused_before_anything_is_sent() -> None:
    bad = SessionCopy(ALICE, "work", 1, (NEWS,), (CopiedItem(Event("News", {"": 1}), ("s1-1-2",)),))
    with pytest.raises(StorageError, match="line 3 of the copy has an invalid event"):
        session_copy.read(session_copy.written(bad))


def test_j05_files_are_bounded_and_name_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "copy"
    with pytest.raises(ConfigurationError, match="cannot read the copy"):
        read_session(file)
    with pytest.raises(StorageError, match="cannot write the copy"):
        write_session(tmp_path / "none" / "copy", COPY)
    write_session(file, COPY)
    monkeypatch.setattr(session_file, "FILE_BYTES_MAX", file.stat().st_size - 1)
    with pytest.raises(StorageError, match="at most"):
        read_session(file)
