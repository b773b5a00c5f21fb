"""The file of lineage on a full disk: nothing is glued together, and the error of the run is the one that is seen."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from wanderbus.errors import StorageError
from wanderbus.pipeline.lineage import LINEAGE_FILE, LineageRun, recorded, runs


def test_a_torn_last_line_ends_before_the_next_one(tmp_path: Path) -> None:
    LineageRun(tmp_path, "run").emit("START")
    file = tmp_path / LINEAGE_FILE
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:100])
    second = LineageRun(tmp_path, "gold")
    second.emit("START")
    second.emit("COMPLETE")
    assert [(each.job, each.state) for each in runs(tmp_path)] == [("run", "START"), ("gold", "COMPLETE")]
    assert file.read_bytes().count(b"\n") == 4


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = LineageRun(tmp_path, "run")
    run.emit("START")
    file = tmp_path / LINEAGE_FILE
    before = file.read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match=r"events.jsonl cannot be written: No space left on device"):
        run.emit("RUNNING")
    assert file.read_bytes() == before


def test_lineage_does_not_hide_the_error_of_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake, copy = tmp_path / "lake", tmp_path / "copy"

    def fail() -> None:
        with recorded(LineageRun(lake, "run", copy=copy)):
            copy.unlink()
            copy.symlink_to("/dev/full")
            raise StorageError("the log is damaged")

    with pytest.raises(StorageError, match="the log is damaged"):
        fail()
    assert [json.loads(line)["eventType"] for line in (lake / LINEAGE_FILE).read_text().splitlines()] == [
        "START",
        "FAIL",
    ]
    assert "lineage lacks the end of the run: " in caplog.text
    assert "No space left on device" in caplog.text
