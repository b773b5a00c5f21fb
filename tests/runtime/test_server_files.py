"""A server's data directory and users file: valid ones, and the one-line errors of invalid ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from wanderbus import records, segments
from wanderbus.broker.state.state import BrokerState
from wanderbus.errors import ConfigurationError, LogCorrupt, StateCorrupt, StorageError
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.files.users_file import read_users


def load_state(files: ServerFiles) -> BrokerState:
    """Load the state of the only role."""
    (state,) = files.load_states(lambda: [BrokerState(files.identity.server, publishes_remembered=16)])
    return state


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
    files.keep_ports({"broker_port": 40_001, "data_port": 40_002, "stream_port": 40_003})
    files.close()
    again = ServerFiles.open(tmp_path / "new" / "data")
    again.close()
    assert again.identity.server == files.identity.server
    assert again.identity.ports == {"broker_port": 40_001, "data_port": 40_002, "stream_port": 40_003}


def test_a_new_server_has_the_name_that_is_given_and_keeps_it(tmp_path: Path) -> None:
    names = []
    for given in ("s1", "s2", None):
        files = ServerFiles.open(tmp_path, new_name=given)
        names.append(files.identity.server)
        files.close()
    assert names == ["s1", "s1", "s1"]


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
    files.log.append([(0, 5_000, records.encode_record(records.Started(at_us=5_000, server="wb", incarnation=1)))])
    files.log.sync()
    state = load_state(files)
    files.store.save(state.changes(), state.offset)
    files.close()
    files = ServerFiles.open(tmp_path)
    assert load_state(files).wall_us == 5_000
    files.close()


def test_the_state_is_brought_up_to_date_from_the_log(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    write_log(files, "CONNECTED", "DISCONNECTED")
    state = load_state(files)
    files.store.save(state.changes(), state.offset)
    write_log(files, "CONNECTED")
    files.close()
    files = ServerFiles.open(tmp_path)
    state = load_state(files)
    files.close()
    assert (files.store.offset, state.offset) == (2, 3)
    assert [row.status for row in state.devices.values()] == ["CONNECTED"]


def test_a_state_ahead_of_its_log_is_refused(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    files.store.save({}, 7)
    with pytest.raises(LogCorrupt, match=r"reflects 7 records, .* holds 0: segments are missing; put them back"):
        load_state(files)
    files.close()


def test_a_record_of_another_version_is_one_line(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    files.log.append([(0, 1, b'{"type":"from the future"}')])
    files.log.sync()
    with pytest.raises(StateCorrupt, match="was written by another version"):
        load_state(files)
    files.close()


def test_a_directory_in_use_is_refused_and_stays_usable_for_its_owner(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    with pytest.raises(StorageError, match="in use by another process; stop that one first"):
        ServerFiles.open(tmp_path)
    write_log(files, "CONNECTED")
    files.close()


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


@pytest.mark.parametrize("damage", [make_identity_a_directory, make_state_a_directory, make_log_a_file])
def test_unusable_files_are_named_in_one_line_and_closed(tmp_path: Path, damage: Callable[[Path], None]) -> None:
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


def write_state(directory: Path) -> ServerFiles:
    """Create a data directory whose state reflects two of the log's four records, of a server named in the first."""
    files = ServerFiles.open(directory)
    started = records.encode_record(records.Started(at_us=1, server=files.identity.server, incarnation=1))
    files.log.append([(0, 1, started)])
    write_log(files, "CONNECTED")
    state = load_state(files)
    files.store.save(state.changes(), state.offset)
    write_log(files, "DISCONNECTED", "CONNECTED")
    files.keep_ports({"data_port": 40_002})
    files.close()
    return files


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def empty(data: bytes) -> bytes:
    return b""


def change_a_row(data: bytes) -> bytes:
    place = data.index(b"CONNECTED")
    return data[:place] + b"B" + data[place + 1 :]


def change_the_format(data: bytes) -> bytes:
    """Return a file as an earlier version wrote it: SQLite keeps the number in these bytes of the header."""
    return data[:60] + (3).to_bytes(4, "big") + data[64:]


@pytest.mark.parametrize("change", [cut, empty, change_a_row, change_the_format])
def test_a_state_that_cannot_be_used_is_rebuilt_from_the_log_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Callable[[bytes], bytes]
) -> None:
    write_state(tmp_path)
    path = tmp_path / "state.db"
    damaged = change(path.read_bytes())
    path.write_bytes(damaged)
    for _ in range(2):
        files = ServerFiles.open(tmp_path)
        state = load_state(files)
        files.store.save(state.changes(), state.offset)
        files.close()
        assert (state.offset, [row.status for row in state.devices.values()]) == (4, ["CONNECTED"])
    (line,) = caplog.messages
    assert line.startswith(f"{path} cannot be used (")
    assert line.endswith("moved it to state.db.damaged; the state is rebuilt from the log (4 records)")
    assert (tmp_path / "state.db.damaged").read_bytes() == damaged


def test_the_write_ahead_log_of_a_damaged_state_goes_with_it(tmp_path: Path) -> None:
    """A killed server leaves both; alone the log would be taken for that of the new state."""
    files = ServerFiles.open(tmp_path / "live")
    write_log(files, "CONNECTED")
    state = load_state(files)
    files.store.save(state.changes(), state.offset)
    write_log(files, "CONNECTED")
    killed = shutil.copytree(tmp_path / "live", tmp_path / "killed")
    files.close()
    wal = (killed / "state.db-wal").read_bytes()
    (killed / "state.db").write_bytes(b"")
    files = ServerFiles.open(killed)
    assert files.store.offset == 0
    assert [row.status for row in load_state(files).devices.values()] == ["CONNECTED"]
    files.close()
    assert (killed / "state.db.damaged-wal").read_bytes() == wal


def test_a_row_of_another_kind_is_rebuilt_from_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_state(tmp_path)
    files = ServerFiles.open(tmp_path)
    files.store.save({"devices": {"d": b"\x93\x01\x02\x03"}}, 2)
    state = load_state(files)
    files.close()
    assert (state.offset, files.store.offset, len(state.devices)) == (4, 0, 1)
    assert len(caplog.messages) == 1


def test_a_state_that_the_log_cannot_make_good_stays_where_it_is(tmp_path: Path) -> None:
    """The first segments were moved away: only the state has their content."""
    write_state(tmp_path)
    path = tmp_path / "state.db"
    (segment,) = (tmp_path / "log").glob("*.seg")
    frames = list(segments.frames(segment.read_bytes(), len(segments.HEADER)))
    kept = b"".join(segments.pack_frame(frame.offset, frame.at_us, frame.payload) for frame in frames[1:])
    segment.with_name(segments.segment_name(1)).write_bytes(segments.HEADER + kept)
    segment.unlink()
    files = ServerFiles.open(tmp_path)
    assert load_state(files).offset == 4
    files.close()
    damaged = change_a_row(path.read_bytes())
    path.write_bytes(damaged)
    files = ServerFiles.open(tmp_path)
    with pytest.raises(
        StateCorrupt, match=r"state\.db .*, and the log begins at record 1, so it cannot be rebuilt; put"
    ):
        load_state(files)
    files.close()
    assert path.read_bytes() == damaged
    path.unlink()
    files = ServerFiles.open(tmp_path)
    with pytest.raises(LogCorrupt, match=r"reflects 0 records, .* begins at record 1: segments are missing"):
        load_state(files)
    files.close()


def change_a_port(data: bytes) -> bytes:
    return data.replace(b"40002", b"40012")


def change_the_name(data: bytes) -> bytes:
    return data.replace(b'"wb', b'"wc')


@pytest.mark.parametrize("change", [cut, empty, change_a_port, change_the_name])
def test_a_damaged_identity_is_taken_from_the_log_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: Callable[[bytes], bytes]
) -> None:
    server = write_state(tmp_path).identity.server
    path = tmp_path / "server.json"
    path.write_bytes(change(path.read_bytes()))
    for _ in range(2):
        files = ServerFiles.open(tmp_path)
        assert load_state(files).offset == 4
        files.close()
        assert (files.identity.server, files.identity.ports) == (server, {})
    assert caplog.messages == [f"{path} is damaged; restored the name {server} from the log, and the ports change"]


def test_a_missing_identity_is_that_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = write_state(tmp_path).identity.server
    (tmp_path / "server.json").unlink()
    files = ServerFiles.open(tmp_path)
    files.close()
    assert files.identity.server == server
    assert len(caplog.messages) == 1


def test_an_identity_that_log_and_state_lack_is_requested(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    write_log(files, "CONNECTED")
    files.close()
    (tmp_path / "server.json").write_text("{")
    (tmp_path / "state.db").unlink()
    with pytest.raises(StateCorrupt, match=r"server\.json is damaged; write .* with the name"):
        ServerFiles.open(tmp_path)
    (tmp_path / "server.json").write_text(f'{{"server": "{files.identity.server}"}}')
    ServerFiles.open(tmp_path).close()


def test_a_key_of_which_a_byte_was_changed_is_refused(tmp_path: Path) -> None:
    """One that an earlier version wrote has no checksum."""
    ServerFiles.open(tmp_path).close()
    path = tmp_path / "reset.key"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StateCorrupt, match=r"reset\.key is damaged; delete it"):
            ServerFiles.open(tmp_path)
    path.write_bytes(whole[:32])
    files = ServerFiles.open(tmp_path)
    files.close()
    assert files.reset_key == whole[:32]


def test_ports_that_cannot_be_kept_are_a_storage_error(tmp_path: Path) -> None:
    files = ServerFiles.open(tmp_path)
    (tmp_path / "server.new").mkdir()
    with pytest.raises(StorageError, match="cannot be used"):
        files.keep_ports({"data_port": 2})
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
