"""The state store: rows and the log offset they reflect, in one commit (DESIGN 5.1, 8)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw
import pytest

from wanderbus.errors import StateCorrupt, StorageError
from wanderbus.runtime.files import state_store
from wanderbus.runtime.files.state_store import StateStore


def test_rows_and_offset_come_back_together(tmp_path: Path) -> None:
    store = StateStore.open(tmp_path / "state.db")
    assert (store.offset, list(store.load("sessions"))) == (0, [])
    store.save({"sessions": {"b": b'{"n":2}', "a": b'{"n":"\xc3\xa9"}'}, "devices": {"d": b"[]"}}, 7)
    store.close()
    store = StateStore.open(tmp_path / "state.db")
    assert store.offset == 7
    assert list(store.load("sessions")) == [("a", b'{"n":"\xc3\xa9"}'), ("b", b'{"n":2}')]
    assert list(store.load("devices")) == [("d", b"[]")]
    store.close()


def test_a_row_is_replaced_and_deleted(tmp_path: Path) -> None:
    store = StateStore.open(tmp_path / "state.db")
    store.save({"sessions": {"a": b"1", "b": b"2"}}, 1)
    store.save({"sessions": {"a": b"3", "b": None, "never": None}}, 2)
    assert list(store.load("sessions")) == [("a", b"3")]
    store.close()


def test_a_save_that_fails_changes_nothing(tmp_path: Path) -> None:
    store = StateStore.open(tmp_path / "state.db")
    store.save({"sessions": {"a": b"1"}}, 1)
    with pytest.raises(TypeError):
        store.save({"sessions": {"a": b"2"}, "devices": {"d": object()}}, 2)  # type: ignore[dict-item]
    assert store.offset == 1
    assert list(store.load("sessions")) == [("a", b"1")]
    store.save({"devices": {"d": b"2"}}, 2)
    assert list(store.load("devices")) == [("d", b"2")]
    store.close()


def test_an_offset_never_goes_back(tmp_path: Path) -> None:
    store = StateStore.open(tmp_path / "state.db")
    store.save({}, 5)
    with pytest.raises(AssertionError, match="cannot go back"):
        store.save({}, 4)
    store.close()


def refused(path: Path, server: str = "", kind: type[StorageError] = StateCorrupt) -> str:
    with pytest.raises(StorageError) as caught:
        StateStore.open(path, server=server)
    assert type(caught.value) is kind
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"{path} ")
    return line


def saved(path: Path) -> dict[str, dict[str, bytes]]:
    """Write a state of a few pages, and return its rows."""
    rows = {
        "sessions": {f"key{number}": b"x%d" % number * 5 for number in range(60)},
        "events": {str(number): bytes(range(number)) for number in range(60)},
        "queue": {"a": b"q" * 5_000},
    }
    store = StateStore.open(path, server="north")
    store.save({**rows, "devices": {"d": b"1"}}, 7)
    store.save({"devices": {"d": None}, "sessions": {"key3": b"new"}}, 9)
    store.close()
    rows["sessions"]["key3"] = b"new"
    return rows


def read_back(path: Path) -> tuple[int, dict[str, dict[str, bytes]]]:
    store = StateStore.open(path, server="north")
    try:
        store.save({}, store.offset)
        return store.offset, {table: dict(store.load(table)) for table in ("sessions", "events", "queue")}
    finally:
        store.close()


def test_a_byte_that_was_changed_is_noticed_or_changes_nothing(tmp_path: Path) -> None:
    """Pages, rows and the header are looked at in steps that meet every kind of byte."""
    path = tmp_path / "state.db"
    rows = saved(path)
    whole = path.read_bytes()
    noticed = 0
    for place in (*range(0, 100, 2), *range(100, len(whole), 83)):
        for file in tmp_path.iterdir():
            file.unlink()
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            found = read_back(path)
        except StateCorrupt:
            noticed += 1
        else:
            assert found == (9, rows), place
    assert noticed > 100


@pytest.mark.parametrize("part", [b"x17x17", b"key59", b"qqqqqqqq"])
def test_a_row_is_not_loaded_that_is_not_as_it_was_written(tmp_path: Path, part: bytes) -> None:
    path = tmp_path / "state.db"
    saved(path)
    path.write_bytes(path.read_bytes().replace(part, part[:-1] + b"z", 1))
    store = StateStore.open(path)
    with pytest.raises(StateCorrupt, match="has a wrong checksum"):
        [*store.load("sessions"), *store.load("queue")]
    store.close()


def test_a_row_of_another_table_or_key_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    saved(path)
    for change in (
        "UPDATE events SET key = 'other' WHERE key = '5'",
        "DELETE FROM queue; INSERT INTO queue SELECT * FROM sessions",
        "UPDATE sessions SET row = CAST(row AS TEXT)",
    ):
        copy = tmp_path / "copy.db"
        copy.write_bytes(path.read_bytes())
        connection = apsw.Connection(str(copy))
        connection.execute(change)
        connection.close()
        with pytest.raises(StateCorrupt, match="has a wrong checksum"):
            read_back(copy)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE meta SET offset = 8",
        "UPDATE meta SET tables = 'events sessions'",
        "DELETE FROM meta",
        "DROP TABLE queue",
        "CREATE TABLE more(key TEXT)",
        "ALTER TABLE queue ADD COLUMN more",
    ],
)
def test_a_file_that_contradicts_its_description_is_refused(tmp_path: Path, change: str) -> None:
    path = tmp_path / "state.db"
    saved(path)
    connection = apsw.Connection(str(path))
    connection.execute(change)
    connection.close()
    refused(path)


@pytest.mark.parametrize("size", [0, 1, 99, 4_096, 9_000])
def test_a_truncated_file_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "state.db"
    saved(path)
    path.write_bytes(path.read_bytes()[:size])
    refused(path)


@pytest.mark.parametrize("missing", [4_096, 2_048])
def test_a_file_that_lacks_the_end_of_its_last_row_is_refused(tmp_path: Path, missing: int) -> None:
    """SQLite reports an error of the disk if the write-ahead log hides the missing end until the row is read."""
    path, crashed = tmp_path / "state.db", tmp_path / "crashed" / "state.db"
    crashed.parent.mkdir()
    store = StateStore.open(path)
    store.save({"sessions": {"a": b"x" * 5_000}}, 1)
    assert store.sync()
    store.save({"devices": {"d": b"y"}}, 2)
    for suffix in ("", "-wal"):
        crashed.with_name(f"state.db{suffix}").write_bytes(path.with_name(f"state.db{suffix}").read_bytes())
    store.close()
    os.truncate(crashed, crashed.stat().st_size - missing)
    refused(crashed)


@pytest.mark.parametrize("rest", ["synced", "long", "compacted"])
def test_a_damaged_write_ahead_log_brings_back_no_older_rows(tmp_path: Path, rest: str) -> None:
    """SQLite would lay the part before the damage over a file that has all of it: rows of different offsets."""
    path, crashed = tmp_path / "state.db", tmp_path / "crashed" / "state.db"
    crashed.parent.mkdir()
    store = after_a_backlog(path) if rest == "compacted" else StateStore.open(path)
    first = store.offset + 1
    for offset in range(first, first + 6):
        store.save({"even" if offset % 2 == 0 else "odd": {"offset": str(offset).encode()}}, offset)
    match rest:
        case "synced":
            assert store.sync()
        case "long":
            store.save({"more": {"a": bytes(5_000_000)}}, store.offset)
        case _:
            store.compact()
    expected = (store.offset, dict(store.load("even")), dict(store.load("odd")))
    whole, log = path.read_bytes(), path.with_name("state.db-wal").read_bytes()
    store.close()
    for place in range(0, min(len(log), 65_536), 997):
        crashed.write_bytes(whole)
        crashed.with_name("state.db-wal").write_bytes(log[:place] + bytes([log[place] ^ 0x10]) + log[place + 1 :])
        store = StateStore.open(crashed)
        assert (store.offset, dict(store.load("even")), dict(store.load("odd"))) == expected, place
        store.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"not a database, but long enough to be looked at" * 40)
    assert "not a database" in refused(path)


def test_a_damaged_page_is_found_on_open(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    store = StateStore.open(path)
    store.save({"sessions": {f"key{number:05d}": b'"' + b"x" * 200 + b'"' for number in range(500)}}, 500)
    store.close()
    data = bytearray(path.read_bytes())
    data[5 * 4096 : 6 * 4096] = b"\xa5" * 4096
    path.write_bytes(data)
    refused(path)


def test_a_file_of_another_schema_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.db"
    with monkeypatch.context() as patched:
        patched.setattr(state_store, "SCHEMA_VERSION", 99)
        StateStore.open(path).close()
    assert "record schema 99" in refused(path, kind=StorageError)


def test_rows_of_another_format_are_refused(tmp_path: Path) -> None:
    """The rows are from before the change to msgpack, when the format was not stored."""
    path = tmp_path / "state.db"
    StateStore.open(path).close()
    StateStore.open(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 0")
    connection.close()
    assert "its rows have format 0" in refused(path)


def test_rows_are_bytes_of_any_kind(tmp_path: Path) -> None:
    store = StateStore.open(tmp_path / "state.db")
    store.save({"queue": {"a": bytes(range(256))}}, 1)
    store.close()
    store = StateStore.open(tmp_path / "state.db")
    assert list(store.load("queue")) == [("a", bytes(range(256)))]
    store.close()


def test_a_foreign_table_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE meta(something)")
    connection.close()
    refused(path)


def test_the_state_of_another_server_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    StateStore.open(path, server="north").close()
    StateStore.open(path, server="north").close()
    assert "belongs to the server 'north', this one is 'south'" in refused(path, "south", StorageError)


def test_a_deleted_file_is_begun_again_at_offset_zero(tmp_path: Path) -> None:
    """DESIGN 5.1: while the log is whole the state may be deleted and rebuilt."""
    path = tmp_path / "state.db"
    store = StateStore.open(path)
    store.save({"sessions": {"a": b"1"}}, 9)
    store.close()
    path.unlink()
    store = StateStore.open(path)
    assert (store.offset, list(store.load("sessions"))) == (0, [])
    store.close()


def after_a_backlog(path: Path, rest: int = 1, rows: int = 2_000) -> StateStore:
    """Return a store that had ``rows`` rows of 20 kB, of which ``rest`` remain, and another row."""
    store = StateStore.open(path, server="wb")
    store.save({"queue": {f"{number:05}": bytes(20_000) for number in range(rows)}}, 1)
    store.save({"queue": {f"{number:05}": None for number in range(rest, rows)}, "sessions": {"a": b"1"}}, 2)
    assert store.sync()
    return store


def test_a_backlog_gives_its_room_back(tmp_path: Path) -> None:
    """The file and its write-ahead log are short after the next save, and a file of earlier versions is too."""
    path, wal = tmp_path / "state.db", tmp_path / "state.db-wal"
    store = after_a_backlog(path)
    assert path.stat().st_size > 40_000_000
    store.compact()
    assert path.stat().st_size < 100_000
    store.save({"sessions": {"b": b"2"}}, 3)
    assert wal.stat().st_size < 100_000
    store.close()
    store = StateStore.open(path, server="wb")
    assert store.offset == 3
    assert [key for table in ("queue", "sessions") for key, _ in store.load(table)] == ["00000", "a", "b"]
    store.close()


@pytest.mark.parametrize(
    ("rows", "rest"), [(500, 200), (2_000, 1_000)], ids=["little is spare", "much would be copied"]
)
def test_a_file_is_not_compacted_for_little_or_at_great_cost(tmp_path: Path, rows: int, rest: int) -> None:
    store = after_a_backlog(tmp_path / "state.db", rest, rows)
    full = (tmp_path / "state.db").stat().st_size
    store.compact()
    assert (tmp_path / "state.db").stat().st_size == full
    store.close()


class FullFile(apsw.VFSFile):
    """A file that refuses what is written while the disk is full."""

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if FullDisk.is_full:
            raise apsw.FullError("full")
        super().xWrite(data, offset)


class FullDisk(apsw.VFS):
    """File system layer of SQLite for a disk that can be full."""

    is_full = False

    def __init__(self) -> None:
        super().__init__("full", "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return FullFile("", name, flags)


def test_a_compaction_on_a_full_disk_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.db"
    disk = FullDisk()
    after_a_backlog(path, 500).close()
    store = StateStore.open(path, vfs="full")
    monkeypatch.setattr(FullDisk, "is_full", True)
    with pytest.raises(OSError, match="No space left"):
        store.compact()
    monkeypatch.setattr(FullDisk, "is_full", False)
    store.save({"sessions": {"b": b"2"}}, 3)
    assert len([*store.load("queue")]) == 500
    store.compact()
    store.close()
    assert path.stat().st_size < 20_000_000
    disk.unregister()
