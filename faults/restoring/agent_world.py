"""An agent whose state directory, and whose application, are restored from a copy: its stream goes back with it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import wanderbus
from faults.agents import INTERESTS, SUBJECT
from faults.restoring.cast import Consumer, Publisher
from faults.restoring.copies import copy_plainly, put_back
from faults.restoring.device_world import DeviceWorld, settled

SETTLE_S_MAX: Final = 4.0
BURST_MAX: Final = 12
OLDER_SHARE: Final = 0.2
AWAY_SHARE: Final = 0.4
COPIES_KEPT: Final = 6
READERS: Final = {"carol": "everything", "dave": "one"}


class Image(NamedTuple):
    """A copy of a device: its state directory, and what its application had committed with it."""

    path: Path
    items: int
    position: wanderbus.Position | None


class AgentWorld(DeviceWorld):
    """A publisher that stays, and consumers that commit their position together with what they have read."""

    users = ("bob", *READERS)

    def __init__(self, directory: Path, random: Random) -> None:
        super().__init__(directory, random)
        self._images: dict[str, list[Image]] = {name: [] for name in READERS}
        self._known: set[tuple[str, str, int]] = set()

    async def begin(self) -> None:
        """Start everybody."""
        self._publisher = Publisher("bob", SUBJECT, self.directory, self.server)
        publishers = {"bob": self._publisher}
        self._consumers = [
            Consumer(
                name, name, INTERESTS[interest], SUBJECT, self.directory, self.server, publishers, {}, commits=True
            )
            for name, interest in READERS.items()
        ]
        await asyncio.gather(self._publisher.come(), *(each.come() for each in self._consumers))
        # An application that has committed no position has nothing to begin from.
        await self._publisher.publish(1)
        await settled(lambda: all(each.position is not None for each in self._consumers))

    async def end(self) -> None:
        """End everybody."""
        for consumer in self._consumers:
            await consumer.go(suddenly=True)
        self._publisher.crash()

    async def try_point(self) -> None:
        """Copy one device in the middle of traffic, go on, and restore it."""
        random = self.random
        consumer = random.choice(self._consumers)
        await asyncio.gather(self._publish(), self._copy(consumer))
        for _ in range(random.randint(0, 2)):
            await self._publish()
        await asyncio.sleep(random.choice((0.0, random.uniform(0, 0.2))))
        images = self._images[consumer.name]
        image = images[-1] if random.random() > OLDER_SHARE else random.choice(images)
        await consumer.go(suddenly=random.random() < 0.5)
        if random.random() < AWAY_SHARE:
            await self._publish()
        present = consumer.state_dir.with_name("present")
        consumer.state_dir.rename(present)
        put_back(image.path, consumer.state_dir)
        consumer.go_back(image.items, image.position)
        shutil.rmtree(present)
        await consumer.come()
        self.tried.figures["restored"] += 1
        await self._publish()
        await self._judge()

    async def _publish(self) -> None:
        await self._publisher.publish(self.random.randint(1, BURST_MAX))

    async def _copy(self, consumer: Consumer) -> None:
        await asyncio.sleep(self.random.uniform(0, 0.02))
        images = self._images[consumer.name]
        path = self.directory / f"copy-{consumer.name}-{self.tried.points}"
        committed = len(consumer.items), consumer.position  # the files may only be older
        await asyncio.to_thread(copy_plainly, consumer.state_dir, path, self.random)
        images.append(Image(path, *committed))
        if len(images) > COPIES_KEPT:
            shutil.rmtree(images.pop(0).path)

    async def _judge(self) -> None:
        await settled(lambda: not any(self._silent(each) for each in self._consumers), SETTLE_S_MAX)
        for each in self._consumers:
            lost = self._silent(each)
            self._known.update((each.name, by, n) for by, n in lost)
            if lost:
                self.tried.lost(len(lost), f"point {self.tried.points}: {each.name} never learned of {lost[:6]}")

    def _silent(self, consumer: Consumer) -> list[tuple[str, int]]:
        return [each for each in consumer.silent() if (consumer.name, *each) not in self._known]
