"""Backups of a data directory that a server uses: consistent, checked, private, and complete or absent."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import apsw
import pytest

from tests.published import published
from wanderbus.broker.state.state import BrokerState
from wanderbus.errors import ConfigurationError, LogCorrupt, StorageError
from wanderbus.event import Event
from wanderbus.records import AnyRecord, Started, encode_record
from wanderbus.runtime.files.fresh_directory import FreshDirectory
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.files.state_copy import copy_state
from wanderbus.runtime.files.state_description import state_offsets
from wanderbus.runtime.log.log_check import check_log
from wanderbus.runtime.log.log_copy import CopiedLog, OpenLog
from wanderbus.runtime.log.log_name import write_log_name
from wanderbus.runtime.log.retention_policy import Keep
from wanderbus.runtime.log_readers import LogReader, register_reader
from wanderbus.runtime.segment_files import segment_paths
from wanderbus.segments import HEADER, pack_frame
from wanderbus.server.backup import take
from wanderbus.server.backup.take import take_backup
from wanderbus.server.log_retention import LogRetention

SEGMENT_BYTES_MAX = 500


class Writer:
    """A server as it writes its data directory, with a name and short segments."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.files = ServerFiles.open(data, segment_bytes_max=SEGMENT_BYTES_MAX, new_name="wb")
        (self.state,) = self.files.load_states(lambda: [BrokerState("wb", 100)])
        self.append(Started(at_us=1, server="wb", incarnation=7))

    def append(self, *records: AnyRecord, sync: bool = True) -> None:
        log = self.files.log
        first = log.next_offset
        log.append([(offset, record.at_us, encode_record(record)) for offset, record in enumerate(records, first)])
        if sync:
            log.sync()
            for offset, record in enumerate(records, first):
                self.state.apply(offset, record)

    def publish(self, *numbers: int, sync: bool = True) -> None:
        self.append(*(published(Event("News", {"n": n}), number=n, at_us=n) for n in numbers), sync=sync)

    def save(self) -> None:
        self.files.store.save(self.state.changes(), self.state.offset)

    def retain(self) -> None:
        self.save()
        LogRetention(self.files.log, self.files.store, Keep(bytes=0)).run(time.time_ns() // 1_000)


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path / "data")


def opened(directory: Path) -> tuple[int, int, int]:
    """Start on a directory; return the first record, the end, and the offset that the state has then."""
    assert not check_log(directory / "log").damage
    files = ServerFiles.open(directory)
    try:
        (state,) = files.load_states(lambda: [BrokerState(files.identity.server, 100)])
        return files.log.oldest_offset, files.log.next_offset, state.offset
    finally:
        files.close()


def test_a_backup_has_what_was_durable_and_starts_as_it_is(writer: Writer, tmp_path: Path) -> None:
    writer.publish(*range(1, 20))
    writer.save()
    writer.publish(*range(20, 25))
    writer.publish(25, sync=False)
    write_log_name(writer.data / "log", "wb", 7, "a.example")
    (writer.data / "restored").write_text("once before")
    made = take_backup(writer.data, tmp_path / "backup", 123)
    assert (made.server, made.first, made.next, made.state, made.taken_us, made.last_us) == ("wb", 0, 25, 20, 123, 24)
    assert opened(tmp_path / "backup") == (0, 25, 25)
    for name in ("reset.key", "server.json", "log/name", "log/domain", "restored"):
        assert (tmp_path / "backup" / name).read_bytes() == (writer.data / name).read_bytes()


def test_a_backup_makes_nobody_the_operator_of_the_server_that_runs(writer: Writer, tmp_path: Path) -> None:
    (writer.data / "services").mkdir()
    for name in ("login", "history"):
        (writer.data / "services" / f"{name}.key").write_bytes(b"k" * 32)
    take_backup(writer.data, tmp_path / "backup", 1)
    assert [path.name for path in (tmp_path / "backup" / "services").iterdir()] == ["history.key"]


def test_the_copy_is_private_whatever_the_umask(writer: Writer, tmp_path: Path) -> None:
    register_reader(writer.data / "log", LogReader("lake", 0, 1, 1.0))
    before = os.umask(0)
    try:
        take_backup(writer.data, tmp_path / "deep" / "backup", 1)
    finally:
        os.umask(before)
    paths = [tmp_path / "deep", *(tmp_path / "deep").rglob("*")]
    assert tmp_path / "deep" / "backup" / "log" / "readers" / "lake.json" in paths
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()} == {0o600}


def test_a_log_that_lacks_its_first_records_is_copied_with_its_state(writer: Writer, tmp_path: Path) -> None:
    writer.publish(*range(1, 40))
    writer.retain()
    writer.publish(40, 41)
    made = take_backup(writer.data, tmp_path / "backup", 1)
    assert made.first > 0
    assert made.first <= (made.state or 0) <= made.next == 42
    assert opened(tmp_path / "backup") == (made.first, 42, 42)


def test_records_that_are_removed_during_the_copy_are_in_it(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(OpenLog):
        def __enter__(self) -> Late:
            super().__enter__()
            writer.retain()
            return self

    monkeypatch.setattr(take, "OpenLog", Late)
    writer.publish(*range(1, 40))
    made = take_backup(writer.data, tmp_path / "backup", 1)
    assert writer.files.log.oldest_offset > 0
    assert (made.first, made.next) == (0, 40)
    assert opened(tmp_path / "backup") == (0, 40, 40)


def test_a_state_that_the_kept_records_no_longer_continue_is_copied_again(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[int | None] = []

    def copy_then_remove(data: Path, target: Path) -> int | None:
        copied.append(copy_state(data, target))
        if len(copied) == 1:
            writer.publish(*range(20, 60))
            writer.retain()
        return copied[-1]

    monkeypatch.setattr(take, "copy_state", copy_then_remove)
    writer.publish(*range(1, 20))
    writer.save()
    made = take_backup(writer.data, tmp_path / "backup", 1)
    assert copied == [20, 60]
    assert opened(tmp_path / "backup") == (made.first, 60, 60)


@pytest.mark.parametrize("whole", [True, False])
def test_a_damaged_generation_of_the_state_is_passed_over(writer: Writer, tmp_path: Path, *, whole: bool) -> None:
    writer.publish(*range(1, 40))
    writer.retain()
    writer.publish(40)
    writer.save()
    writer.files.close()
    offsets = state_offsets(writer.data)
    newer = max(offsets, key=lambda name: offsets[name] or 0)
    if whole:
        damage(writer.data / newer)
    else:
        rows = apsw.Connection(str(writer.data / newer))
        rows.execute("UPDATE servers SET checksum = checksum + 1")
        rows.close()
    made = take_backup(writer.data, tmp_path / "backup", 1)
    assert made.state == 40
    assert opened(tmp_path / "backup")[1:] == (41, 41)


def test_a_state_that_the_log_can_rebuild_may_be_missing_or_damaged(writer: Writer, tmp_path: Path) -> None:
    writer.publish(1)
    writer.save()
    writer.files.close()
    damage(writer.data / "state.db")
    assert take_backup(writer.data, tmp_path / "backup", 1).state is None
    assert opened(tmp_path / "backup") == (0, 2, 2)


def test_a_directory_whose_state_is_lost_is_refused(writer: Writer, tmp_path: Path) -> None:
    writer.publish(*range(1, 40))
    writer.retain()
    writer.files.close()
    for path in writer.data.glob("state*.db"):
        damage(path)
    with pytest.raises(StorageError, match="no valid state file, and its log begins at record"):
        take_backup(writer.data, tmp_path / "backup", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_damage_leaves_no_backup(writer: Writer, tmp_path: Path) -> None:
    writer.publish(*range(1, 40))
    middle = segment_paths(writer.data / "log")[1]
    content = bytearray(middle.read_bytes())
    content[60] ^= 1
    middle.write_bytes(content)
    with pytest.raises(LogCorrupt, match=f"{middle} is damaged at byte 8: record"):
        take_backup(writer.data, tmp_path / "backup", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_record_of_another_offset_is_noticed(writer: Writer, tmp_path: Path) -> None:
    (segment,) = segment_paths(writer.data / "log")
    segment.write_bytes(HEADER + pack_frame(5, 1, b"payload"))
    with pytest.raises(LogCorrupt, match="record 0 cannot be read"):
        take_backup(writer.data, tmp_path / "backup", 1)


def test_a_missing_segment_is_noticed(writer: Writer, tmp_path: Path) -> None:
    writer.publish(*range(1, 40))
    segment_paths(writer.data / "log")[1].unlink()
    with pytest.raises(LogCorrupt, match="cannot be read"):
        take_backup(writer.data, tmp_path / "backup", 1)


def test_a_failure_of_the_disk_leaves_no_backup(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "durable")

    monkeypatch.setattr(FreshDirectory, "write", full)
    with pytest.raises(StorageError, match=r"backup cannot be written: No space left on device \(durable\)"):
        take_backup(writer.data, tmp_path / "backup", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_file_that_is_not_as_it_was_written_is_noticed(
    writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = OpenLog.copy

    def copy_then_rot(log: OpenLog, fresh: FreshDirectory) -> CopiedLog:
        copied = copy(log, fresh)
        damage(segment_paths(fresh.path / "log")[0])
        return copied

    monkeypatch.setattr(OpenLog, "copy", copy_then_rot)
    with pytest.raises(StorageError, match="is not what the backup wrote"):
        take_backup(writer.data, tmp_path / "backup", 1)
    assert not (tmp_path / "backup").exists()


def test_the_target_is_not_overwritten_and_not_within_the_source(writer: Writer, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "file").touch()
    with pytest.raises(ConfigurationError, match="exists and is not overwritten"):
        take_backup(writer.data, tmp_path / "old", 1)
    with pytest.raises(ConfigurationError, match="is within"):
        take_backup(writer.data, writer.data / "backup", 1)
    (tmp_path / "empty").mkdir()
    take_backup(writer.data, tmp_path / "empty", 1)


def test_a_directory_that_is_not_of_a_server_is_refused(tmp_path: Path) -> None:
    (tmp_path / "domain" / "data" / "s1" / "log").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="is the directory of a domain; back up each of its servers"):
        take_backup(tmp_path / "domain", tmp_path / "backup", 1)
    with pytest.raises(ConfigurationError, match="holds no event log; give the data directory of a server"):
        take_backup(tmp_path, tmp_path / "backup", 1)


def damage(path: Path) -> None:
    """Change bits all over a file."""
    content = bytearray(path.read_bytes())
    for byte in range(20, len(content), 97):
        content[byte] ^= 0xFF
    path.write_bytes(content)
