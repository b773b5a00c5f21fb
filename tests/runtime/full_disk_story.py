"""A server on a disk of four megabytes that others fill: run by test_full_disk in a mount namespace of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import wanderbus
from wanderbus.errors import WanderbusError
from wanderbus.runtime.log.log_check import check_log

SUBJECT = "Departure"
DISK_BYTES = 4 * 2**20
RESERVE_BYTES = 512 * 2**10
PATIENCE_S = 60


def fill(disk: Path, leave_bytes: int) -> None:
    """Let another file use all but ``leave_bytes``."""
    with (disk / "other").open("ab", buffering=0) as other, contextlib.suppress(OSError):
        while (free := os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize) > leave_bytes:
            other.write(bytes(min(65_536, free - leave_bytes)))


def check(refusal: WanderbusError) -> None:
    assert "disk" in str(refusal), refusal


async def refused(agent: wanderbus.Agent, n: int) -> int:
    """Publish until the server refuses because its disk is full; return the next number."""
    while True:
        try:
            await agent.publish(SUBJECT, {"n": n})
        except WanderbusError as error:
            check(error)
            return n
        n += 1


async def accepted(agent: wanderbus.Agent, n: int) -> None:
    """Publish until the server takes it."""
    while True:
        try:
            await agent.publish(SUBJECT, {"n": n})
            return
        except WanderbusError as error:
            check(error)
            await asyncio.sleep(0.05)


async def looked_at(server: wanderbus.Server) -> None:
    """Wait until everything is saved, and the reserve was looked at after that: it will not be until there is more."""
    broker, host = server._broker, server._host
    assert broker is not None
    assert host is not None
    assert host.storage is not None
    while host.storage.files.store.offset < broker.broker.state.offset:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)


async def story(disk: Path, states: Path) -> None:
    users = {"alice": "a", "bob": "b"}
    server = wanderbus.Server(
        domain="localhost", data_dir=disk / "data", users=users, port=0, disk_reserve_bytes=RESERVE_BYTES
    )
    async with asyncio.timeout(PATIENCE_S), server:
        place = f"127.0.0.1:{server.address[1]}"
        alice = wanderbus.connect("sip:alice@localhost", password="a", server=place, state_dir=states / "alice")
        bob = wanderbus.connect("sip:bob@localhost", password="b", server=place, state_dir=states / "bob")
        async with alice, bob, alice.subscribe(SUBJECT) as notifications:
            for n in range(200):
                await bob.publish(SUBJECT, {"n": n})
            # Below the reserve: events are refused; waiting notifications are acknowledged, and that is recorded.
            fill(disk, RESERVE_BYTES // 2)
            n = await refused(bob, 200)
            for wanted in range(n):
                assert (await anext(notifications)).event["n"] == wanted
            (disk / "other").unlink()
            await accepted(bob, n)
            await looked_at(server)
            # Full to the last byte while an event is on its way: its answer comes when there is room.
            fill(disk, 0)
            late = asyncio.create_task(bob.publish(SUBJECT, {"n": n + 1, "text": "x" * 20_000}))
            await asyncio.sleep(1.5)
            assert not late.done()
            notifications.ack()
            (disk / "other").unlink()
            await late
            for wanted in (n, n + 1):
                assert (await anext(notifications)).event["n"] == wanted
    report = check_log(disk / "data" / "log")
    assert not report.damage, report.damage


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    place = Path(sys.argv[1])
    small = place / "disk"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(small)], check=True)
    asyncio.run(story(small, place))
