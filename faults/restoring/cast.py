"""Publishers and consumers of a world, as applications are written: they connect again, and note what they read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import wanderbus
from faults.agents import DOMAIN, PASSWORD, Interest
from faults.restoring.servers import Place
from faults.restoring.stream import Item, silent_losses
from wanderbus.errors import Closed, WanderbusError

RETRY_S: Final = 0.05
CONNECT_S_MAX: Final = 20.0
PUBLISH_S_MAX: Final = 20.0


def crash(agent: wanderbus.Agent) -> None:
    """End an agent as ``kill -9`` does: its sockets and locks are released, and no message is sent."""
    agent._shut(Closed("crashed"))


def connected(user: str, address: str, state_dir: Path, **more: Any) -> wanderbus.Agent:
    """Return an agent of a user at a server."""
    given: dict[str, Any] = {"password": PASSWORD, "server": address, "state_dir": state_dir, **more}
    return wanderbus.connect(f"sip:{user}@{DOMAIN}", connect_s_max=CONNECT_S_MAX, **given)


class Publisher:
    """A publisher of numbered events, one after another in bursts."""

    def __init__(self, name: str, subject: str, directory: Path, place: Place) -> None:
        self.name = name
        self.acknowledged: dict[int, str] = {}
        """Ids of the acknowledged events, by number."""
        self.last = 0
        """Number of the last event that was published."""
        self._subject = subject
        self._state_dir = directory / name
        self._place = place
        self._agent: wanderbus.Agent | None = None

    async def come(self) -> None:
        """Connect."""
        self._agent = connected(self.name, self._place.address, self._state_dir)
        await self._agent.__aenter__()

    def forget_ids(self) -> None:
        """Forget which ids the events had, so that a repetition counts once."""
        self.acknowledged = {n: f"{self.name} {n}" for n in self.acknowledged}

    def crash(self) -> None:
        """End suddenly."""
        if self._agent is not None:
            crash(self._agent)
            self._agent = None

    async def publish(self, count: int) -> None:
        """Publish ``count`` events, and wait until each is acknowledged or refused."""
        numbers = range(self.last + 1, self.last + 1 + count)
        self.last += count
        async with asyncio.timeout(PUBLISH_S_MAX):
            await asyncio.gather(*(self._publish_one(n) for n in numbers))

    async def _publish_one(self, n: int) -> None:
        assert self._agent is not None
        with contextlib.suppress(WanderbusError):  # an error names the event: nobody counts on it
            identity = await self._agent.publish(self._subject, {"by": self.name, "n": n, "k": n % 4})
            self.acknowledged[n] = str(identity)


class Consumer:
    """A consumer of all publishers of a subject, whose events must match ``interest``.

    ``restored`` has the highest number that each publisher had used at the last restoration of a server.
    With ``commits`` it keeps the position of each item with its results, and begins again behind the last one.
    """

    def __init__(
        self,
        name: str,
        user: str,
        interest: Interest,
        subject: str,
        directory: Path,
        place: Place,
        publishers: Mapping[str, Publisher],
        restored: Mapping[str, int],
        *,
        commits: bool,
    ) -> None:
        self.name = name
        self.items: list[Item] = []
        self.position: wanderbus.Position | None = None
        self.state_dir = directory / name
        self._user, self._interest, self._subject = user, interest, subject
        self._place = place
        self._publishers = publishers
        self._restored = restored
        self._commits = commits
        self._since: dict[str, int] | None = None
        self._agent: wanderbus.Agent | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_open = asyncio.Event()

    @property
    def is_present(self) -> bool:
        """Return whether it runs."""
        return self._reading is not None

    async def come(self) -> None:
        """Start, and return once the subscription is open."""
        self._is_open.clear()
        self._reading = asyncio.create_task(self._read(), name=self.name)
        async with asyncio.timeout(CONNECT_S_MAX):
            await self._is_open.wait()

    async def go(self, *, suddenly: bool) -> None:
        """End, in order or ``suddenly``."""
        if self._agent is not None and suddenly:
            crash(self._agent)
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])
        if self._agent is not None and not suddenly:
            await self._agent.close()
        self._agent = None

    def go_back(self, items: int, position: wanderbus.Position | None) -> None:
        """Forget what was read behind the first ``items``, as an application does that is restored from a copy."""
        del self.items[items:]
        self.position = position

    def silent(self) -> list[tuple[str, int]]:
        """Return the acknowledged events that were due, and of which it has learned nothing."""
        found = []
        for by, publisher in self._publishers.items():
            since = (self._since or {}).get(by, publisher.last)
            due = [n for n in publisher.acknowledged if n > since and self._interest.matches(n)]
            found += [(by, n) for n in silent_losses(by, due, self.items)]
        return found

    def repetitions(self) -> int:
        """Return how many events it has read more than once."""
        events = [(item.by, item.n) for item in self.items if item.n]
        return len(events) - len(set(events))

    async def _read(self) -> None:
        while True:
            try:
                await self._read_until_error()
            except WanderbusError as error:
                self._note(0, "", str(error))
                await asyncio.sleep(RETRY_S)

    async def _read_until_error(self) -> None:
        if self._agent is None:
            resume = self.position if self._commits else None
            agent = connected(self._user, self._place.address, self.state_dir, keep=True, resume=resume)
            await agent.__aenter__()
            self._agent = agent
        try:
            async with self._agent.subscribe(
                self._subject, self._interest.expression, keep=True, gaps=True
            ) as notifications:
                if self._since is None:
                    self._since = {by: publisher.last for by, publisher in self._publishers.items()}
                self._is_open.set()
                async for item in notifications:
                    if isinstance(item, wanderbus.Gap):
                        self._note(0, "", str(item))
                    else:
                        self._note(int(str(item.event["n"])), str(item.event["by"]))
                    self.position = item.position
                self._note(0, "", f"ended: {notifications.ended}")
        except Closed:
            self._agent = None
            raise

    def _note(self, n: int, by: str, text: str = "") -> None:
        highest = {each.name: max(each.acknowledged, default=0) for each in self._publishers.values()}
        notice: dict[str, Any] = {} if n else {"acknowledged": highest, "restored": dict(self._restored), "text": text}
        self.items.append(Item(by, n, **notice))
