"""``./do powercut``: nothing is lost, and each wrong order of the steps that matter is detected."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from faults import powercut
from faults.recording import RecordedDisk
from wanderbus.runtime import log_readers
from wanderbus.runtime.files.disk import Disk, sync_directory
from wanderbus.runtime.files.state_generations import StateGenerations
from wanderbus.runtime.files.state_store import StateStore
from wanderbus.runtime.log import log_recovery
from wanderbus.runtime.log.committer import GroupCommit
from wanderbus.runtime.log.event_log import EventLog
from wanderbus.runtime.log.retention_policy import Hold, Segment
from wanderbus.runtime.segment_files import segment_paths
from wanderbus.segments import pack_mark
from wanderbus.server import log_retention
from wanderbus.server.log_retention import LogRetention

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
    assert written["results"][0]["cut"] > 10


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


def state_not_synced_before_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateStore, "sync", lambda self: True)


def older_generation_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(self: StateGenerations) -> int | None:
        self._caught_up()
        return self._newer.offset if self._newer.sync() else None

    monkeypatch.setattr(StateGenerations, "secure", early)


def one_generation_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateGenerations, "secure", lambda self: self._newer.offset if self._newer.sync() else None)


def newest_segment_first(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = LogRetention._run

    def reversed_run(self: LogRetention, segments: Sequence[Segment], now_us: int, history: Sequence[Hold]) -> None:
        log: Path = self._log.directory
        removed: list[Path] = []
        with monkeypatch.context() as patch:
            patch.setattr(self._log, "remove_oldest", lambda: removed.append(segment_paths(log)[len(removed)]))
            whole(self, segments, now_us, history)
        for path in reversed(removed):
            self._disk.unlink(path)
            sync_directory(self._disk, log)

    monkeypatch.setattr(LogRetention, "_run", reversed_run)


def removals_synced_at_the_end_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsynced(self: EventLog) -> None:
        self._disk.unlink(segment_paths(self.directory)[0])

    monkeypatch.setattr(EventLog, "remove_oldest", unsynced)


def readers_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_retention, "reader_holds", lambda log_dir, now_us: ([], []))


def reader_registered_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_place(disk: Disk, path: Path, content: bytes) -> None:
        descriptor = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        disk.write(descriptor, content)
        disk.close(descriptor)

    monkeypatch.setattr(log_readers, "replace_file", in_place)


@pytest.mark.parametrize(
    "sabotage",
    [
        state_not_synced_before_removal,
        older_generation_left_behind,
        one_generation_only,
        newest_segment_first,
        removals_synced_at_the_end_only,
        readers_ignored,
        reader_registered_in_place,
    ],
)
def test_a_broken_order_of_retention_is_found(monkeypatch: pytest.MonkeyPatch, sabotage: Callable[[Any], None]) -> None:
    sabotage(monkeypatch)
    assert any(not powercut.try_world(seed, POINTS).verdict.good for seed in WORLDS)


@pytest.mark.parametrize(
    "sabotage", [no_sync, no_directory_sync, mark_before_sync, state_before_log, torn_tail_kept, promised_before_sync]
)
def test_a_broken_order_is_found(monkeypatch: pytest.MonkeyPatch, sabotage: Callable[[Any], None]) -> None:
    sabotage(monkeypatch)
    assert any(not powercut.try_world(seed, POINTS).verdict.good for seed in WORLDS)
