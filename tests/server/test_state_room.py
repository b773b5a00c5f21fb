"""Room of a backlog in the state files of a running server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.world import SUBJECT, World, files, run, take, until
from wanderbus.runtime.files.sqlite_room import SPARE_BYTES_MAX
from wanderbus.server import storage

pytestmark = pytest.mark.integration

EVENTS = 1_000
TEXT = "x" * 20_000


def test_a_backlog_that_was_read_gives_its_room_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server does this by itself, and what follows is delivered before and after a restart."""
    monkeypatch.setattr(storage, "SAVE_S", 0.05)
    monkeypatch.setattr(storage, "RETAIN_S", 0.05)
    world = World(tmp_path)

    async def story() -> None:
        async with world.server() as server, world.agent("alice") as alice:
            path = files(server).store.path
            async with world.agent("bob") as bob, bob.subscribe(SUBJECT, keep=True):
                pass
            for number in range(EVENTS):
                await alice.publish(SUBJECT, {"n": number, "text": TEXT})
            await until(lambda: path.stat().st_size > 3 * SPARE_BYTES_MAX // 2)
            async with world.agent("bob") as bob, bob.subscribe(SUBJECT, keep=True) as notifications:
                found = await take(notifications, EVENTS)
                assert [each.event["n"] for each in found] == list(range(EVENTS))
                await until(lambda: path.stat().st_size <= SPARE_BYTES_MAX + 2**20)
            await alice.publish(SUBJECT, {"n": EVENTS, "text": TEXT})
        async with world.server(), world.agent("bob") as bob, bob.subscribe(SUBJECT, keep=True) as notifications:
            assert [each.event["n"] for each in await take(notifications, 1)] == [EVENTS]

    run(story())
