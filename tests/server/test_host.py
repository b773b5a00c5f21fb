"""A role that only this test has: the interface of roles is enough to start, serve, write, restart and fail."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.api.world import SUBJECT, World, everything_is_there, fill, publish, run, until
from wanderbus import records
from wanderbus.broker.messages import Append, Appended
from wanderbus.broker.state.tables import RowTable, Stored
from wanderbus.errors import ConfigurationError, StorageError, Unreachable, WanderbusError
from wanderbus.machine import Address, DatagramReceived, Input, Machine, Output, SendDatagram
from wanderbus.runtime.files import users_file
from wanderbus.runtime.files.disk import Disk
from wanderbus.runtime.log import event_log
from wanderbus.server import host as host_module
from wanderbus.server import storage
from wanderbus.server.host import DataDirectory, Host
from wanderbus.server.log_retention import LogRetention
from wanderbus.server.ports import Bound, Port, UdpPort
from wanderbus.server.role import HostOffer, Role, StatefulRole
from wanderbus.server.server import Server

pytestmark = pytest.mark.integration

SOCKET = "echo"


class Echoed(msgspec.Struct):
    """One text that was returned."""

    text: str


class EchoState:
    """Texts that one echo server has returned, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.offset = 0
        self.echoes: RowTable[Echoed] = RowTable(f"echoes_{name}", Echoed)

    @property
    def tables(self) -> Sequence[Stored]:
        return [self.echoes]

    @property
    def texts(self) -> list[str]:
        return [row.text for _, row in sorted(self.echoes.items())]

    def load(self, rows: Mapping[str, Iterable[tuple[str, bytes]]], offset: int) -> None:
        self.echoes.load(rows[self.echoes.name])
        self.offset = offset

    def apply(self, offset: int, record: records.AnyRecord) -> None:
        assert offset == self.offset
        self.offset = offset + 1
        match record:
            case records.Forgotten(subscriptions=(self.name, text)):
                self.echoes.put(f"{len(self.echoes):09}", Echoed(text))

    def first_needed(self) -> dict[str, int]:
        return {}

    def changes(self) -> Mapping[str, Mapping[str, bytes | None]]:
        changed = self.echoes.changes()
        return {self.echoes.name: changed} if changed else {}


class EchoMachine:
    """Returns each datagram with its number, once it is in the log; the word ``bug`` is one."""

    def __init__(self, state: EchoState) -> None:
        self._state = state
        self._waiting: list[tuple[int, Address, bytes]] = []

    def begin(self) -> list[Output]:
        return [self._write("")]

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        outputs: list[Output] = []
        for given in inputs:
            match given:
                case DatagramReceived(source=source, data=data):
                    text = data.decode()
                    assert text != "bug"
                    outputs.append(self._write(text))
                    answer = f"{len(self._state.echoes)} {text}".encode()
                    self._waiting.append((self._state.offset, source, answer))
                case Appended(durable=durable):
                    outputs += [SendDatagram(SOCKET, to, data) for at, to, data in self._waiting if at <= durable]
                    self._waiting = [each for each in self._waiting if each[0] > durable]
        return outputs

    def _write(self, text: str) -> Append:
        # A record without an effect on a broker.
        record = records.Forgotten(at_us=1, subscriptions=(self._state.name, text))
        offset = self._state.offset
        self._state.apply(offset, record)
        return Append(records.SERVER_LOG, ((offset, 1, records.encode_record(record)),))


class EchoRole(StatefulRole):
    """An echo server on one UDP socket."""

    name = "echo"

    def __init__(self, name: str = "a", port: int | None = None, *, ready: WanderbusError | None = None) -> None:
        self.state = EchoState(name)
        self.address: Address = ("127.0.0.1", 0)
        self.calls: list[str] = []
        self._port = port
        self._ready = ready

    def make_state(self, server: str) -> EchoState:
        self.state = EchoState(self.state.name)
        return self.state

    async def open(self, offer: HostOffer) -> None:
        assert offer.files is not None
        self.calls.append("open")

    def ports(self) -> Sequence[Port]:
        return [UdpPort(name=SOCKET, host="127.0.0.1", port=self._port, setting=f"echo_{self.state.name}_port")]

    def port_error(self, port: Port, error: OSError) -> ConfigurationError:
        return ConfigurationError(f"{port.setting}: {port.host}:{port.port} cannot be used: {error.strerror}")

    def make_machine(self, bound: Mapping[str, Bound]) -> Machine:
        self.address = bound[SOCKET].address
        self.machine = EchoMachine(self.state)
        return self.machine

    def begin(self, now: float) -> Sequence[Output]:
        self.calls.append("begin")
        return self.machine.begin()

    async def until_ready(self) -> None:
        if self._ready is not None:
            raise self._ready

    def close(self) -> None:
        self.calls.append("close")


def host(directory: Path, *roles: EchoRole) -> Host:
    return Host(roles, directory=DataDirectory(directory / "data", "echoes"))


async def echoed(role: EchoRole, text: str) -> str:
    """Send ``text`` to a role and return the answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.setblocking(False)
        asking.connect(role.address)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(asking, text.encode())
        return (await loop.sock_recv(asking, 1_000)).decode()


def test_a_role_starts_serves_and_survives_a_restart(tmp_path: Path) -> None:
    """At the same port, with its state: also if that was not saved, and the log alone has it."""

    async def story() -> None:
        addresses, expected = set(), []
        for life in range(3):
            role = EchoRole()
            running = host(tmp_path, role)
            await running.start()
            expected += ["", f"life {life}"]
            assert await echoed(role, f"life {life}") == f"{len(expected)} life {life}"
            assert role.state.texts == expected
            addresses.add(role.address)
            await running.close()
            assert role.calls == ["open", "begin", "close"]
            if life == 1:
                for file in (tmp_path / "data").glob("state.db*"):
                    file.unlink()
        assert len(addresses) == 1

    run(story())


def test_two_roles_share_one_log(tmp_path: Path) -> None:
    async def story() -> None:
        for life in (1, 2):
            roles = [EchoRole("a"), EchoRole("b")]
            running = host(tmp_path, *roles)
            await running.start()
            for number in range(3):
                for role in roles:
                    assert await echoed(role, "x") == f"{(life - 1) * 4 + number + 2} x"
            assert roles[0].state.offset == roles[1].state.offset == life * 8
            assert roles[0].address != roles[1].address
            await running.close()

    run(story())


def test_t05_the_log_keeps_what_the_role_that_is_furthest_behind_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed: list[Mapping[str, int]] = []
    monkeypatch.setattr(LogRetention, "run", lambda self, now_us, history: needed.append(history.needed))
    offsets = {"a": {"both": 3, "one": 8}, "b": {"both": 7}, "c": {"both": 5, "other": 1}}
    monkeypatch.setattr(EchoState, "first_needed", lambda self: offsets[self.name])

    async def story() -> None:
        running = host(tmp_path, *map(EchoRole, offsets))
        await running.start()
        await until(lambda: bool(needed))
        await running.close()

    run(story())
    assert needed[0] == {"both": 3, "one": 8, "other": 1}


class ServerWithEcho(Server):
    """A whole server with one role more."""

    def _make_roles(self) -> list[Role]:
        self.echo = EchoRole()
        return [*super()._make_roles(), self.echo]


def test_a_role_shares_the_log_with_a_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    monkeypatch.setattr("wanderbus.Server", ServerWithEcho)

    async def story() -> None:
        await fill(world)
        async with world.server() as server, world.agent("bob") as bob:
            assert isinstance(server, ServerWithEcho)
            for value in range(20):
                await asyncio.gather(publish(bob, value), echoed(server.echo, f"{value}"))
        await everything_is_there(world)
        async with world.server() as server, world.agent("alice") as alice:
            assert isinstance(server, ServerWithEcho)
            texts = [text for text in server.echo.state.texts if text]
            assert texts == [str(value) for value in range(20)]
            async with alice.subscribe(SUBJECT, keep=True) as notifications:
                assert [(await anext(notifications)).event["n"] for _ in range(20)] == list(range(20))

    run(story())


def test_a_failure_of_the_disk_ends_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def story() -> None:
        role = EchoRole()
        running = host(tmp_path, role)
        await running.start()
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fail)
            lost = asyncio.create_task(echoed(role, "lost"))
            with pytest.raises(StorageError, match=r"writing to .*data failed, nothing more is acknowledged"):
                await running.run()
            assert not lost.done()
            lost.cancel()
            await asyncio.gather(lost, return_exceptions=True)
            await running.close()

    run(story())


def test_a_disk_that_is_full_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, entries: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def story() -> None:
        monkeypatch.setattr(event_log.EventLog, "append", fail)
        monkeypatch.setattr(storage, "START_S_MAX", 0.2)
        with pytest.raises(StorageError, match="the disk is full; free some space and start again: No space left"):
            await host(tmp_path, EchoRole()).start()
        assert not (tmp_path / "data").exists()

    run(story())


def test_a_disk_that_writes_nothing_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(descriptor: int) -> None:
        time.sleep(1.0)

    async def story() -> None:
        monkeypatch.setattr(os, "fdatasync", hang)
        monkeypatch.setattr(storage, "START_S_MAX", 0.2)
        with pytest.raises(StorageError, match=r"nothing was written to .*data in 0\.2 s; check the disk"):
            await host(tmp_path, EchoRole()).start()

    run(story())


def test_a_role_may_write_nothing_when_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(EchoMachine, "begin", lambda self: [])
        role = EchoRole()
        running = host(tmp_path, role)
        await running.start()
        assert await echoed(role, "x") == "1 x"
        await running.close()

    run(story())


def test_a_port_in_use_is_an_error_of_the_role(tmp_path: Path) -> None:
    async def story() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as squatter:
            squatter.bind(("127.0.0.1", 0))
            first, second = EchoRole("a"), EchoRole("b", squatter.getsockname()[1])
            with pytest.raises(ConfigurationError, match=r"echo_b_port: .*Address already in use"):
                await host(tmp_path, first, second).start()
            assert (first.calls, second.calls) == (["open", "begin", "close"], ["open", "close"])
            assert not (tmp_path / "data").exists()

    run(story())


def test_a_role_that_is_never_ready_ends_the_start(tmp_path: Path) -> None:
    async def story() -> None:
        role = EchoRole("b", ready=Unreachable("nobody answers"))
        with pytest.raises(Unreachable, match="nobody answers"):
            await host(tmp_path, EchoRole("a"), role).start()
        assert role.calls[-1] == "close"
        assert not (tmp_path / "data").exists()

    run(story())


def test_a_start_that_fails_keeps_the_data_of_earlier_ones(tmp_path: Path) -> None:
    async def story() -> None:
        for life in range(3):
            role = EchoRole(ready=Unreachable("nobody answers") if life == 1 else None)
            running = host(tmp_path, role)
            if life == 1:
                with pytest.raises(Unreachable):
                    await running.start()
            else:
                await running.start()
                await running.close()
        assert role.state.texts == ["", "", ""]

    run(story())


def test_a_defect_in_a_role_that_keeps_a_state_ends_the_host(tmp_path: Path) -> None:
    """The log can be trusted: everything before the defect is there at the next start."""

    async def story() -> None:
        role = EchoRole()
        running = host(tmp_path, role)
        await running.start()
        assert await echoed(role, "first") == "2 first"
        lost = asyncio.create_task(echoed(role, "bug"))
        with pytest.raises(WanderbusError, match=r"the echo failed .* start the server again: the log has what"):
            await running.run()
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        await running.close()
        again = EchoRole()
        running = host(tmp_path, again)
        await running.start()
        assert again.state.texts == ["", "first", ""]
        await running.close()

    run(story())


def test_a_file_of_users_is_followed_also_if_it_was_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(users_file, "LOOK_S", 0.01)
        path = tmp_path / "users"
        path.write_text("")
        users = users_file.Users(path, domain="localhost", taken=None)
        running = Host([EchoRole()], directory=DataDirectory(tmp_path / "data", "echoes"), users=users)
        await running.start()
        path.write_text("alice:secret\n")
        await until(lambda: "alice" in users)
        await running.close()

    run(story())


def test_a_directory_that_another_server_makes_at_the_same_time_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(disk: Disk, directory: Path, mode: int) -> None:
        directory.mkdir()
        (directory / "other").touch()
        disk.mkdir(directory, mode)

    async def story() -> None:
        monkeypatch.setattr(host_module, "make_directory", make)
        with pytest.raises(StorageError, match=r"the data directory .* cannot be used: File exists"):
            await host(tmp_path, EchoRole()).start()
        assert (tmp_path / "data" / "other").exists()

    run(story())
