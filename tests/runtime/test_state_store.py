"""The state store: rows and the log offset they reflect, in one commit (DESIGN 5.1, 8)."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from wanderbus.errors import StateCorrupt
from wanderbus.runtime.state_store import StateStore


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


def refused(path: Path, server: str = "") -> str:
    with pytest.raises(StateCorrupt) as caught:
        StateStore.open(path, server=server)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"{path} cannot be used (")
    assert line.endswith("-wal away, it is rebuilt from the log")
    return line


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


def test_a_file_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    StateStore.open(path).close()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE meta SET schema = 99")
    connection.close()
    assert "record schema 99" in refused(path)


def test_rows_of_another_format_are_refused(tmp_path: Path) -> None:
    """As they were written before rows were msgpack: no format was told then."""
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
    assert "belongs to the server 'north', this one is 'south'" in refused(path, "south")


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
