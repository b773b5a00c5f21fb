"""A flood at one socket waits for its turn, so that other sockets have theirs; what waits too long is discarded."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from wanderbus.machine import Address, DatagramReceived, Input, Output
from wanderbus.runtime.net.driver import Driver
from wanderbus.runtime.net.sip_listening import WAITED_S_MAX, listen_for_sip


class Recorder:
    """Takes note of the sockets of each batch."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        self.batches.append([each.socket for each in inputs if isinstance(each, DatagramReceived)])
        return []


class Keeper:
    """Keeps the datagrams."""

    def __init__(self) -> None:
        self.data: list[bytes] = []

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        self.data += [each.data for each in inputs if isinstance(each, DatagramReceived)]
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


def test_datagrams_that_waited_too_long_are_discarded_and_fresh_ones_are_not(caplog: pytest.LogCaptureFixture) -> None:
    """A server that is behind serves those who still wait, not those who have sent again or given up."""

    async def story(waited_s_max: float | None) -> list[bytes]:
        machine = Keeper()
        driver = Driver(machine, lambda output: None)
        address = driver.bind({"sip": ("127.0.0.1", 0)}, waited_s_max=waited_s_max)["sip"]
        time.sleep(0.2)  # the kernel begins to note times of arrival a moment after the first socket has asked for it
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(5):
                sender.sendto(b"old", address)
            time.sleep(0.3)
            sender.sendto(b"fresh", address)
            while b"fresh" not in machine.data:
                await asyncio.sleep(0)
        driver.close()
        return machine.data

    assert asyncio.run(asyncio.wait_for(story(0.2), 10)) == [b"fresh"]
    assert [record.args[-1] for record in caplog.records if isinstance(record.args, tuple)] == [1], "one line for all"
    assert asyncio.run(asyncio.wait_for(story(None), 10)) == [b"old"] * 5 + [b"fresh"]


def test_sip_messages_have_a_second_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float | None] = []
    bind = Driver.bind

    def record(self: Driver, addresses: Mapping[str, Address], **options: Any) -> dict[str, Address]:
        asked.append(options.get("waited_s_max"))
        return bind(self, addresses, **options)

    async def story() -> None:
        driver = Driver(Keeper(), lambda output: None)
        listen_for_sip(driver, "sip", ("127.0.0.1", 0), tcp=False)
        driver.close()

    monkeypatch.setattr(Driver, "bind", record)
    asyncio.run(story())
    assert asked == [WAITED_S_MAX]
