"""File modes of a server and of an agent: readable by the owner alone, and a warning otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.world import SUBJECT, World, fill, run
from wanderbus.errors import StorageError
from wanderbus.runtime.files.users_file import change_user
from wanderbus.server.proxy_server import ProxyServer


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Set a umask that lets files have every mode a program requests."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes_below(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): oct(path.stat().st_mode & 0o777) for path in directory.rglob("*")}


@pytest.mark.usefixtures("open_umask")
def test_created_files_are_private(world: World) -> None:
    change_user(world.directory / "users", "alice", "localhost", "secret")

    async def story() -> None:
        users, trace = world.directory / "users", world.directory / "trace"
        async with world.server(users=users, sip_trace=trace), world.agent(device="state/alice") as alice:
            await alice.publish(SUBJECT, {"n": 1}, outbox=True)
            found = modes_below(world.directory)
            wanted = {name: "0o700" if (world.directory / name).is_dir() else "0o600" for name in found}
            assert found == wanted
            assert {"data/log", "data/state.db-wal", "data/registrations.db", "state/alice/outbox.db"} <= found.keys()

    run(story())


def test_a_torn_tail_that_is_put_aside_is_for_its_owner_alone(world: World) -> None:
    async def story() -> None:
        await fill(world)
        (segment,) = (world.directory / "data" / "log").glob("*.seg")
        with segment.open("ab") as file:
            file.write(b"torn")
        async with world.server():
            pass
        assert segment.with_name(f"{segment.name}.torn").stat().st_mode & 0o777 == 0o600

    run(story())


def test_each_file_that_others_can_read_gives_one_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    users = world.directory / "the users"
    users.touch(0o600)
    users.write_text("alice:secret\n")

    async def story() -> None:
        for _ in range(2):
            async with world.server(users=users):
                pass
        assert caplog.messages == []
        data = world.directory / "data"
        data.chmod(0o750)
        users.chmod(0o604)
        async with world.server(users=users):
            pass
        assert caplog.messages == [
            f"{users} holds secrets of users and can be read by others: chmod 600 '{users}'",
            f"{data} holds events and keys and can be read by others: chmod 700 {data}",
        ]

    run(story())


def test_a_proxy_warns_of_its_directory(world: World, caplog: pytest.LogCaptureFixture) -> None:
    data = world.directory / "proxy"
    data.mkdir(0o755)

    async def story() -> None:
        async with ProxyServer(domain="localhost", data_dir=data, users={}, port=0):
            pass
        assert caplog.messages == [
            f"{data} holds registrations and keys and can be read by others: chmod 700 {data}",
        ]

    run(story())


def test_a_directory_named_like_a_segment_stops_a_server_in_one_line(world: World) -> None:
    async def story() -> None:
        await fill(world)
        path = world.directory / "data" / "log" / f"{99:020d}.seg"
        path.mkdir()
        with pytest.raises(StorageError, match=f"^{path} is a directory, not a segment; move it away"):
            async with world.server():
                pass

    run(story())
