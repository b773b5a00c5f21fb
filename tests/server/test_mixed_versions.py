"""Servers of this version beside one of the version before, which is upgraded under load (SPEC U-12)."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

import wanderbus
from faults.agents import DOMAIN, PASSWORD, agent_at
from faults.victim import Victim
from harness.domain_command import domain_command
from harness.domain_file import Place, place_servers
from harness.ports import free_port
from wanderbus.channel_events import ChannelEvent
from wanderbus.runtime.files.domain_file import create_domain, read_domain
from wanderbus.testbed.async_processes import AsyncProcess

ROOT: Final = Path(__file__).resolve().parents[2]
FORMER: Final = "65dd806a4e4b"
"""The version before: the last commit whose servers take no queue in pieces, and do not say so (decision 0153)."""

SERVERS: Final = ("s1", "s2", "s3")
OLD: Final = "s3"
HOST: Final = "127.0.0.1"
FREE: Final = "Free"
LONG_EVENTS, LONG_BYTES = 12, 30_000
PERIOD_S: Final = 0.05
WAIT_S: Final = 60.0


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the source of the version before."""
    place = tmp_path_factory.mktemp("former")
    made = subprocess.run(["git", "-C", str(ROOT), "archive", FORMER, "src"], capture_output=True, check=False)
    if made.returncode:
        pytest.fail(f"this clone does not have commit {FORMER}; run 'git fetch --unshallow'", pytrace=False)
    subprocess.run(["tar", "-x", "-C", str(place)], input=made.stdout, check=True)
    return place / "src"


class Reader:
    """Events that a subscription has received, by publisher and number."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.received: list[tuple[str, int]] = []

    async def read(self, items: wanderbus.Notifications[wanderbus.Notification]) -> None:
        async for item in items:
            assert not isinstance(item, wanderbus.Gap), item
            self.received.append(named(item.event))


def named(event: wanderbus.Event) -> tuple[str, int]:
    return str(event["by"]), int(str(event["n"]))


class Mixed:
    """Three servers, of which ``OLD`` is of the version before at first, and the agents that use them."""

    def __init__(self, directory: Path, former: Path) -> None:
        self.directory, self._former = directory, former
        self.file = create_domain(directory, DOMAIN, len(SERVERS))
        self.places = {}
        for name in SERVERS:
            roles = ["access", "resolution", *["directory"] * (name == OLD)]
            self.places[name] = Place(HOST, free_port(HOST), roles, free_port(HOST))
        place_servers(self.file, self.places, f'[channels.{FREE}]\nmodel = "decentralised"\n')
        users = directory / "users"
        users.touch(0o600)
        users.write_text("".join(f"{name}:{PASSWORD}\n" for name in ("alice", "bob", "carol")))
        self.running: dict[str, Victim] = {}
        self.of_old = self._led_by(OLD)
        self.subjects = [self._led_by("s1"), self.of_old, FREE]
        self.readers: list[Reader] = []
        self.published: dict[str, list[tuple[str, int]]] = {subject: [] for subject in self.subjects}
        self.is_publishing = True

    def _led_by(self, server: str) -> str:
        domain = read_domain(self.file)
        return next(each for each in map("Subject{}".format, range(1_000)) if domain.channel(each).leader == server)

    async def start(self, source: Path, *servers: str) -> None:
        """Start servers of the version in ``source``."""

        def of_version(argv: Sequence[str]) -> list[str]:
            return ["env", f"PYTHONPATH={source}", *argv]

        common = {"--users": self.directory / "users", "--domain": DOMAIN, "--event-domain": self.file}
        for name in servers:
            place, data = self.places[name], self.directory / "data" / name
            own = {"--event-server": name, "--host": place.host, "--port": place.sip_port, "--data-dir": data}
            words = [str(word) for option in {**common, **own}.items() for word in option]
            words.append("--verbose")
            errors = self.directory / f"{name}.stderr"
            self.running[name] = Victim(name, "wanderbus", "up", *words, errors=errors, on_host=of_version)
            await self.running[name].start()
        for name in servers:
            await self.running[name].ready()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Run the servers; yield a time between the starts of both versions."""
        try:
            await self.start(self._former, OLD)
            since = datetime.now(UTC).isoformat(timespec="milliseconds")
            await self.start(ROOT / "src", *(each for each in SERVERS if each != OLD))
            yield since
        finally:
            for each in self.running.values():
                await each.kill()

    def agent(self, user: str, server: str) -> wanderbus.Agent:
        return agent_at(self.places[server], user, self.directory)

    async def subscribe(self, agent: wanderbus.Agent, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        found = []
        for subject in self.subjects:
            self.readers.append(reader := Reader(subject))
            found.append(tasks.create_task(reader.read(await agent.subscribe(subject, keep=True))))
        return found

    async def publish(self, agent: wanderbus.Agent, user: str, subject: str) -> None:
        """Publish one event after the other."""
        n = 0
        while self.is_publishing:
            await agent.publish(subject, {"by": user, "n": n})
            self.published[subject].append((user, n))
            n += 1
            await asyncio.sleep(PERIOD_S)

    async def refuse_long_queue(self) -> None:
        """Let carol's session with a long queue stay, which the server of the former version cannot take."""
        async with self.agent("carol", "s1") as carol, carol.subscribe("Long"):
            for _ in range(LONG_EVENTS):
                await carol.publish("Long", {"text": "x" * LONG_BYTES})
            with pytest.raises(wanderbus.WanderbusError, match=f"{OLD} has an earlier version"):
                await carol.handover(OLD)

    async def seek_dormant_instance(self) -> None:
        """Ask all servers about a session: the old one does not know the question, and its link stays."""
        async with self.agent("carol", "s1") as carol, carol.subscribe("Long"):
            with pytest.raises(wanderbus.WanderbusError, match="no dormant instance 'desk' waits"):
                await carol.operator.transfer(carol.uri, "default", "desk")
        for name in SERVERS:
            assert "a message about a session that moves" not in (self.directory / f"{name}.stderr").read_text(), name

    async def upgrade(self, since: str) -> None:
        """Upgrade the domain: start the server of the former version again once the command asks for it."""
        log = self.directory / "upgrade"
        argv = domain_command(self.file, self.directory, "upgrade", "--started-before", since)
        command = await AsyncProcess.start("upgrade", argv, log, read=False)
        try:
            while f"{OLD} is empty: restart it now" not in log.read_text():
                assert await command.wait(0.1) is None, log.read_text()
            await self.running.pop(OLD).kill()
            await self.start(ROOT / "src", OLD)
            assert await command.wait(WAIT_S) == 0, log.read_text()
        finally:
            command.kill_now()
        assert "1 server restarted" in log.read_text()

    async def settle(self) -> None:
        """Wait until every subscription has as many events as were published."""
        while any(len(each.received) < len(self.published[each.subject]) for each in self.readers):
            await asyncio.sleep(PERIOD_S)


async def play(domain: Mixed) -> list[tuple[str, int]]:
    """Publish while alice moves from the old server to a new one and back, and while the old one is upgraded.

    Return the history of the channel that this server leads.
    """
    async with domain.serving() as since, domain.agent("alice", OLD) as alice, domain.agent("bob", "s1") as bob:
        async with asyncio.timeout(4 * WAIT_S), asyncio.TaskGroup() as tasks:
            reading = await domain.subscribe(alice, tasks) + await domain.subscribe(bob, tasks)
            publishers = [(alice, "alice", each) for each in domain.subjects] + [
                (bob, "bob", each) for each in domain.subjects
            ]
            publishing = [tasks.create_task(domain.publish(*each)) for each in publishers]
            await alice.handover("s1")
            await alice.handover(OLD)
            await domain.refuse_long_queue()
            await domain.seek_dormant_instance()
            await domain.upgrade(since)
            await alice.handover(OLD)
            domain.is_publishing = False
            await asyncio.wait(publishing)
            await domain.settle()
            for each in reading:
                each.cancel()
        return [named(each.event) async for each in bob.history(domain.of_old) if isinstance(each, ChannelEvent)]


@pytest.mark.integration
def test_u12_a_server_of_the_version_before_serves_beside_others_and_is_upgraded(tmp_path: Path, former: Path) -> None:
    domain = Mixed(tmp_path / "domain", former)
    history = asyncio.run(play(domain))
    orders: dict[str, list[list[tuple[str, int]]]] = {subject: [] for subject in domain.subjects}
    for each in domain.readers:
        assert sorted(each.received) == sorted(domain.published[each.subject]), each.subject
        for user in ("alice", "bob"):
            numbers = [n for by, n in each.received if by == user]
            assert numbers == sorted(numbers), (each.subject, user)
        orders[each.subject].append(each.received)
    assert history == orders[domain.of_old][0], "the new server reads what the old one has written"
    for subject in domain.subjects[:2]:
        assert orders[subject][0] == orders[subject][1]
