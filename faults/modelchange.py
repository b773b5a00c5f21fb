"""Change the model of the channels of a domain under load, and compare what subscribers got with what was acknowledged.

Two servers lead a channel each. Users at both subscribe to both channels and publish to both. Meanwhile the
file of the domain changes from one model to the other and back. After each change the servers are started again apart:
one after the other, or with everything stopped. An event is lost if its publish was acknowledged, and a subscriber has
neither the event nor a gap.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import wanderbus
from faults.agents import DOMAIN, PASSWORD, agent_at
from faults.victim import Victim
from harness.domain_file import Place, place_servers
from harness.ports import free_port
from harness.reporting import finish, goal
from wanderbus.errors import WanderbusError
from wanderbus.runtime.files.domain_file import create_domain, read_domain

SERVERS: Final = ("s1", "s2")
SUBSCRIBERS: Final = {"alice": "s1", "carol": "s2"}
PUBLISHERS: Final = {"bob": "s1", "dave": "s2"}
CHANGES: Final = (
    ("ordered", 8.0, False),
    ("decentralised", 8.0, False),
    ("ordered", 5.0, True),
    ("decentralised", 5.0, True),
)
"""Each change of the file: the new model, the time between the two starts, and whether both servers stop first."""

FIRST_MODEL: Final = "decentralised"
STEADY_S: Final = 4.0
"""Time of publishing before each change, and after the last."""

PERIOD_S: Final = 0.05
SETTLE_S_MAX: Final = 60.0


class Reader:
    """Events of one subject that one user at one server has received."""

    def __init__(self, user: str, subject: str) -> None:
        self.name = f"{user} of {subject}"
        self.subject = subject
        self.received: set[int] = set()
        self.gaps = 0

    async def read(self, items: wanderbus.Notifications[wanderbus.Notification]) -> None:
        """Take all that arrives, until this is cancelled."""
        async for item in items:
            if isinstance(item, wanderbus.Gap):
                self.gaps += 1
            else:
                self.received.add(int(str(item.event["n"])))


class Run:
    """A domain whose file changes, and its agents."""

    def __init__(self, directory: Path, host: str) -> None:
        self._directory = directory
        self._file = create_domain(directory / "domain", DOMAIN, len(SERVERS))
        roles = (["access", "resolution", "directory"], ["access", "resolution"])
        self._places = {
            name: Place(host, free_port(host), role, free_port(host)) for name, role in zip(SERVERS, roles, strict=True)
        }
        place_servers(self._file, self._places)
        self._text = self._file.read_text()
        self._write_model(FIRST_MODEL)
        users = directory / "users"
        users.touch(0o600)
        users.write_text("".join(f"{name}:{PASSWORD}\n" for name in (*SUBSCRIBERS, *PUBLISHERS)))
        self._victims = {name: self._victim(name, users) for name in SERVERS}
        self.subjects = [self._subject_of(name) for name in SERVERS]
        self.acknowledged: dict[str, set[int]] = {subject: set() for subject in self.subjects}
        self.refused = 0
        self.readers: list[Reader] = []
        self._n = 0
        self._is_publishing = True

    def _write_model(self, model: str) -> None:
        self._file.write_text(f'model = "{model}"\n{self._text}')

    def _victim(self, name: str, users: Path) -> Victim:
        place = self._places[name]
        own = {"--host": place.host, "--port": place.sip_port, "--data-dir": self._directory / f"data-{name}"}
        options = {"--users": users, "--domain": DOMAIN, "--event-domain": self._file, "--event-server": name, **own}
        words = [str(word) for option in options.items() for word in option]
        return Victim(name, "wanderbus", "up", *words, errors=self._directory / f"{name}.stderr")

    def _subject_of(self, leader: str) -> str:
        domain = read_domain(self._file)
        return next(each for each in map("Subject{}".format, range(1_000)) if domain.channel(each).leader == leader)

    async def play(self, changes: Sequence[tuple[str, float, bool]]) -> None:
        """Publish while the file changes, and let everything arrive."""
        await self._start(*SERVERS)
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            reading = []
            for user, server in SUBSCRIBERS.items():
                agent = await stack.enter_async_context(agent_at(self._places[server], user, self._directory))
                for subject in self.subjects:
                    reader = Reader(user, subject)
                    self.readers.append(reader)
                    items = await agent.subscribe(subject, keep=True)
                    reading.append(tasks.create_task(reader.read(items)))
            publishing = []
            for user, server in PUBLISHERS.items():
                agent = await stack.enter_async_context(agent_at(self._places[server], user, self._directory))
                publishing += [tasks.create_task(self._publish(agent, each)) for each in self.subjects]
            await asyncio.sleep(STEADY_S)
            for model, apart_s, are_stopped in changes:
                await self._change(model, apart_s, are_stopped=are_stopped)
                await asyncio.sleep(STEADY_S)
            self._is_publishing = False
            await asyncio.gather(*publishing)
            await self._settle()
            for each in reading:
                each.cancel()
        for victim in self._victims.values():
            await victim.kill()

    async def _change(self, model: str, apart_s: float, *, are_stopped: bool) -> None:
        """Start the servers with another model, the second one ``apart_s`` after the first."""
        first, second = SERVERS
        await self._victims[first].kill()
        if are_stopped:
            await self._victims[second].kill()
        self._write_model(model)
        await self._start(first)
        await asyncio.sleep(apart_s)
        if not are_stopped:
            await self._victims[second].kill()
        await self._start(second)

    async def _start(self, *names: str) -> None:
        for name in names:
            await self._victims[name].start()
        for name in names:
            await self._victims[name].ready()

    async def _publish(self, agent: wanderbus.Agent, subject: str) -> None:
        """Publish one event after the other; one that is refused for now is not published again."""
        while self._is_publishing:
            self._n += 1
            n = self._n
            try:
                await agent.publish(subject, {"n": n})
            except WanderbusError:
                self.refused += 1
            else:
                self.acknowledged[subject].add(n)
            await asyncio.sleep(PERIOD_S)

    async def _settle(self) -> None:
        """Wait until nothing is missing, or for some time."""
        deadline = time.monotonic() + SETTLE_S_MAX
        while self.lost() and time.monotonic() < deadline:
            await asyncio.sleep(0.5)

    def lost(self) -> Mapping[str, list[int]]:
        """Return the acknowledged events that a subscriber without a gap does not have."""
        missing = {each.name: sorted(self.acknowledged[each.subject] - each.received) for each in self.readers}
        return {name: numbers for name, numbers in missing.items() if numbers}


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./do modelchange", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--changes", type=int, default=len(CHANGES), help="number of changes (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument("--strict", action="store_true", help="as always: lost events end with status 1")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return the exit status."""
    options = _parsed(arguments)
    directory = Path(tempfile.mkdtemp(prefix="wanderbus-modelchange-"))
    began = time.monotonic()
    run = Run(directory, "127.0.0.1")
    asyncio.run(run.play(CHANGES[: options.changes]))
    lost = run.lost()
    for name, numbers in lost.items():
        print(f"{name} lost {len(numbers)} events: {numbers[:5]} to {numbers[-1]}")
    results = {
        "changes": options.changes,
        "acknowledged": sum(map(len, run.acknowledged.values())),
        "received": sum(len(each.received) for each in run.readers),
        "refused": run.refused,
        "gaps": sum(each.gaps for each in run.readers),
        "wall_s": round(time.monotonic() - began, 1),
    }
    print(", ".join(f"{name} {value}" for name, value in results.items()))
    count = sum(map(len, lost.values()))
    if lost:
        print(f"what is left is in {directory}")
    else:
        shutil.rmtree(directory)
    goals = [
        goal("model_change_lost", count, "events", most=0),
        goal("model_change_gaps", results["gaps"], "gaps", most=0),
    ]
    return finish("modelchange", [results], goals, file=options.json, strict=options.strict) or int(bool(lost))
