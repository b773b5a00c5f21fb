"""Retention of a server's log: order of a pass, warnings, errors, and a whole server that goes on (SPEC T-01)."""

from __future__ import annotations

import errno
import logging
from functools import partial
from pathlib import Path

import apsw
import pytest

import wanderbus
from tests.api.world import SUBJECT, World, files, publish, run, until
from wanderbus import records
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.files.state_generations import StateGenerations
from wanderbus.runtime.log.event_log import EventLog
from wanderbus.runtime.log.retention_policy import Keep
from wanderbus.runtime.log_place import checked_place, checksum_before
from wanderbus.runtime.log_readers import LogReader, register_reader, remove_reader
from wanderbus.segments import LogPlace
from wanderbus.server import log_retention, storage
from wanderbus.server.log_retention import LogRetention, NeededRecords
from wanderbus.server.log_status import log_status

NOW_US = 1_000_000_000


@pytest.fixture
def opened(tmp_path: Path) -> ServerFiles:
    """Thirty segments of one record each, and a state that reflects all of them."""
    made = ServerFiles.open(tmp_path / "data", segment_bytes_max=50)
    record = records.encode_record(records.Started(at_us=1, server="wb", incarnation=1))
    made.log.append([(offset, 1, record) for offset in range(30)])
    made.log.sync()
    made.store.save({"rows": {"a": b"1"}}, 30)
    return made


def register(opened: ServerFiles, name: str, offset: int, expires_s: float = 100) -> None:
    register_reader(opened.log.directory, LogReader(name, offset, NOW_US, expires_s))


def test_a_pass_removes_a_bounded_number_of_segments_and_a_reader_holds_the_rest(opened: ServerFiles) -> None:
    retention = LogRetention(opened.log, opened.store, Keep(bytes=0))
    register(opened, "lake", 20)
    retention.run(NOW_US)
    assert opened.log.oldest_offset == log_retention.REMOVED_AT_ONCE
    for _ in range(2):
        retention.run(NOW_US)
        assert opened.log.oldest_offset == 20
    remove_reader(opened.log.directory, "lake")
    retention.run(NOW_US)
    assert opened.log.oldest_offset == 30
    opened.close()


def test_a_reader_also_holds_the_record_by_which_it_recognises_the_log(opened: ServerFiles) -> None:
    log = opened.log.directory
    register_reader(log, LogReader("lake", 9, NOW_US, 100, checksum_before(log, 9)))
    LogRetention(opened.log, opened.store, Keep(bytes=0)).run(NOW_US)
    assert opened.log.oldest_offset == 8
    assert checked_place(log, LogPlace(9, checksum_before(log, 9)), reader="lake", remedy="").checksum is not None
    opened.close()


@pytest.mark.parametrize(("offset", "reason"), [(9, "record 8 is another one"), (31, "it ends before record 30")])
def test_a_reader_of_the_log_before_it_was_restored_holds_everything_until_it_expires(
    opened: ServerFiles, caplog: pytest.LogCaptureFixture, offset: int, reason: str
) -> None:
    retention, log = LogRetention(opened.log, opened.store, Keep(bytes=0)), opened.log.directory
    register_reader(log, LogReader("lake", offset, NOW_US, 100, 1))
    for _ in range(2):
        retention.run(NOW_US)
    assert opened.log.oldest_offset == 0
    [warning] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert f"is not the log that its reader lake has read: {reason}" in warning
    assert log_status(opened.directory, NOW_US).warnings == [warning]
    assert log_status(opened.directory, NOW_US).held_by == ["lake"]
    retention.run(NOW_US + 101_000_000)
    assert opened.log.oldest_offset > 0
    opened.close()


def test_t05_records_that_a_subscription_still_reads_are_kept(opened: ServerFiles) -> None:
    retention = LogRetention(opened.log, opened.store, Keep(bytes=0))
    retention.run(NOW_US, NeededRecords(30, {"subscriptions": 4}))
    assert opened.log.oldest_offset == 4
    # A crash may undo the move of a cursor by records that are not durable yet.
    retention.run(NOW_US, NeededRecords(33, {"subscriptions": 9}))
    assert opened.log.oldest_offset == 4
    retention.run(NOW_US, NeededRecords(30, {"subscriptions": 9}))
    assert opened.log.oldest_offset == 9
    assert log_status(opened.directory, NOW_US).held_by == ["subscriptions"]
    retention.run(NOW_US, NeededRecords(30, {}))
    assert opened.log.oldest_offset == 9 + log_retention.REMOVED_AT_ONCE
    opened.close()


def test_t05_nothing_is_removed_before_the_need_of_subscriptions_is_durable(opened: ServerFiles) -> None:
    retention = LogRetention(opened.log, opened.store, Keep(bytes=0))
    retention.run(NOW_US, NeededRecords(31, {"subscriptions": 20}))
    assert opened.log.oldest_offset == 0
    opened.close()


def test_an_expired_reader_holds_nothing_and_is_logged_once(
    opened: ServerFiles, caplog: pytest.LogCaptureFixture
) -> None:
    retention = LogRetention(opened.log, opened.store, Keep(bytes=0))
    register(opened, "lake", 5)
    retention.run(NOW_US + 100_000_000)
    assert (opened.log.oldest_offset, caplog.messages) == (5, [])
    for _ in range(2):
        retention.run(NOW_US + 100_000_001)
    (line,) = caplog.messages
    assert line.startswith(
        "the log's reader lake has not registered for 100 s and counts as gone: the records from 5 on"
    )
    assert opened.log.oldest_offset > 5
    opened.close()


def test_a_damaged_registration_holds_everything_and_is_logged_once(
    opened: ServerFiles, caplog: pytest.LogCaptureFixture
) -> None:
    retention = LogRetention(opened.log, opened.store, Keep(bytes=0))
    register(opened, "lake", 5)
    path = opened.log.directory / "readers" / "lake.json"
    path.write_bytes(b"{")
    for _ in range(2):
        retention.run(NOW_US)
    assert opened.log.oldest_offset == 0
    assert caplog.messages == [f"{path} is damaged, so no record is removed from the log; delete it, or register again"]
    opened.close()


def test_nothing_goes_without_settings(opened: ServerFiles) -> None:
    LogRetention(opened.log, opened.store, Keep()).run(NOW_US)
    assert opened.log.oldest_offset == 0
    assert not (opened.directory / "state-2.db").exists()
    assert not (opened.log.directory / log_retention.POLICY_FILE).exists()
    opened.close()


def test_a_pass_that_removes_nothing_writes_no_second_state(opened: ServerFiles) -> None:
    register(opened, "lake", 0)
    LogRetention(opened.log, opened.store, Keep(bytes=0)).run(NOW_US)
    assert not (opened.directory / "state-2.db").exists()
    opened.close()


def test_a_full_disk_delays_a_pass(
    opened: ServerFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    retention = LogRetention(opened.log, opened.store, Keep(bytes=0))

    def fail(self: StateGenerations) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(StateGenerations, "secure", fail)
        retention.run(NOW_US)
    assert (opened.log.oldest_offset, caplog.messages) == (0, [])
    retention.run(NOW_US)
    assert opened.log.oldest_offset > 0
    opened.close()


def test_another_error_ends_retention_with_one_line(
    opened: ServerFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    retention = LogRetention(opened.log, opened.store, Keep(bytes=0))

    def fail(self: EventLog) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(EventLog, "remove_oldest", fail)
        retention.run(NOW_US)
    retention.run(NOW_US)
    (line,) = caplog.messages
    assert line.startswith("nothing more is removed from the log until the next start: [Errno 5]")
    assert opened.log.oldest_offset == 0
    opened.close()


def test_a_reader_of_the_state_delays_a_pass(opened: ServerFiles) -> None:
    """A snapshot that another process holds prevents the state from becoming durable in its file."""
    other = apsw.Connection(str(opened.store.path), flags=apsw.SQLITE_OPEN_READONLY)
    other.execute("BEGIN")
    assert other.execute("SELECT count(*) FROM meta").fetchall() == [(1,)]
    opened.store.save({"rows": {"a": b"2"}}, 30)
    retention = LogRetention(opened.log, opened.store, Keep(bytes=0))
    retention.run(NOW_US)
    assert opened.log.oldest_offset == 0
    other.close()
    retention.run(NOW_US)
    assert opened.log.oldest_offset > 0
    opened.close()


def is_cut(log: EventLog, before: int) -> bool:
    return log.oldest_offset > before


@pytest.mark.integration
def test_a_server_removes_its_log_and_goes_on_after_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wanderbus.server")
    monkeypatch.setattr(storage, "SAVE_S", 0.05)
    monkeypatch.setattr(storage, "RETAIN_S", 0.05)
    defaults = ServerFiles.open.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "segment_bytes_max", 2_000)
    world = World(tmp_path)

    values: list[object] = []

    async def receive(agent: wanderbus.Agent, count: int) -> None:
        async with agent.subscribe(SUBJECT, keep=True) as notifications:
            while len(values) < count:
                notification = await anext(notifications)
                if notification.event["n"] != len(values) - 1:  # the last one was not acknowledged before a restart
                    values.append(notification.event["n"])

    async def story() -> None:
        for life in range(4):
            async with world.server(log_keep_bytes=0) as server, world.agent("alice") as alice:
                log = files(server).log
                oldest = log.oldest_offset
                await receive(alice, 40 * life)  # what was queued while its records were removed
                async with world.agent("bob") as bob:
                    for value in range(40 * life, 40 * life + 40):
                        await publish(bob, value)
                await until(partial(is_cut, log, oldest))
                await receive(alice, 40 * life + 20)
                assert dict(files(server).store.offsets).keys() == {"state.db", "state-2.db"}

    run(story())
    assert values == list(range(140))
    assert [line for line in caplog.messages if line.startswith("removed records before ")]
