"""A server's data directory and users file: what can be used, and the one line that says what cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from wanderbus import records
from wanderbus.errors import ConfigurationError, LogCorrupt, StateCorrupt, StorageError
from wanderbus.runtime.server_files import ServerFiles
from wanderbus.runtime.users_file import read_users


def write_log(files: ServerFiles, *statuses: str) -> None:
    """Append and sync one record for each status of the only device."""
    begin = files.log.next_offset
    files.log.append(
        [
            (begin + number, 1, records.encode_record(record))
            for number, record in enumerate(
                records.StatusChanged(at_us=1, user="sip:a@x", device="d", status=status, reason="test")
                for status in statuses
            )
        ]
    )
    files.log.sync()


def test_a_directory_is_begun_and_found_again(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path / "new" / "data")
    files.keep_ports(40_001, 40_002, 40_003)
    files.close()
    again = ServerFiles.open(tmp_path / "new" / "data")
    again.close()
    assert again.identity.server == files.identity.server
    kept = again.identity
    assert (kept.broker_port, kept.data_port, kept.stream_port) == (40_001, 40_002, 40_003)


def test_design_6_3_the_key_of_resets_is_kept_for_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    keys = []
    for _ in range(2):
        files = ServerFiles.open(directory)
        keys.append(files.reset_key)
        files.close()
    assert keys[0] == keys[1]
    assert len(keys[0]) == 32
    assert (directory / "reset.key").stat().st_mode & 0o777 == 0o600
    assert (directory / "server.json").stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    (directory / "reset.key").write_bytes(b"short")
    with pytest.raises(StateCorrupt, match=r"reset\.key is damaged; delete it"):
        ServerFiles.open(directory)


def test_design_5_8_the_clock_goes_on_from_the_last_record_where_the_rows_cover_the_log(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    files.log.append([(0, 5_000, records.encode_record(records.Started(at_us=5_000, server="wb")))])
    files.log.sync()
    state = files.load_state(8)
    files.store.save(state.changes(), state.offset)
    files.close()
    files = ServerFiles.open(tmp_path)
    assert files.load_state(8).wall_us == 5_000
    files.close()


def test_the_state_is_brought_up_to_date_from_the_log(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    write_log(files, "CONNECTED", "DISCONNECTED")
    state = files.load_state(16)
    files.store.save(state.changes(), state.offset)
    write_log(files, "CONNECTED")
    files.close()
    files = ServerFiles.open(tmp_path)
    state = files.load_state(16)
    files.close()
    assert (files.store.offset, state.offset) == (2, 3)
    assert [row.status for row in state.devices.values()] == ["CONNECTED"]


def test_a_state_ahead_of_its_log_is_refused(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    files.store.save({}, 7)
    with pytest.raises(LogCorrupt, match=r"reflects 7 records, .* holds 0: segments are missing; put them back"):
        files.load_state(16)
    files.close()


def test_a_record_of_another_version_is_one_line(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    files.log.append([(0, 1, b'{"type":"from the future"}')])
    files.log.sync()
    with pytest.raises(StateCorrupt, match="was written by another version"):
        files.load_state(16)
    files.close()


def test_a_directory_in_use_is_refused_and_stays_usable_for_its_owner(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    with pytest.raises(StorageError, match="in use by another process; stop that one first"):
        ServerFiles.open(tmp_path)
    write_log(files, "CONNECTED")
    files.close()


def damage_identity(directory: Path) -> None:
    (directory / "server.json").write_text("{")


def make_identity_a_directory(directory: Path) -> None:
    (directory / "server.json").unlink()
    (directory / "server.json").mkdir()


def make_state_a_directory(directory: Path) -> None:
    for path in directory.glob("state.db*"):
        path.unlink()
    (directory / "state.db").mkdir()


def make_log_a_file(directory: Path) -> None:
    for path in (directory / "log").iterdir():
        path.unlink()
    (directory / "log").rmdir()
    (directory / "log").write_text("")


@pytest.mark.parametrize(
    "damage", [damage_identity, make_identity_a_directory, make_state_a_directory, make_log_a_file]
)
def test_what_cannot_be_used_is_named_in_one_line_and_let_go(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    ServerFiles.open(tmp_path).close()
    damage(tmp_path)
    lines = set()
    for _ in range(2):
        with pytest.raises(StorageError) as caught:
            ServerFiles.open(tmp_path)
        lines.add(str(caught.value))
    (line,) = lines
    assert str(tmp_path) in line
    assert "\n" not in line


def test_ports_that_cannot_be_kept_are_a_storage_error(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    (tmp_path / "server.new").mkdir()
    with pytest.raises(StorageError, match="cannot be used"):
        files.keep_ports(1, 2, 3)
    files.close()


def users(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "users"
    path.write_text(text, encoding="utf-8")
    return path


def test_users_are_names_and_passwords(tmp_path: Path) -> None:
    path = users(tmp_path, "# people\n\nalice:secret\n  bob:with:colons and spaces  \n")
    assert read_users(path) == {"alice": "secret", "bob": "with:colons and spaces"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("alice:s3cret\nbob\n", "line 2: write name:password"),
        ("alice:s3cret\n:hidden\n", "line 2: write name:password"),
        ("alice:\n", "line 1: write name:password"),
        ("alice smith:hidden\n", "line 1: write name:password"),
        ("alice :hidden\n", "line 1: write name:password"),
        ("alice:s3cret\nalice:hidden\n", "line 2: the name 'alice' is taken"),
        ("broker:hidden\n", "line 1: the name 'broker' is taken"),
    ],
)
def test_a_line_at_fault_is_counted_and_never_quoted(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_users(users(tmp_path, text))
    assert str(caught.value).endswith(complaint)
    assert "hidden" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_users_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin1").write_bytes(b"ren\xe9:secret\n")
    for name, reason in (("none", "No such file"), (".", "Is a directory"), ("latin1", "not UTF-8 text")):
        with pytest.raises(ConfigurationError, match=reason):
            read_users(tmp_path / name)
