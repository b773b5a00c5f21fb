"""An outbox on disk: durable, numbered over all its lives, and never quietly wrong (SPEC G-20)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.runtime.test_device_file import belong_to_somebody_else
from wanderbus.errors import Closed, StorageError
from wanderbus.runtime.files.outbox_file import OutboxFile
from wanderbus.runtime.files.outbox_writer import OutboxWriter

OWNER = "sip:alice@localhost at sip:broker@localhost"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outbox.db"


def test_stored_events_are_restored_with_their_numbers(path: Path) -> None:
    file = OutboxFile(path, OWNER)
    assert file.load() == []
    assert file.write([b"one", b"two", b"three"], []) == 1
    assert file.write([b"four"], [1, 3]) == 4
    file.close()
    again = OutboxFile(path, OWNER)
    assert again.load() == [(2, b"two"), (4, b"four")]
    assert (again.epoch, again.next) == (file.epoch, 5)
    assert path.stat().st_mode & 0o077 == 0


def test_a_backlog_gives_its_room_back(path: Path) -> None:
    file = OutboxFile(path, OWNER)
    file.write([bytes(20_000)] * 1_000, [])
    file.write([b"last"], range(1, 1_001))
    assert path.stat().st_size < 100_000
    file.close()
    again = OutboxFile(path, OWNER)
    assert again.load() == [(1_001, b"last")]
    assert (again.epoch, again.next) == (file.epoch, 1_002)
    again.close()


@pytest.mark.parametrize("stored", [b"", b"event"])
def test_a_copy_says_that_it_may_lack_events(path: Path, caplog: pytest.LogCaptureFixture, stored: bytes) -> None:
    original = OutboxFile(path, OWNER)
    original.write([stored] if stored else [], [])
    original.close()
    OutboxFile(path, OWNER).close()
    path.rename(path.with_name("moved.db"))
    OutboxFile(path.with_name("moved.db"), OWNER).close()
    assert caplog.records == []
    shutil.copy2(path.with_name("moved.db"), path)
    for _ in range(2):
        copy = OutboxFile(path, OWNER)
        assert (copy.epoch, copy.next) == (original.epoch, original.next)
        copy.close()
    (record,) = caplog.records
    assert f"the outbox {path} is a copy: events that were stored after it was made" in record.getMessage()


def test_an_outbox_of_an_earlier_version_is_no_copy(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    OutboxFile(path, OWNER).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 0")
    connection.close()
    OutboxFile(path, OWNER).close()
    assert caplog.records == []


def test_a_number_is_never_used_again(path: Path) -> None:
    file = OutboxFile(path, OWNER)
    file.write([b"one"], [])
    file.write([], [1])
    file.close()
    again = OutboxFile(path, OWNER)
    assert again.load() == []
    assert again.write([b"two"], []) == 2


def test_an_outbox_is_its_owners_until_it_is_empty(path: Path) -> None:
    file = OutboxFile(path, OWNER)
    file.write([b"one"], [])
    file.close()
    with pytest.raises(StorageError, match="holds 1 events of sip:alice"):
        OutboxFile(path, "sip:bob@localhost at sip:broker@localhost")
    own = OutboxFile(path, OWNER)
    own.write([], [1])
    own.close()
    other = OutboxFile(path, "sip:bob@localhost at sip:broker@localhost")
    assert other.epoch != file.epoch
    assert other.next == 1


def whole(path: Path) -> bytes:
    file = OutboxFile(path, OWNER)
    file.write([b"first " * 50, b"second " * 50], [])
    file.close()
    return path.read_bytes()


def opens(path: Path) -> list[tuple[int, bytes]] | str:
    """Content of the file; or its one-line error, which names the file and the remedy."""
    try:
        file = OutboxFile(path, OWNER)
    except StorageError as error:
        return str(error)
    try:
        return file.load()
    except StorageError as error:
        return str(error)
    finally:
        file.close()


def test_every_damaged_byte_is_noticed_or_harmless(path: Path) -> None:
    """SPEC G-20: an event is published as it was written, or not at all."""
    content, noticed = whole(path), 0
    expected = opens(path)
    for at in range(0, len(content), 29):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        found = opens(path)
        if isinstance(found, str):
            noticed += 1
            assert str(path) in found
            assert "\n" not in found
        else:
            assert found == expected, at
    assert noticed > 10


@pytest.mark.parametrize("change", ["epoch = epoch + 1", "next = 1", "owner = 'sip:bob@localhost'"])
def test_the_description_of_the_file_is_checked(path: Path, change: str) -> None:
    """Another epoch or an earlier number would publish events twice, or none."""
    whole(path)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE outbox SET {change}")
    found = opens(path)
    assert isinstance(found, str)
    assert "damaged" in found


@pytest.mark.parametrize("content", [b"no database", b"x" * 8192])
def test_other_files_are_refused_as_outbox(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    found = opens(path)
    assert isinstance(found, str)
    assert "move it away" in found


def test_a_file_that_was_cut_off_is_noticed(path: Path) -> None:
    content = whole(path)
    for size in (1, 100, 4096, len(content) - 4096, len(content) - 1):
        path.write_bytes(content[:size])
        assert isinstance(opens(path), str), size


def test_an_unusable_directory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be used"):
        OutboxFile(tmp_path / "missing" / "outbox.db", OWNER)


def test_a_disk_that_is_full_leaves_everything_as_it_was(path: Path) -> None:
    """A limit on the size of files stands for the disk, in a process of its own."""
    program = f"""
import resource, signal, sys
from pathlib import Path
from wanderbus.errors import StorageError
from wanderbus.runtime.files.outbox_file import OutboxFile
file = OutboxFile(Path({str(path)!r}), {OWNER!r})
file.write([b"one"], [])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
try:
    file.write([b"x" * 60_000], [])
except StorageError as error:
    print(error)
assert file.load() == [(1, b"one")]
assert file.write([b"two"], []) == 2
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "cannot be written" in done.stdout
    assert OutboxFile(path, OWNER).load() == [(1, b"one"), (2, b"two")]


def test_g20_kill_9_loses_no_durable_event(path: Path) -> None:
    program = f"""
from pathlib import Path
from wanderbus.runtime.files.outbox_file import OutboxFile
file = OutboxFile(Path({str(path)!r}), {OWNER!r})
while True:
    print(file.write([b"event"] * 3, []) + 2, flush=True)
"""
    durable = 0
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(20):
                durable = int(process.stdout.readline())
            os.kill(process.pid, signal.SIGKILL)
            durable = max([durable, *map(int, process.stdout.read().split())])
    numbers = [number for number, _ in OutboxFile(path, OWNER).load()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= durable


# The writer ---------------------------------------------------------------------------------------------------------


def test_events_during_a_commit_go_into_the_next_one(path: Path) -> None:
    removed: list[int] = []

    async def story() -> None:
        writer = OutboxWriter(OutboxFile(path, OWNER), removed.extend)
        numbers = await asyncio.gather(*(writer.append(b"%d" % value) for value in range(500)))
        assert numbers == list(range(1, 501))
        assert writer.commits == 2
        for number in range(1, 401):
            writer.remove(number)
        await writer.finish()
        assert writer.commits == 4
        writer.close()

    asyncio.run(story())
    assert removed == list(range(1, 401))
    assert [number for number, _ in OutboxFile(path, OWNER).load()] == list(range(401, 501))


def test_writes_cancelled_by_the_close_are_reported(path: Path) -> None:
    async def story() -> list[object]:
        writer = OutboxWriter(OutboxFile(path, OWNER), lambda numbers: None)
        waiting = [writer.append(b"one"), writer.append(b"two")]
        writer.close()
        return await asyncio.gather(*waiting, return_exceptions=True)

    first, second = asyncio.run(story())
    assert first == 1
    assert isinstance(second, Closed)
    assert [number for number, _ in OutboxFile(path, OWNER).load()] == [1]


def test_a_failed_commit_fails_those_in_it_alone_and_what_is_removed_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wanderbus.runtime.files import outbox_writer

    monkeypatch.setattr(outbox_writer, "RETRY_S", 0.01)
    removed: list[int] = []

    async def story() -> None:
        file = OutboxFile(path, OWNER)
        writer = OutboxWriter(file, removed.extend)
        assert await writer.append(b"one") == 1
        write, failures = file.write, [StorageError("full"), StorageError("full")]

        def failing(events: Sequence[bytes], removed: Sequence[int], *, renews: bool) -> int:
            if failures:
                raise failures.pop()
            return write(events, removed, renews=renews)

        monkeypatch.setattr(file, "write", failing)
        before = file.epoch
        writer.remove(1)
        renewed = writer.renew()
        while failures:
            await asyncio.sleep(0.005)
        assert await writer.append(b"two") == 2
        await renewed
        assert file.epoch != before
        await writer.finish()
        writer.close()

    asyncio.run(asyncio.wait_for(story(), 10))
    assert removed == [1]


@pytest.mark.parametrize("name", ["outbox.db", "outbox.db-journal"])
def test_events_that_another_user_of_the_computer_left_are_not_published(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A journal is as good as a file: SQLite would take events from it."""
    planted = OutboxFile(path, OWNER)
    planted.write([b"in another's name"], [])
    planted.close()
    belong_to_somebody_else(monkeypatch, path.with_name(name))
    with pytest.raises(StorageError, match=f"{name} belongs to another user of this computer"):
        OutboxFile(path, OWNER)


def test_events_that_stay_get_another_epoch_with_the_removal_of_the_others(path: Path) -> None:
    file = OutboxFile(path, OWNER)
    before = file.epoch
    file.write([b"one", b"two", b"three"], [])
    assert file.write([b"four"], [1], renews=True) == 4
    file.close()
    again = OutboxFile(path, OWNER)
    assert again.epoch == file.epoch != before
    assert again.next == 5
    assert again.load() == [(2, b"two"), (3, b"three"), (4, b"four")]


def test_a_renewal_that_cannot_be_written_changes_nothing(path: Path) -> None:
    file = OutboxFile(path, OWNER)
    file.write([b"one"], [])
    before = file.epoch
    file._connection.execute("PRAGMA query_only = ON")
    with pytest.raises(StorageError, match="cannot be written"):
        file.write([], [1], renews=True)
    assert file.epoch == before
    file._connection.execute("PRAGMA query_only = OFF")
    assert file.load() == [(1, b"one")]
