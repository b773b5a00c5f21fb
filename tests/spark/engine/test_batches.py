"""Batches of the engine follow one log, and the changes of subscriptions in it (SPEC T-06)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from tests.spark.engine import records
from wanderbus.event import Event
from wanderbus.pipeline.engine.batches import Batches
from wanderbus.pipeline.engine.index_versions import Shared
from wanderbus.records import Changed, Record, SessionFenced, Subscribed, Unsubscribed
from wanderbus.runtime.log_place import LogReplaced
from wanderbus.runtime.services.engine import Begin

pytestmark = pytest.mark.spark  # needs the packages, no session


def share(_: bytes) -> Shared:
    return cast("Shared", None)


def test_a_log_that_was_restored_and_has_grown_past_the_batches_is_refused(
    write_log: Callable[..., Path], make_published: Callable[..., Record]
) -> None:
    log = write_log([make_published(row) for row in range(9)])
    batches = Batches(log, Begin(1, "wb", 1, 2, (), 1_000, True), share)
    assert [len(task) for task in batches.take(6, 2).tasks] == [1]
    write_log([make_published(row if row < 4 else 100 + row) for row in range(12)])
    line = "is not the log that the matching engine has read: record 5 is another one; .*; the server begins"
    with pytest.raises(LogReplaced, match=line):
        batches.take(12, 2)
    assert batches.next == 6
    again = Batches(log, Begin(2, "wb", 1, 4, (), 1_000, True), share)
    assert sum(part.end - part.first for task in again.take(12, 2).tasks for part in task) == 8


def test_each_kind_of_change_is_followed_and_its_name_in_an_event_is_none(tmp_path: Path) -> None:
    one, two, three = (records.subscription(name, "Departure", "", session=name) for name in ("s1", "s2", "s3"))
    changes: list[Record] = [
        Subscribed(at_us=1, subscription=one, number=1),
        records.imported("s2", [two]),
        Changed(at_us=1, subscription=three),
        Unsubscribed(at_us=1, user=one.owner, subscription="s1", reason="asked"),
        SessionFenced(at_us=1, user=two.owner, session="s2", owner_epoch=3),
        records.for_engine(Event("Departure", {"kind": "subscribed"}), 1),
        records.for_engine(Event("Departure", {}), 2),
    ]
    batches = Batches(records.write_log(tmp_path, changes), Begin(1, "wb", 1, 0, (), 1_000, True), share)
    held = []
    for end in range(1, len(changes) + 1):
        batches.take(end, 1)
        held.append(batches.subscriptions)
    assert held == [1, 2, 3, 3, 2, 1, 1]
