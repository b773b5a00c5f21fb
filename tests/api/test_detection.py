"""An application's failure detector decides when its agent is DISCONNECTED (SPEC G-26)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import wanderbus
from tests.api.world import SUBJECT, World, run
from tests.detection.detectors import Patient, ThreeProbes
from wanderbus import Disconnection
from wanderbus.api import rudp
from wanderbus.api.detecting import Observed
from wanderbus.errors import ConfigurationError, Unreachable

SECRET = "a secret of both sides"
QUICK_S = 0.1


@pytest.mark.parametrize("over", ["udp", "tcp"])
def test_g26_detector_of_an_application(world: World, over: str) -> None:
    """It finds within a second that the broker is gone; by default that takes 16 s, and only if something is sent."""
    seen: list[Disconnection] = []
    gone = asyncio.Event()

    async def on_disconnected(change: Disconnection) -> None:
        seen.append(change)
        gone.set()

    async def story() -> None:
        own: dict[str, Any] = {"detector": lambda: ThreeProbes(QUICK_S), "on_disconnected": on_disconnected}
        async with world.server():
            alice = await world.agent(data_transport=over, **own).__aenter__()
            await alice.publish(SUBJECT, {"n": 1})
            await asyncio.sleep(10 * QUICK_S)
            assert seen == []
        await asyncio.wait_for(gone.wait(), 5)
        async with world.server():
            await alice.publish(SUBJECT, {"n": 2})
            await alice.close()

    run(story())
    assert len(seen) == 1
    assert "the broker" in seen[0].reason


def test_g26_faulty_detector_of_an_application(world: World, caplog: pytest.LogCaptureFixture) -> None:
    class Faulty:
        def judge(self, _: Observed) -> Any:
            raise ZeroDivisionError("by nothing")

    async def story() -> None:
        async with world.server(), world.agent(detector=Faulty) as alice:
            await alice.publish(SUBJECT, {"n": 1})

    with caplog.at_level(logging.WARNING, "wanderbus.agent"):
        run(story())
    assert "detectors of the application failed 1 times so far: ZeroDivisionError: by nothing" in caplog.text


def test_g26_original_eci_has_no_detector() -> None:
    with pytest.raises(ConfigurationError, match="detector"):
        wanderbus.connect("eci://127.0.0.1:5070", detector=ThreeProbes)


def test_g26_detector_of_a_channel_of_reliable_udp() -> None:
    async def story() -> None:
        async with rudp.listen("127.0.0.1", secret=SECRET) as listener:
            opened = rudp.connect(*listener.address, secret=SECRET, detector=lambda: ThreeProbes(QUICK_S))
            channel = await opened.__aenter__()
        with pytest.raises(Unreachable, match="does not answer"):
            await asyncio.wait_for(anext(channel), 5)

    run(story())


def test_g26_detector_of_a_listener_of_reliable_udp() -> None:
    async def story() -> None:
        made: list[Patient] = []

        def make() -> Patient:
            made.append(Patient(1.0))
            return made[-1]

        async with (
            rudp.listen("127.0.0.1", secret=SECRET, detector=make) as listener,
            rudp.connect(*listener.address, secret=SECRET) as channel,
        ):
            await channel.send(b"x")
            assert await anext(await anext(listener)) == b"x"
        assert len(made) == 1

    run(story())
