"""A flood at one socket waits for its turn, so that other sockets have theirs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

from wanderbus.machine import DatagramReceived, Input, Output
from wanderbus.runtime.net.driver import Driver
from wanderbus.runtime.net.sip_listening import listen_for_sip


class Recorder:
    """Takes note of the sockets of each batch."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        self.batches.append([each.socket for each in inputs if isinstance(each, DatagramReceived)])
        return []


def test_a_flood_at_the_sip_port_lets_data_through_after_a_few_datagrams() -> None:
    async def story() -> list[list[str]]:
        recorder = Recorder()
        driver = Driver(recorder, lambda output: None)
        sip, _ = listen_for_sip(driver, "sip", ("127.0.0.1", 0), tcp=False)
        data = driver.bind({"data": ("127.0.0.1", 0)})["data"]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(200):
                sender.sendto(b"flood", sip)
            sender.sendto(b"event", data)
            while sum(map(len, recorder.batches)) < 201:
                await asyncio.sleep(0)
        driver.close()
        return recorder.batches

    batches = asyncio.run(asyncio.wait_for(story(), 10))
    assert max(map(len, batches)) <= 16
    before = batches[: batches.index(["data"])]
    assert sum(map(len, before)) <= 3 * 16
