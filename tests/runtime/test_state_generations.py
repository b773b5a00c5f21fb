"""Two generations of the state: which one is used, and which damage is survived (DESIGN 5.1)."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from tests.runtime.test_server_files import load_state
from wanderbus import records
from wanderbus.errors import StateCorrupt
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.files.state_generations import NAMES
from wanderbus.runtime.files.state_store import StateStore


def saved(files: ServerFiles, *devices: str) -> None:
    """Write a record for each device, and save the state that follows from them."""
    begin = files.log.next_offset
    made = [
        records.StatusChanged(at_us=1, user="sip:a@x", device=device, status="CONNECTED", reason="test")
        for device in devices
    ]
    files.log.append([(begin + number, 1, records.encode_record(record)) for number, record in enumerate(made)])
    files.log.sync()
    state = load_state(files)
    files.store.save(state.changes(), state.offset)


def cut(directory: Path) -> None:
    """Make a data directory with segments of one record, whose log begins at record 4, and states at 5 and 6."""
    files = ServerFiles.open(directory, segment_bytes_max=50)
    saved(files, "a", "b", "c", "d")
    assert files.store.secure() == 4
    while files.log.oldest_offset < 4:
        files.log.remove_oldest()
    saved(files, "e")
    saved(files, "f")
    assert sorted(files.store.offsets.values()) == [5, 6]
    files.close()


def change(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b"CONNECTED", b"CONNECTEX"))
    assert path.read_bytes() != data


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[3_500:5_500] = bytes(range(250)) * 8
    path.write_bytes(data)


def test_there_is_one_generation_while_the_log_is_complete(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    saved(files, "a")
    assert dict(files.store.offsets) == {"state.db": 1}
    files.close()
    assert not (tmp_path / "state-2.db").exists()


def test_saves_alternate_once_there_are_two(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    saved(files, "a")
    assert files.store.secure() == 1
    assert dict(files.store.offsets) == {"state.db": 1, "state-2.db": 1}
    saved(files, "b")
    assert dict(files.store.offsets) == {"state.db": 1, "state-2.db": 2}
    saved(files, "c")
    assert dict(files.store.offsets) == {"state.db": 3, "state-2.db": 2}
    assert files.store.secure() == 3
    assert dict(files.store.offsets) == {"state.db": 3, "state-2.db": 3}
    files.close()
    rows = []
    for name in ("state.db", "state-2.db"):
        store = StateStore.open(tmp_path / name)
        rows.append(list(store.load("devices")))
        store.close()
    assert rows[0] == rows[1]
    assert len(rows[0]) == 3


@pytest.mark.parametrize("damage", [change, empty, garble, Path.unlink])
@pytest.mark.parametrize("name", ["state.db", "state-2.db"])
def test_damage_of_one_generation_is_survived_and_logged_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: Callable[[Path], None]
) -> None:
    cut(tmp_path)
    damage(tmp_path / name)
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        files = ServerFiles.open(tmp_path)
        state = load_state(files)
        assert (files.log.oldest_offset, state.offset) == (4, 6)
        assert [row.device for row in state.devices.values()] == ["a", "b", "c", "d", "e", "f"]
        files.store.save(state.changes(), state.offset)
        assert files.store.secure() == 6
        files.close()
    (line,) = caplog.messages
    assert "\n" not in line
    assert name in line
    assert "replaces it" in line or "is missing" in line
    assert {path.name for path in tmp_path.glob("state*")} - {f"{name}.damaged"} == {"state.db", "state-2.db"}


def test_damage_of_both_generations_of_a_cut_log_is_refused(tmp_path: Path) -> None:
    cut(tmp_path)
    empty(tmp_path / "state.db")
    empty(tmp_path / "state-2.db")
    before = {path: path.read_bytes() for path in tmp_path.glob("state*")}
    for _ in range(2):
        with pytest.raises(StateCorrupt, match=r"state\.db .* the log begins at record 4, so it cannot be rebuilt"):
            ServerFiles.open(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.glob("state*")} == before


def test_damaged_rows_of_both_generations_of_a_cut_log_are_refused(tmp_path: Path) -> None:
    cut(tmp_path)
    change(tmp_path / "state.db")
    change(tmp_path / "state-2.db")
    files = ServerFiles.open(tmp_path)
    with pytest.raises(StateCorrupt, match="the log begins at record 4, so it cannot be rebuilt"):
        load_state(files)
    files.close()


def test_two_damaged_generations_are_rebuilt_from_a_complete_log(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    saved(files, "a")
    files.store.secure()
    files.close()
    change(tmp_path / "state.db")
    change(tmp_path / "state-2.db")
    files = ServerFiles.open(tmp_path)
    assert [row.device for row in load_state(files).devices.values()] == ["a"]
    files.close()


def test_the_older_generation_has_the_rows_that_it_missed_after_a_restart(tmp_path: Path) -> None:
    cut(tmp_path)
    files = ServerFiles.open(tmp_path)
    saved(files, "g")
    assert sorted(files.store.offsets.values()) == [6, 7]
    files.close()
    for name in ("state.db", "state-2.db"):
        store = StateStore.open(tmp_path / name)
        assert len(list(store.load("devices"))) == store.offset
        store.close()


def test_a_write_ahead_log_without_its_file_is_not_applied(tmp_path: Path) -> None:
    cut(tmp_path)
    (tmp_path / "state-2.db").unlink()
    (tmp_path / "state-2.db-wal").write_bytes(b"left behind")
    files = ServerFiles.open(tmp_path)
    load_state(files)
    assert files.store.secure() == files.store.offset
    files.close()
    assert not (tmp_path / "state-2.db-wal").exists()


def test_a_missing_name_of_a_server_whose_log_is_cut_is_restored_from_the_state(tmp_path: Path) -> None:
    cut(tmp_path)
    files = ServerFiles.open(tmp_path)
    files.close()
    for name in ("state.db", "state-2.db"):
        (tmp_path / "server.json").unlink()
        again = ServerFiles.open(tmp_path)
        assert again.identity.server == files.identity.server
        again.close()
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "server.json").unlink()
    with pytest.raises(StateCorrupt, match="is missing; write"):
        ServerFiles.open(tmp_path)


def test_both_generations_give_room_back(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    rows = {f"{number:05}": bytes(20_000) for number in range(1_000)}
    files.store.save({"queue": dict(rows)}, 0)
    files.store.secure()
    for _ in range(2):
        files.store.save({"queue": dict.fromkeys(rows)}, 0)
    files.store.compact()
    files.close()
    assert all((tmp_path / name).stat().st_size < 100_000 for name in NAMES)


@pytest.mark.parametrize(
    ("error", "tries"),
    [(OSError(errno.ENOSPC, "no room"), 2), (OSError(errno.EIO, "bad"), 1), (apsw.CorruptError(), 1)],
)
def test_a_compaction_is_tried_again_only_on_a_full_disk(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    tries: int,
) -> None:
    files = ServerFiles.open(tmp_path)
    tried = 0

    def fail(store: StateStore, spare_bytes_max: int) -> None:
        nonlocal tried
        tried += 1
        raise error

    monkeypatch.setattr(StateStore, "compact", fail)
    for _ in range(2):
        files.store.compact()
    assert tried == tries
    assert caplog.text.count("are not compacted until the next start") == 2 - tries
    files.close()
