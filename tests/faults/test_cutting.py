"""State after a power cut: all synced writes, and some part of the others."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from faults.cutting import Image, cut
from faults.recording import Enter, RecordedDisk, Recorder, Step, Sync, SyncNames, Truncate, Write
from wanderbus.runtime.files.disk import make_directory, replace_file

SYNCED: list[Step] = [Enter("log", -1), Enter("log/a", 1), Write(1, 0, b"a" * 700), Sync(1)]
NAMED: list[Step] = [SyncNames("log"), SyncNames(".")]


def contents(image: Image) -> dict[str, bytes]:
    return {path: bytes(image.files.get(number, b"")) for path, number in image.names.items()}


def cuts(steps: list[Step], count: int = 300) -> list[dict[str, bytes]]:
    return [contents(cut(Image(), steps, Random(seed))) for seed in range(count)]


def test_synced_data_survive() -> None:
    assert all(left == {"log/a": b"a" * 700} for left in cuts([*SYNCED, *NAMED]))


def test_a_name_that_was_not_synced_may_be_missing_and_a_directory_takes_all_in_it_along() -> None:
    for names in ([SyncNames("log")], [SyncNames(".")]):
        found = cuts([*SYNCED, *names])
        assert {len(left) for left in found} == {0, 1}


def test_an_unsynced_write_is_torn_at_sectors() -> None:
    lefts = {left["log/a"] for left in cuts([*SYNCED, *NAMED, Write(1, 700, b"b" * 1_000)])}
    assert {b"a" * 700, b"a" * 700 + b"b" * 1_000} < lefts
    hole = b"a" * 700 + bytes(324) + b"b" * 512
    assert hole in lefts, "a later sector may be there without an earlier one"
    assert all(len(left) in (700, 1_024, 1_536, 1_700) for left in lefts)


def test_a_truncation_may_be_undone() -> None:
    assert {left["log/a"] for left in cuts([*SYNCED, *NAMED, Truncate(1, 3)])} == {b"a" * 700, b"aaa"}


def test_a_rename_leaves_the_old_or_the_new_file() -> None:
    steps: list[Step] = [*SYNCED, *NAMED, Enter("log/b", 2), Write(2, 0, b"new"), Sync(2), Enter("log/a", 2, "log/b")]
    assert {left.get("log/a") for left in cuts(steps)} == {b"a" * 700, b"new"}


def test_every_step_of_a_real_disk_is_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, {})
    disk = RecordedDisk(recorder)
    make_directory(disk, tmp_path / "log")
    replace_file(disk, tmp_path / "log" / "x.json", b"1")
    descriptor = disk.open(tmp_path / "log" / "x.json", os.O_WRONLY | os.O_APPEND)
    disk.write(descriptor, b"23")
    disk.ftruncate(descriptor, 2)
    disk.fdatasync(descriptor)
    disk.close(descriptor)
    assert recorder.steps[:2] == [Enter("log", -1), SyncNames(".")]
    assert recorder.steps[2:5] == [Enter("log/x.new", 1), Truncate(1, 0), Write(1, 0, b"1")]
    assert recorder.steps[5:8] == [Sync(1), Enter("log/x.json", 1, "log/x.new"), SyncNames("log")]
    assert recorder.steps[8:] == [Write(1, 1, b"23"), Truncate(1, 2), Sync(1)]
    assert contents(cut(Image(), recorder.steps, Random(1))) == {"log/x.json": b"12"}
