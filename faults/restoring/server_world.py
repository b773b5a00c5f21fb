"""Servers whose data directories are restored from copies, while agents stay, are away, crash or come later.

Each point copies the directory of a running server in the middle of its traffic, goes on, stops the server, puts a copy
back, mostly that one and sometimes an older one, and starts it again. Then every consumer has each acknowledged event,
or has read a gap or an error in its place.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final

from faults.agents import INTERESTS, PASSWORD, SUBJECT
from faults.restoring.cast import Consumer, Publisher
from faults.restoring.copies import Copy, How, copy_server, put_back
from faults.restoring.kind import Tried
from faults.restoring.servers import InProcess, OfItsOwn, Place
from faults.victim import Died
from wanderbus.errors import WanderbusError

SLOW_S: Final = 15.0
"""Time in which events arrive. A server whose copy does not know the present SIP session of an idle agent cannot call
it; the agent notices a silent server after some seconds."""

SETTLE_S_MAX: Final = 60.0
"""Time after which an event that did not arrive is lost; on a busy machine some arrive later than usual."""

LOOK_S: Final = 0.01
BURST_MAX: Final = 12
COPIES_KEPT: Final = 4
OLDER_SHARE: Final = 0.2
AWAY_SHARE: Final = 0.3
BACK_SHARE: Final = 0.8
BACKUP_SHARE: Final = 0.5
OWN_PROCESS_SHARE: Final = 0.1
"""Share of the worlds whose server is a process of its own, and is killed."""

CAST: Final = {
    "stayer": ("carol", "everything", False),
    "choosy": ("dave", "one", False),
    "committer": ("erin", "everything", True),
    "late": ("frank", "some", True),
}
"""Consumers by name: their user, their interest, and whether they commit positions."""


class ServerWorld:
    """One server. A subclass has several."""

    publishers_of: Mapping[str, str] = {"bob": "s"}
    """The server of each publisher."""
    consumers_of: Mapping[str, str] = dict.fromkeys(CAST, "s")
    """The server of each consumer."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.tried = Tried()
        self.random = random
        self.directory = directory
        self.copies: dict[str, list[Copy]] = {}
        self.users = dict.fromkeys((*self.publishers_of, *(user for user, _, _ in CAST.values())), PASSWORD)
        self.places: Mapping[str, Place] = {}
        self.publishers: dict[str, Publisher] = {}
        self.consumers: list[Consumer] = []
        self._restored: dict[str, int] = {}
        self._known: set[tuple[str, str, int]] = set()
        """Losses that were counted."""

    def make_places(self) -> Mapping[str, Place]:
        """Return the servers by name."""
        data = self.directory / "data"
        if self.random.random() < OWN_PROCESS_SHARE:
            self.tried.figures["worlds_with_processes"] += 1
            return {"s": OfItsOwn(data, self.users)}
        keep = {"log_keep_bytes": 0} if self.random.random() < 0.5 else {}
        return {"s": InProcess(data, users=self.users, **keep)}

    async def run(self, points: int) -> Tried:
        """Try ``points`` points; return what was found."""
        try:
            await self._begin()
            for point in range(points):
                await self._try_point(is_last=point == points - 1)
                self.tried.points += 1
        except (Died, TimeoutError, WanderbusError) as error:
            self.tried.broken(f"point {self.tried.points}: {type(error).__name__}: {error}")
        finally:
            for consumer in self.consumers:
                await consumer.go(suddenly=True)
            for publisher in self.publishers.values():
                publisher.crash()
            for place in self.places.values():
                await place.stop()
        return self.tried

    async def _begin(self) -> None:
        self.places = self.make_places()
        self.copies = {name: [] for name in self.places}
        await asyncio.gather(*(place.start() for place in self.places.values()))
        for name, server in self.publishers_of.items():
            self.publishers[name] = Publisher(name, SUBJECT, self.directory, self.places[server])
        for name, server in self.consumers_of.items():
            user, interest, commits = CAST[name]
            self.consumers.append(
                Consumer(
                    name,
                    user,
                    INTERESTS[interest],
                    SUBJECT,
                    self.directory,
                    self.places[server],
                    self.publishers,
                    self._restored,
                    commits=commits,
                )
            )
        await asyncio.gather(*(each.come() for each in self.publishers.values()))
        await asyncio.gather(*(each.come() for each in self.consumers))

    async def _try_point(self, *, is_last: bool) -> None:
        random = self.random
        victim = random.choice(sorted(self.places))
        how: How = "backup" if random.random() < BACKUP_SHARE else "cp"
        await self._let_some_go()
        await asyncio.gather(self._publish(), self._copy(victim, how))
        await self._let_some_go()
        await self._bring(BACK_SHARE / 2)
        for _ in range(random.randint(1, 3)):
            await self._publish()
        await asyncio.sleep(random.choice((0.0, random.uniform(0, 0.2))))
        copies = self.copies[victim]
        copy = copies[-1] if random.random() > OLDER_SHARE else random.choice(copies)
        await self._restore(victim, copy)
        for _ in range(random.randint(1, 2)):
            await self._publish()
        await self._bring(1.0 if is_last else BACK_SHARE)
        await self._publish()
        await self._judge()

    async def _publish(self) -> None:
        await asyncio.gather(
            *(publisher.publish(self.random.randint(1, BURST_MAX)) for publisher in self.publishers.values())
        )

    async def _copy(self, name: str, how: How) -> None:
        await asyncio.sleep(self.random.uniform(0, 0.02))
        copies = self.copies[name]
        target = self.directory / f"copy-{name}-{self.tried.points}"
        copies.append(await asyncio.to_thread(copy_server, self.places[name].data, target, how, self.random))
        self.tried.figures[f"copies_{how}"] += 1
        if len(copies) > COPIES_KEPT:
            shutil.rmtree(copies.pop(0).path)

    async def _restore(self, name: str, copy: Copy) -> None:
        """Put a copy back; data that the server refuses are replaced by the present ones, and the refusal counts."""
        place = self.places[name]
        await place.stop()
        self._restored.update((by, publisher.last) for by, publisher in self.publishers.items())
        present = place.data.with_name("present")
        place.data.rename(present)
        put_back(copy.path, place.data)
        try:
            await place.start()
            self.tried.figures["restored"] += 1
        except (Died, WanderbusError) as error:
            self.tried.figures["refused"] += 1
            if copy.how == "backup":
                self.tried.broken(f"a backup is refused: {error}")
            put_back(present, place.data)
            await place.start()
        shutil.rmtree(present)

    async def _let_some_go(self) -> None:
        for consumer in self.consumers:
            if consumer.is_present and self.random.random() < AWAY_SHARE:
                await consumer.go(suddenly=self.random.random() < 0.5)

    async def _bring(self, share: float) -> None:
        await asyncio.gather(
            *(each.come() for each in self.consumers if not each.is_present and self.random.random() < share)
        )

    async def _judge(self) -> None:
        present = [each for each in self.consumers if each.is_present]
        began = time.monotonic()
        while time.monotonic() < began + SETTLE_S_MAX and any(self._silent(each) for each in present):
            await asyncio.sleep(LOOK_S)
        self.tried.figures["slow"] += time.monotonic() > began + SLOW_S
        for each in present:
            lost = self._silent(each)
            self._known.update((each.name, by, n) for by, n in lost)
            if lost:
                self.tried.lost(len(lost), f"point {self.tried.points}: {each.name} never learned of {lost[:6]}")
        ids = [identity for publisher in self.publishers.values() for identity in publisher.acknowledged.values()]
        if twice := len(ids) - len(set(ids)):
            self.tried.figures["repeated_ids"] += twice
            self.tried.broken(f"point {self.tried.points}: {twice} ids were given twice")
            for publisher in self.publishers.values():
                publisher.forget_ids()

    def _silent(self, consumer: Consumer) -> list[tuple[str, int]]:
        return [each for each in consumer.silent() if (consumer.name, *each) not in self._known]
