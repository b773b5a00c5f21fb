"""A full disk ends nothing: pending writes wait, and continue when there is room (SPEC T-01, X22)."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.runtime.committer_desk import CommitterDesk, entries
from wanderbus.errors import StorageError
from wanderbus.records import SERVER_LOG
from wanderbus.runtime.files.disk import is_full, replace_file
from wanderbus.runtime.files.state_store import StateStore
from wanderbus.runtime.log import committer as committing
from wanderbus.runtime.log.committer import Committer
from wanderbus.runtime.log.event_log import EventLog
from wanderbus.segments import HEADER


class Desk(CommitterDesk):
    """A committer over real files, whose disk the test can fill, and its reports."""

    def __init__(self, directory: Path, *, reserve_bytes: int = 0, segment_bytes_max: int = 2**20) -> None:
        self.log = EventLog.open(directory / "log", segment_bytes_max=segment_bytes_max)
        self.store = StateStore.open(directory / "state.db")
        self.said: list[Any] = []
        self.durable = 0
        self.committer = Committer(
            {SERVER_LOG: self.log},
            self.store,
            on_durable=self._durable,
            on_failure=self.said.append,
            on_full=lambda reason: self.said.append("full"),
            on_room=lambda: self.said.append("room"),
            reserve_bytes=reserve_bytes,
        )

    def _durable(self, log: str, durable: int) -> None:
        self.durable = durable


def full(number: int = errno.ENOSPC) -> Callable[..., Any]:
    def refuse(*arguments: Any, **more: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("failing", ["write", "pwrite"])
def test_submitted_records_wait_and_continue_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, number: int
) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        desk.committer.append(SERVER_LOG, entries(0, 2))
        await desk.until(lambda: desk.durable == 2)
        with monkeypatch.context() as patch:
            patch.setattr(os, failing, full(number))
            desk.committer.append(SERVER_LOG, entries(2, 2))
            desk.committer.save({"sessions": {"a": b"1", "b": b"1", "c": b"1"}}, 4)
            await desk.until(lambda: desk.said)
            desk.committer.append(SERVER_LOG, entries(4, 3))
            desk.committer.save({"sessions": {"a": b"2", "b": None}}, 7)
            await asyncio.sleep(0.1)
            assert desk.durable == 2
            assert desk.store.offset == 0
        await desk.until(lambda: desk.durable == 7 and desk.store.offset == 7 and len(desk.said) == 2)
        assert desk.said == ["full", "room"]
        assert [frame.payload for frame in desk.log.read()] == [payload for _, _, payload in entries(0, 7)]
        assert list(desk.store.load("sessions")) == [("a", b"2"), ("c", b"1")]
        desk.close()

    asyncio.run(story())


@pytest.mark.parametrize(("failing", "number"), [("replace", errno.ENOSPC), ("open", errno.EMFILE)])
def test_a_segment_for_which_there_is_no_room_is_begun_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, number: int
) -> None:
    """The part of the batch that did not fit is written later, and no file remains of an incomplete segment."""
    size = len(HEADER) + 3 * len(b"0" * 34)

    async def story() -> None:
        desk = Desk(tmp_path, segment_bytes_max=size)
        with monkeypatch.context() as patch:
            patch.setattr(os, failing, full(number))
            desk.committer.append(SERVER_LOG, entries(0, 8))
            await desk.until(lambda: desk.said)
            assert len(list((tmp_path / "log").glob("*.seg"))) == 1
        await desk.until(lambda: desk.durable == 8)
        assert [frame.offset for frame in desk.log.read()] == list(range(8))
        desk.close()

    asyncio.run(story())
    log = EventLog.open(tmp_path / "log")
    assert log.next_offset == 8
    log.close()


def test_a_state_file_without_room_does_not_hold_up_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)

        def refuse(*arguments: object) -> None:
            raise apsw.FullError("database or disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(desk.store, "_write", refuse)
            desk.committer.save({"sessions": {"a": b"1"}}, 0)
            await desk.until(lambda: desk.said)
            desk.committer.append(SERVER_LOG, entries(0, 3))
            await desk.until(lambda: desk.durable == 3)
        await desk.until(lambda: desk.said == ["full", "room"])
        assert list(desk.store.load("sessions")) == [("a", b"1")]
        desk.close()

    asyncio.run(story())


def test_a_state_file_that_cannot_grow_is_as_before(tmp_path: Path) -> None:
    """A bound in pages makes SQLite fail as it does on a full disk."""
    store = StateStore.open(tmp_path / "state.db")
    store.save({"sessions": {"a": b"1"}}, 1)
    store._connection.execute("PRAGMA max_page_count = 8")
    with pytest.raises(OSError, match="No space left") as caught:
        store.save({"sessions": {"a": b"2", "b": bytes(100_000)}, "devices": {"d": b"1"}}, 2)
    assert is_full(caught.value)
    assert (list(store.load("sessions")), store.offset) == ([("a", b"1")], 1)
    store._connection.execute("PRAGMA max_page_count = 1000")
    store.save({"sessions": {"a": b"2", "b": bytes(100_000)}, "devices": {"d": b"1"}}, 2)
    assert list(store.load("devices")) == [("d", b"1")]
    store.close()


@pytest.mark.parametrize("then", ["save", "many records"])
def test_below_the_reserve_it_is_full_though_everything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    async def story() -> None:
        free = [10_000]
        monkeypatch.setattr(committing, "free_bytes", lambda directory: free[0])
        desk = Desk(tmp_path, reserve_bytes=1_000)
        free[0] = 999
        desk.committer.append(SERVER_LOG, entries(0, 1))
        await desk.until(lambda: desk.durable == 1)
        await asyncio.sleep(0.02)
        assert desk.said == [], "not for one record"
        if then == "save":
            desk.committer.save({"sessions": {"a": b"1"}}, 1)
        else:
            desk.committer.append(SERVER_LOG, [(1, 1, bytes(1_000 // committing.RESERVE_CHECKS))])
        await desk.until(lambda: desk.said == ["full"])
        next_offset = desk.log.next_offset
        free[0] = 1_249
        desk.committer.append(SERVER_LOG, entries(next_offset, 1))
        await desk.until(lambda: desk.durable == next_offset + 1)
        assert desk.said == ["full"], "at the edge it would change with every record"
        free[0] = 1_250
        await desk.until(lambda: desk.said == ["full", "room"])
        desk.close()

    asyncio.run(story())


def test_a_disk_that_is_full_at_the_start_is_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(committing, "free_bytes", lambda directory: 5)
        desk = Desk(tmp_path, reserve_bytes=6)
        await desk.until(lambda: desk.said == ["full"])
        desk.close()

    asyncio.run(story())


def test_stopping_does_not_wait_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        monkeypatch.setattr(os, "write", full())
        desk.committer.append(SERVER_LOG, entries(0, 1))
        await desk.until(lambda: desk.said)
        await asyncio.to_thread(desk.close)
        assert desk.said == ["full"]
        assert desk.durable == 0

    asyncio.run(story())


def test_memory_is_bounded_while_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(committing, "UNWRITTEN_BYTES_MAX", 100)
        desk = Desk(tmp_path)
        monkeypatch.setattr(os, "write", full())
        desk.committer.append(SERVER_LOG, entries(0, 10))
        await desk.until(lambda: desk.said == ["full"])
        desk.committer.append(SERVER_LOG, entries(10, 1))
        await desk.until(lambda: len(desk.said) == 2)
        assert isinstance(desk.said[1], StorageError)
        assert "free some space and start again" in str(desk.said[1])
        monkeypatch.undo()
        desk.close()

    asyncio.run(story())


def test_a_small_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "server.json"
    replace_file(os, path, b"old")
    monkeypatch.setattr(os, "write", full())
    with pytest.raises(OSError, match="No space left"):
        replace_file(os, path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"


@pytest.mark.integration
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk of its own")
def test_a_server_on_a_full_disk_refuses_and_heals_without_a_restart(tmp_path: Path) -> None:
    """In a process of its own, whose mounts no other process sees."""
    line = ["unshare", "--mount", sys.executable, "-m", "tests.runtime.full_disk_story", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    if "unshare failed" in done.stderr or "permission denied" in done.stderr.lower():
        pytest.skip(f"no mounts here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the disk is full") == 2
    assert done.stderr.count("the disk has room again") == 2
