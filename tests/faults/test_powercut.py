"""``./do powercut``: nothing is lost, and each wrong order of the steps that matter is detected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults import powercut
from faults.recording import RecordedDisk
from wanderbus.runtime.log import log_recovery
from wanderbus.runtime.log.committer import GroupCommit
from wanderbus.runtime.log.event_log import EventLog
from wanderbus.segments import pack_mark

pytestmark = pytest.mark.integration

WORLDS = range(40)
POINTS = 25


@pytest.mark.parametrize("seed", [1, 2])
def test_power_cuts_lose_nothing(tmp_path: Path, seed: int) -> None:
    report = tmp_path / "report.json"
    assert powercut.main(["--points", "60", "--seed", str(seed), "--json", str(report), "--strict"]) == 0
    written = json.loads(report.read_text())
    assert {goal["name"]: goal["value"] for goal in written["goals"]} == {
        "lost": 0,
        "repeated": 0,
        "out_of_order": 0,
        "integrity_errors": 0,
    }
    assert written["results"][0]["points"] == 60
    assert written["results"][0]["kept_unsynced"] > 0


def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordedDisk, "fdatasync", lambda self, descriptor: None)


def no_directory_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = RecordedDisk.fsync

    def files_alone(self: RecordedDisk, descriptor: int) -> None:
        if not isinstance(self._files[descriptor], str):
            whole(self, descriptor)

    monkeypatch.setattr(RecordedDisk, "fsync", files_alone)


def mark_before_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = EventLog.sync

    def early(self: EventLog) -> int:
        self._disk.pwrite(self._mark, pack_mark(self.next_offset), 0)
        return whole(self)

    monkeypatch.setattr(EventLog, "sync", early)


def state_before_log(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = GroupCommit.commit

    def late(self: GroupCommit) -> None:
        if self._rows_offset is None:
            whole(self)

    monkeypatch.setattr(GroupCommit, "commit", late)


def torn_tail_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_recovery, "_put_aside", lambda tail, disk: None)


def promised_before_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = GroupCommit.commit

    def early(self: GroupCommit) -> None:
        for log, entries in self._entries.items():
            self._on_durable(log, entries[-1][0] + 1)
        whole(self)

    monkeypatch.setattr(GroupCommit, "commit", early)


@pytest.mark.parametrize(
    "sabotage", [no_sync, no_directory_sync, mark_before_sync, state_before_log, torn_tail_kept, promised_before_sync]
)
def test_a_broken_order_is_found(monkeypatch: pytest.MonkeyPatch, sabotage: Callable[[Any], None]) -> None:
    sabotage(monkeypatch)
    assert any(not powercut.try_world(seed, POINTS).verdict.good for seed in WORLDS)
