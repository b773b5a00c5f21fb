"""An outbox that is restored from a copy, or goes on twice as the image of a device on two devices.

An event that the outbox has stored is published, or somebody is informed: by a refusal, an error, or a warning.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

import wanderbus
from faults.agents import SUBJECT
from faults.reckoning import payloads_now, published
from faults.restoring.cast import connected, crash
from faults.restoring.copies import copy_plainly, put_back
from faults.restoring.device_world import DeviceWorld, settled
from wanderbus.errors import WanderbusError

STORE_S_MAX: Final = 10.0
BURST_MAX: Final = 8
AWAY_SHARE: Final = 0.4
"""Share of the points at which the server is away for a while, so that events wait in the outbox."""
CLONE_SHARE: Final = 0.3
OLDER_SHARE: Final = 0.2
USER: Final = "bob"
TELLS: Final = "outbox"
"""Word of a warning that is about an outbox."""


class Device:
    """A device with an outbox in ``directory``."""

    def __init__(self, name: str, directory: Path, server: str, *, is_apart: bool) -> None:
        self.name = name
        self.directory = directory
        self.stored: dict[int, int] = {}
        """For each event that is stored, how often the device had been restored before."""
        self.restored = 0
        self.reported: set[int] = set()
        """Numbers of the events whose owner knows of it."""
        self.refused = 0
        """Number of events that the broker refused for good."""
        self._refusals: asyncio.Task[None] | None = None
        self.last = 0
        self._server = server
        self._is_apart = is_apart
        self._agent: wanderbus.Agent | None = None

    async def come(self) -> None:
        """Start."""
        outbox = {"outbox_file": self.directory / "out.db"} if self._is_apart else {}
        self._agent = connected(USER, self._server, self.directory, offline=True, **outbox)
        self._refusals = asyncio.create_task(self._note_refusals(self._agent))
        await self._agent.__aenter__()

    async def _note_refusals(self, agent: wanderbus.Agent) -> None:
        async for refusal in agent.outbox_refusals():
            if refusal.event["by"] == self.name:
                self.reported.add(int(str(refusal.event["n"])))
                self.refused += 1

    async def go(self, *, suddenly: bool) -> None:
        """End."""
        agent, self._agent = self._agent, None
        if agent is not None and suddenly:
            crash(agent)
        elif agent is not None:
            await agent.close()
        if self._refusals is not None:
            self._refusals.cancel()

    @property
    def waiting(self) -> int:
        """Return the number of events in the outbox of a running agent."""
        return 0 if self._agent is None else self._agent.outbox.events

    async def store(self, count: int) -> None:
        """Store events."""
        for n in range(self.last + 1, self.last + 1 + count):
            self.last = n
            assert self._agent is not None
            with contextlib.suppress(WanderbusError):  # an error names the event
                async with asyncio.timeout(STORE_S_MAX):
                    await self._agent.publish(SUBJECT, {"by": self.name, "n": n, "k": 0}, outbox=True)
                self.stored[n] = self.restored


class OutboxWorld(DeviceWorld):
    """One device, and at some points its twin."""

    users = (USER,)

    def __init__(self, directory: Path, random: Random) -> None:
        super().__init__(directory, random)
        self._is_apart = random.random() < 0.5
        self._copies: list[Path] = []
        self._devices: list[Device] = []

    async def begin(self) -> None:
        """Start the device."""
        device = Device("d", self.directory / "d", self.server.address, is_apart=self._is_apart)
        self._devices = [device]
        await device.come()

    async def end(self) -> None:
        """End all devices."""
        for device in self._devices:
            await device.go(suddenly=True)

    async def try_point(self) -> None:
        """Copy in the middle of traffic, go on, and restore or clone."""
        random, (device, *_) = self.random, self._devices
        if is_away := random.random() < AWAY_SHARE:
            await device.store(random.randint(0, BURST_MAX))
            await self.server.stop()
        copy = self.directory / f"copy-{self.tried.points}"
        await asyncio.gather(self._copy(device, copy), device.store(random.randint(1, BURST_MAX)))
        self._copies.append(copy)
        await device.store(random.randint(0, BURST_MAX))
        if not is_away and random.random() < 0.7:
            await settled(lambda: not device.waiting)
        if random.random() > OLDER_SHARE:
            copy = random.choice(self._copies)
        if random.random() < CLONE_SHARE:
            await self._clone(device, copy, is_away=is_away)
        else:
            await self._restore(device, copy, is_away=is_away)
        self._judge()

    async def _copy(self, device: Device, copy: Path) -> None:
        await asyncio.sleep(self.random.uniform(0, 0.02))
        await asyncio.to_thread(copy_plainly, device.directory, copy, self.random)

    async def _restore(self, device: Device, copy: Path, *, is_away: bool) -> None:
        await device.go(suddenly=self.random.random() < 0.5)
        present = device.directory.with_name("present")
        device.directory.rename(present)
        put_back(copy, device.directory)
        begun = len(self.warnings.lines)
        device.restored += 1
        try:
            await device.come()
            self.tried.figures["restored"] += 1
        except WanderbusError:
            self.tried.figures["refused"] += 1
            await device.go(suddenly=True)
            device.restored -= 1
            put_back(present, device.directory)
            await device.come()
        shutil.rmtree(present)
        if is_away:
            await device.store(self.random.randint(0, BURST_MAX))
            await self.server.start()
        await device.store(self.random.randint(1, BURST_MAX))
        await self._drain(device)
        if any(TELLS in line for line in self.warnings.lines[begun:]):
            device.reported.update(n for n, restored in device.stored.items() if restored < device.restored)

    async def _clone(self, device: Device, copy: Path, *, is_away: bool) -> None:
        """Let the image of the device go on beside it; both publish at once, and each drains alone at the end."""
        self.tried.figures["cloned"] += 1
        twin = Device(
            f"twin-{self.tried.points}",
            self.directory / f"twin-{self.tried.points}",
            self.server.address,
            is_apart=self._is_apart,
        )
        put_back(copy, twin.directory)
        self._devices.append(twin)
        try:
            await twin.come()
        except WanderbusError:
            self.tried.figures["refused"] += 1
            return
        if is_away:
            await self.server.start()
        await asyncio.gather(*(each.store(self.random.randint(1, BURST_MAX)) for each in (device, twin)))
        await asyncio.sleep(self.random.uniform(0, 0.3))
        for each in (device, twin):
            await each.go(suddenly=True)
        for each in (twin, device):
            await each.come()
            await self._drain(each)
            if each is twin:
                await each.go(suddenly=False)

    async def _drain(self, device: Device) -> None:
        if not await settled(lambda: not device.waiting):
            self.tried.broken(f"point {self.tried.points}: {device.waiting} events of {device.name} stay in the outbox")

    def _judge(self) -> None:
        events = Counter((event.by, event.n) for event in published(payloads_now(self.server.data / "log")))
        self.tried.figures["published"] = len(events)
        self.tried.figures["repeated"] = events.total() - len(events)
        self.tried.figures["refused_events"] = sum(device.refused for device in self._devices)
        for device in self._devices:
            lost = [n for n in device.stored if (device.name, n) not in events and n not in device.reported]
            device.reported.update(lost)
            if lost:
                where = f"point {self.tried.points}: {device.name}"
                self.tried.lost(len(lost), f"{where} has stored {lost[:6]}, which were never published")
