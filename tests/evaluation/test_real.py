"""Runs in real time: processes, agents, and addresses that really change."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from wanderbus.errors import WanderbusError
from wanderbus.evaluation.grid import Cell, Experiment, Outage
from wanderbus.evaluation.hosts import LoopbackHosts, NamespaceHosts
from wanderbus.evaluation.parts import DeliveredItem
from wanderbus.evaluation.real import RealRun, run_side_by_side

pytestmark = pytest.mark.integration

needs_namespaces = pytest.mark.skipif(NamespaceHosts.missing() is not None, reason=str(NamespaceHosts.missing()))


def left_behind() -> list[str]:
    there = Path("/run/netns")
    return [path.name for path in there.glob(f"wbeval{os.getpid()}-*")] if there.is_dir() else []


@needs_namespaces
def test_two_cells_side_by_side_in_namespaces() -> None:
    """A short sample with one change each, at twice the rate, so that 6 s are more than a buffer of 100 holds."""
    imposed = RealRun(0, Cell(100, 20), Experiment(Outage.IMPOSED, 6.0, rate_per_s=40.0, events=720), 0.5, 0)
    ours = RealRun(1, Cell(100, 20), Experiment(Outage.OURS, rate_per_s=40.0, events=480), 0.5, 0)
    told: list[str] = []
    first, second = asyncio.run(run_side_by_side([imposed, ours], NamespaceHosts(2), told.append))
    assert left_behind() == []
    assert (first.unaccounted, second.unaccounted) == (0, 0)
    assert first.measured[0].outage_s == pytest.approx(6.0, abs=0.5)
    assert first.dropped == pytest.approx(140, abs=20)
    assert second.loss_percent == 0.0
    assert second.measured[0].outage_s < 1.0
    assert told[0] == "starting servers, publisher and consumers"


def test_ours_on_the_loopback_interface() -> None:
    run = RealRun(0, Cell(100, 20), Experiment(Outage.OURS, rate_per_s=40.0, events=480), 0.5, 0)
    (found,) = asyncio.run(run_side_by_side([run], LoopbackHosts(1), lambda text: None))
    assert (found.changes, len(found.measured)) == (1, 1)
    assert (found.loss_percent, found.unaccounted) == (0.0, 0)


def test_a_process_that_fails_ends_the_run_with_its_last_words() -> None:
    """No server can listen at an address that this machine does not have."""
    hosts = LoopbackHosts(1)
    hosts.server_address = "192.0.2.1"
    run = RealRun(0, Cell(100, 20), Experiment(Outage.OURS), 0.5, 0)
    with pytest.raises(WanderbusError, match=r"server-100 ended with exit status [0-9]+: wanderbus: .*192\.0\.2\.1"):
        asyncio.run(run_side_by_side([run], hosts, lambda text: None))


@needs_namespaces
def test_nothing_is_left_behind_by_an_interruption() -> None:
    run = RealRun(0, Cell(100, 20), Experiment(Outage.IMPOSED), 0.5, 0)

    async def interrupted() -> None:
        playing = asyncio.Event()
        running = run_side_by_side([run], NamespaceHosts(1), lambda text: playing.set() if "second" in text else None)
        task = asyncio.create_task(running)
        await asyncio.wait({task, asyncio.create_task(playing.wait())}, return_when=asyncio.FIRST_COMPLETED)
        assert len(left_behind()) == 2
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(interrupted())
    assert left_behind() == []


def test_a_late_report_of_an_event_ends_the_wait() -> None:
    """A change of address may return after its first event was received, and no other event need come after that."""

    async def wait() -> float:
        run = RealRun(0, Cell(100, 20), Experiment(Outage.OURS), 0.5, 0)
        for place, at_s in enumerate((1.0, 2.0, 3.0), 1):
            run.on_line(msgspec.json.encode(DeliveredItem(at_s, place, place)).decode())
        async with asyncio.timeout(5):
            return await run._next_event(1.5)

    assert asyncio.run(wait()) == 2.0
