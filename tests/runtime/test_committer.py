"""Group commit: acknowledged records are durable, and writes reach the disk in order (DESIGN 5.1, 8)."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.runtime.committer_desk import PATIENCE_S, CommitterDesk, entries
from wanderbus.records import SERVER_LOG
from wanderbus.runtime.files.state_store import StateStore
from wanderbus.runtime.log.committer import Committer, GroupCommit
from wanderbus.runtime.log.event_log import EventLog


class Desk(CommitterDesk):
    """A committer over real files, and its reports."""

    def __init__(self, directory: Path) -> None:
        self.log = EventLog.open(directory / "log")
        self.store = StateStore.open(directory / "state.db")
        self.durable: list[int] = []
        self.failures: list[Exception] = []
        self.reports: list[str] = []
        self.committer = Committer(
            {SERVER_LOG: self.log},
            self.store,
            on_durable=lambda log, durable: self.durable.append(durable),
            on_failure=self.failures.append,
            on_full=lambda reason: self.reports.append("full"),
            on_room=lambda: self.reports.append("room"),
        )


def recorded(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> list[str]:
    """Record the name of every write to the disk, and of every report to the loop."""
    steps: list[str] = []

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            steps.append(name)
            return function(*arguments)

        return call

    for name in ("write", "fdatasync", "pwrite"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    monkeypatch.setattr(desk.store, "save", noted("save", desk.store.save))
    monkeypatch.setattr(desk.committer, "_call", noted("callback", desk.committer._call))
    return steps


def test_order_is_write_sync_mark_callback_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> list[str]:
        desk = Desk(tmp_path)
        steps = recorded(monkeypatch, desk)
        desk.committer.append(SERVER_LOG, entries(0, 3), urgent=False)
        desk.committer.save({"sessions": {"a": b"1"}}, 3)
        await desk.until(lambda: desk.store.offset == 3 and desk.durable)
        desk.close()
        assert desk.durable == [3]
        return steps

    assert asyncio.run(story()) == ["write", "fdatasync", "pwrite", "callback", "save"]


def test_entries_during_a_sync_go_into_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        syncing, go_on = threading.Event(), threading.Event()

        def slow(descriptor: int) -> None:
            syncing.set()
            assert go_on.wait(PATIENCE_S)

        monkeypatch.setattr(os, "fdatasync", slow)
        desk.committer.append(SERVER_LOG, entries(0, 1))
        assert await asyncio.to_thread(syncing.wait, PATIENCE_S)
        for offset in range(1, 9):
            desk.committer.append(SERVER_LOG, entries(offset, 1))
        assert desk.durable == []
        go_on.set()
        await desk.until(lambda: desk.durable and desk.durable[-1] == 9)
        assert (desk.durable, desk.committer.syncs) == ([1, 9], 2)
        desk.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("failing", "number"),
    [("write", errno.EIO), ("fdatasync", errno.EIO), ("fdatasync", errno.ENOSPC), ("pwrite", errno.EIO)],
)
def test_after_a_failure_nothing_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, number: int
) -> None:
    """After a sync that failed for want of room there is no retry: its unwritten pages may be lost."""

    async def story() -> None:
        desk = Desk(tmp_path)
        desk.committer.append(SERVER_LOG, entries(0, 2))
        await desk.until(lambda: desk.durable)

        def fail(*arguments: object) -> int:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, failing, fail)
        desk.committer.append(SERVER_LOG, entries(2, 2), urgent=False)
        desk.committer.save({"sessions": {"a": b"1"}}, 4)
        await desk.until(lambda: desk.failures)
        monkeypatch.undo()
        desk.committer.append(SERVER_LOG, entries(4, 2))
        await asyncio.sleep(0.02)
        desk.close()
        assert desk.durable == [2]
        assert [getattr(failure, "errno", None) for failure in desk.failures] == [errno.EIO]
        assert desk.store.offset == 0, "rows must not be ahead of the records they reflect"

    asyncio.run(story())


def test_a_store_that_fails_stops_everything_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)

        def fail(*arguments: object) -> None:
            raise apsw.CorruptError("database disk image is malformed")

        monkeypatch.setattr(desk.store, "_write", fail)
        desk.committer.save({"sessions": {"a": b"1"}}, 0)
        await desk.until(lambda: desk.failures)
        desk.committer.append(SERVER_LOG, entries(0, 1))
        await asyncio.sleep(0.02)
        desk.close()
        assert desk.durable == []

    asyncio.run(story())


def test_stopping_finishes_what_was_handed_over(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        for offset in range(0, 100, 10):
            desk.committer.append(SERVER_LOG, entries(offset, 10))
        desk.committer.save({"sessions": {"a": b"1"}}, 100)
        desk.close()
        await asyncio.sleep(0)
        assert desk.durable[-1] == 100

    asyncio.run(story())
    log, store = EventLog.open(tmp_path / "log"), StateStore.open(tmp_path / "state.db")
    assert (log.next_offset, store.offset) == (100, 100)
    store.close()
    log.close()


@pytest.mark.parametrize("then", ["urgent", "save", "stop"])
def test_entries_that_are_not_urgent_wait_for_the_next_urgent_ones(tmp_path: Path, then: str) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        desk.committer.append(SERVER_LOG, entries(0, 1))
        await desk.until(lambda: desk.durable == [1])
        for offset in (1, 2, 3):
            desk.committer.append(SERVER_LOG, entries(offset, 1), urgent=False)
        await asyncio.sleep(0.05)
        assert (desk.durable, desk.committer.syncs, desk.log.next_offset) == ([1], 1, 1)
        match then:
            case "urgent":
                desk.committer.append(SERVER_LOG, entries(4, 1))
            case "save":
                desk.committer.save({"sessions": {"a": b"1"}}, 4)
            case _:
                desk.committer.stop()
        durable = 5 if then == "urgent" else 4
        await desk.until(lambda: desk.durable == [1, durable])
        assert desk.committer.syncs == 2
        assert [frame.payload for frame in desk.log.read()] == [payload for _, _, payload in entries(0, durable)]
        if then == "save":
            await desk.until(lambda: desk.store.offset == 4)
        desk.close()

    asyncio.run(story())


class Gate:
    """Saves that wait until they may go on."""

    def __init__(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        self.saved: list[tuple[dict[str, dict[str, bytes | None]], int]] = []
        self.saving, self.go_on = threading.Event(), threading.Event()
        self.errors: list[Exception] = []
        save = desk.store.save

        def gated(changes: dict[str, dict[str, bytes | None]], offset: int) -> None:
            self.saving.set()
            assert self.go_on.wait(PATIENCE_S)
            if self.errors:
                raise self.errors.pop()
            self.saved.append((changes, offset))
            save(changes, offset)

        monkeypatch.setattr(desk.store, "save", gated)


def test_no_record_waits_for_rows_and_rows_that_come_meanwhile_are_saved_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        gate = Gate(desk, monkeypatch)
        desk.committer.append(SERVER_LOG, entries(0, 1))
        desk.committer.save({"sessions": {"a": b"1"}}, 1)
        assert await asyncio.to_thread(gate.saving.wait, PATIENCE_S)
        for offset in (1, 2, 3):
            desk.committer.append(SERVER_LOG, entries(offset, 1))
            desk.committer.save({"sessions": {"a": b"%d" % offset, f"b{offset}": b"1"}}, offset + 1)
        await desk.until(lambda: desk.durable[-1:] == [4])
        assert gate.saved == []
        threading.Timer(0.05, gate.go_on.set).start()
        desk.close()
        together = {"a": b"3", "b1": b"1", "b2": b"1", "b3": b"1"}
        assert gate.saved == [({"sessions": {"a": b"1"}}, 1), ({"sessions": together}, 4)]

    asyncio.run(story())


def test_rows_without_room_are_saved_with_those_that_came_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        gate = Gate(desk, monkeypatch)
        gate.errors += [OSError(errno.ENOSPC, "No space left on device") for _ in range(2)]
        desk.committer.append(SERVER_LOG, entries(0, 1))
        desk.committer.save({"sessions": {"a": b"1", "b": b"1"}}, 1)
        assert await asyncio.to_thread(gate.saving.wait, PATIENCE_S)
        desk.committer.append(SERVER_LOG, entries(1, 1))
        desk.committer.save({"sessions": {"a": b"2"}}, 2)
        await desk.until(lambda: desk.durable[-1:] == [2])
        gate.go_on.set()
        await desk.until(lambda: desk.store.offset == 2)
        assert gate.saved == [({"sessions": {"a": b"2", "b": b"1"}}, 2)]
        await desk.until(lambda: desk.reports[1:])
        assert desk.reports == ["full", "room"]
        desk.close()
        assert desk.failures == []

    asyncio.run(story())


def test_a_loop_that_is_gone_is_no_reason_to_fail(tmp_path: Path) -> None:
    async def begin() -> Desk:
        return Desk(tmp_path)

    desk = asyncio.run(begin())
    desk.committer.append(SERVER_LOG, entries(0, 5))
    deadline = time.monotonic() + PATIENCE_S
    while desk.log.durable_offset < 5 and time.monotonic() < deadline:
        time.sleep(0.001)
    desk.close()
    assert (desk.log.durable_offset, desk.failures) == (5, [])


def test_each_log_is_written_and_reported_by_its_name(tmp_path: Path) -> None:
    reports: list[tuple[str, int]] = []
    logs = {name: EventLog.open(tmp_path / name) for name in ("server", "channel")}
    group = GroupCommit(logs, lambda log, durable: reports.append((log, durable)))
    group.append("server", entries(0, 2))
    group.append("channel", entries(0, 3))
    group.append("server", entries(2, 1))
    group.commit()
    assert reports == [("server", 3), ("channel", 3)]
    group.append("channel", entries(3, 1))
    group.commit()
    assert reports[2:] == [("channel", 4)]
    assert [[frame.offset for frame in log.read()] for log in logs.values()] == [[0, 1, 2], [0, 1, 2, 3]]
    for log in logs.values():
        log.close()
