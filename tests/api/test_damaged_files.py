"""Each file of a server and of an agent, damaged in each way: the loss, and the log line about it (SPEC T-01)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.api.world import SUBJECT, World, crash, everything_is_there, fill, run, stored
from wanderbus.errors import StorageError

SEGMENT = f"log/{0:020d}.seg"


def change_a_byte(path: Path) -> None:
    """Change one byte that holds data; the middle of a database may be unused."""
    data = bytearray(path.read_bytes())
    marks = {"state.db": b"Departure", "registrations.db": b"bob@localhost", "outbox.db": b"Departure"}
    data[data.index(marks[path.name]) if path.name in marks else len(data) // 2] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def make_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: list[Callable[[Path], None]] = [change_a_byte, truncate, empty, make_a_directory]

MADE_GOOD = {
    "state.db": "the state is rebuilt from the log",
    "registrations.db": "register again",
    "server.json": "from the log",
    "log/durable": "recreated it",
}
"""Files of the data directory that the server can do without, and its line about one."""

REFUSED = {
    "reset.key": "delete it; the next start creates another",
    "sip.key": "delete it; the next start creates another",
    "data-channel.pem": "delete it; the next start creates another",
    SEGMENT: "restore it from a copy, or move the whole directory away",
}
"""Damages after which only the owner can continue, and the remedy in the error."""


async def leave_everything(world: World) -> None:
    """Leave queued notifications, and the registration of a device that crashed."""
    await fill(world)
    async with world.server():
        crash(await world.agent("bob").__aenter__())


def lines_about(path: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if str(path) in line]


@pytest.mark.parametrize("damage", DAMAGES[:3])
@pytest.mark.parametrize("name", MADE_GOOD)
def test_a_server_repairs_damaged_files_and_logs_one_line(
    world: World, caplog: pytest.LogCaptureFixture, name: str, damage: Callable[[Path], None]
) -> None:
    async def story() -> None:
        await leave_everything(world)
        path = stored(world, name)
        damage(path)
        await everything_is_there(world)
        (line,) = lines_about(path, caplog)
        assert MADE_GOOD[name] in line
        assert "\n" not in line
        caplog.clear()
        async with world.server():
            assert lines_about(path, caplog) == []

    run(story())


@pytest.mark.parametrize(
    ("name", "damage", "remedy"),
    [
        *((name, damage, remedy) for name, remedy in REFUSED.items() for damage in DAMAGES[:3]),
        *((name, make_a_directory, "") for name in (*MADE_GOOD, *REFUSED, "log/lock")),
    ],
)
def test_a_server_refuses_in_one_line_what_it_cannot_make_good(
    world: World, name: str, damage: Callable[[Path], None], remedy: str
) -> None:
    async def story() -> None:
        await leave_everything(world)
        path = stored(world, name)
        damage(path)
        lines = set()
        for _ in range(2):
            with pytest.raises(StorageError) as caught:
                async with world.server():
                    pass
            lines.add(str(caught.value))
        (line,) = lines
        assert str(path) in line
        assert remedy in line
        assert "\n" not in line

    run(story())


async def leave_an_outbox(world: World) -> None:
    """Leave a device, and an event in its outbox that no server has."""
    await fill(world)
    async with world.agent("bob", offline=True, drain_s=0.1) as bob:
        await bob.publish(SUBJECT, {"n": 4}, outbox=True)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["device", "outbox.db"])
def test_an_agent_refuses_in_one_line_a_file_that_is_damaged(
    world: World, caplog: pytest.LogCaptureFixture, name: str, damage: Callable[[Path], None]
) -> None:
    """An empty file may come from an interrupted creation: it is created again, with one log line."""

    async def story() -> None:
        await leave_an_outbox(world)
        path = world.directory / "bob" / name
        damage(path)
        agent = world.agent("bob", offline=True, drain_s=0.1)
        if damage is empty:
            async with agent:
                pass
            (line,) = lines_about(path, caplog)
            assert "is empty: " in line
            return
        with pytest.raises(StorageError) as caught:
            await agent.__aenter__()
        assert str(path) in str(caught.value) or (name, damage) == ("device", make_a_directory)
        assert "\n" not in str(caught.value)

    run(story())
