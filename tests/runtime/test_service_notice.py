"""Notices to the service manager."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.world import run
from wanderbus.runtime.service_notice import announced, notify

pytestmark = pytest.mark.integration


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket of a service manager, which the environment names."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@wanderbus-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(name.replace("@", "\0"))
        notices.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield notices


def test_a_process_announces_that_it_is_ready_alive_and_about_to_end(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")

    async def story() -> None:
        async with announced():
            assert await asyncio.to_thread(manager.recv, 99) == b"READY=1"
            assert [await asyncio.to_thread(manager.recv, 99) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        while (notice := await asyncio.to_thread(manager.recv, 99)) == b"WATCHDOG=1":
            pass
        assert notice == b"STOPPING=1"
        await asyncio.sleep(0)

    run(story())


@pytest.mark.parametrize(("usec", "pid"), [("", ""), ("0", ""), ("x", ""), ("20000", "1")])
def test_a_manager_that_does_not_watch_gets_no_sign_of_life(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch, usec: str, pid: str
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.setenv("WATCHDOG_PID", pid)

    async def story() -> None:
        async with announced():
            await asyncio.sleep(0.05)

    run(story())
    assert [manager.recv(99), manager.recv(99)] == [b"READY=1", b"STOPPING=1"]


@pytest.mark.parametrize("name", ["", "relative", "/nobody/here", "@nobody-here"])
def test_a_manager_that_cannot_be_reached_is_no_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    notify("READY=1")
