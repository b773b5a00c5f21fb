"""``wanderbus log status``: what it shows, and that it changes nothing."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from wanderbus import records
from wanderbus.cli.application import run
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.log.retention_policy import Keep
from wanderbus.runtime.log_readers import LogReader, register_reader
from wanderbus.server.log_retention import LogRetention


def begun(directory: Path, keep: Keep) -> ServerFiles:
    """Open a data directory with ten segments of one record each and a saved state, as a running server has it."""
    files = ServerFiles.open(directory, segment_bytes_max=50)
    record = records.encode_record(records.Started(at_us=1, server="wb", incarnation=1))
    files.log.append([(offset, 1_000_000, record) for offset in range(10)])
    files.log.sync()
    files.store.save({"rows": {"a": b"1"}}, 9)
    LogRetention(files.log, files.store, keep).run(time.time_ns() // 1_000)
    return files


def register(directory: Path, name: str, offset: int, *, age_s: float = 0, expires_s: float = 60) -> None:
    now_us = time.time_ns() // 1_000
    register_reader(directory / "log", LogReader(name, offset, int(now_us - age_s * 1e6), expires_s))


def status(directory: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    assert run(["log", "status", str(directory), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def contents(directory: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.rglob("*") if path.is_file()}


def test_the_log_of_a_running_and_of_a_stopped_server_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    register(data, "lake", 4)
    register(data, "old", 2, age_s=100)
    files = begun(data, Keep(seconds=0.5, bytes=100))
    running = status(data, capsys)
    killed = tmp_path / "killed"
    shutil.copytree(data, killed)
    files.close()
    for found in (running, status(data, capsys), status(killed, capsys)):
        assert (found["segments"], found["oldest"], found["durable"]) == (7, 4, 10)
        assert found["bytes"] == sum(path.stat().st_size for path in (data / "log").glob("*.seg"))
        assert (found["keep_s"], found["keep_bytes"]) == (0.5, 100)
        assert found["state"] == {"state.db": 9, "state-2.db": 9}
        assert found["held_by"] == ["lake"]
        shown = [(each["name"], each["offset"], each["lag"], each["expired"]) for each in found["readers"]]
        assert shown == [("lake", 4, 6, False), ("old", 2, 8, True)]
        (warning,) = found["warnings"]
        assert "reader old has not registered for 60 s" in warning


def test_nothing_is_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    register(data, "lake", 4)
    files = begun(data, Keep(bytes=0))
    shutil.copytree(data, tmp_path / "killed")
    files.close()
    for directory in (data, tmp_path / "killed"):
        before = contents(directory)
        assert status(directory, capsys)["state"] == {"state.db": 9, "state-2.db": 9}
        after = contents(directory)
        assert {path for path in after if not path.name.endswith("-shm")} == {
            path for path in before if not path.name.endswith("-shm")
        }
        assert all(after[path] == before[path] for path in before if not path.name.endswith("-shm"))


def test_lines_name_what_keeps_the_oldest_segment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    register(tmp_path, "lake", 4)
    begun(tmp_path, Keep(seconds=0.5)).close()
    (tmp_path / "log" / "readers" / "bad.json").write_text("x")
    assert run(["log", "status", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0].startswith(f"{tmp_path / 'log'}: 7 segments, ")
    assert lines[0].endswith(" bytes, records 4 to 9")
    assert lines[1:4] == ["kept at least: 0.5 s, 0 bytes", "state.db: at record 9", "state-2.db: at record 9"]
    assert re.match(r"reader lake: at record 4, 6 behind, registered \d+ s ago, valid for 60 s", lines[4])
    assert lines[5:] == ["the oldest segment is kept by: bad, lake"]
    assert "bad.json is damaged, so no record is removed" in shown.err


def test_a_log_without_settings_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun(tmp_path, Keep()).close()
    found = status(tmp_path, capsys)
    assert (found["segments"], found["oldest"], found["state"]) == (11, 0, {"state.db": 9})
    assert found["held_by"] == ["not configured"]
    assert run(["log", "status", str(tmp_path)]) == 0
    assert "every record is kept: neither log_keep_s nor log_keep_bytes is set" in capsys.readouterr().out


def test_a_directory_without_a_log_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "status", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
