"""Hosts of a run, as seen from the run: the server, the publisher and the travellers.

Each can start, stop and kill its process, and keeps the reports of the process.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from demo import DOMAIN, flights, json_lines
from demo.display import RunState, TravellerState
from demo.evidence import Move, PlannedEnd
from demo.flights import FlightEvent
from demo.network import SERVER, Network
from demo.users import PUBLISHER, User, broker_of
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.async_processes import AsyncProcess, Crew
from wanderbus.testbed.launch import python

SIP_PORT: Final = 5060
SERVER_READY_S: Final = 60.0
READY_S: Final = 45.0
"""Longest time for a process of a user to get ready."""

GOODBYE_S: Final = 8.0
TAKE_SESSION_S_MAX: Final = 120.0
"""Longest time until a session is in another domain; it waits for a domain that is cut off."""


@dataclass
class RunContext:
    """Everything that the hosts of a run share; ``passwords`` are by user name."""

    work: Path
    network: Network
    crew: Crew
    state: RunState
    news: Callable[[str], None]
    passwords: Mapping[str, str]
    sip_port: int = SIP_PORT
    home: Mapping[str, str] = field(default_factory=dict)
    """Host of the server that each user connects to, :data:`SERVER` for users that it does not name."""
    kills: list[dict[str, Any]] = field(default_factory=list)
    outages: list[dict[str, Any]] = field(default_factory=list)
    ca_file: Path | None = None
    """Authority of the servers' certificates, for users who connect over TLS; None if nobody does."""

    @property
    def tls_port(self) -> int:
        """Return the port of SIP over TLS, which is that of ``wanderbus up`` unless it is given another one."""
        return self.sip_port + 1

    def configure(self, user: User, **more: Any) -> Path:
        """Write the configuration of a user's process and return its path."""
        network = self.network
        port = self.sip_port if self.ca_file is None else self.tls_port
        config = {
            "user": user.uri,
            "password": self.passwords[user.name],
            "server": f"{network.address(self.home.get(user.name, SERVER))}:{port}",
            "transport": None if self.ca_file is None else "tls",
            "ca_file": None if self.ca_file is None else str(self.ca_file),
            "broker": user.broker,
            "state_dir": str(self.work / "agents" / user.name),
            "local_address": network.address(user.name) if network.needs_order else None,
            **more,
        }
        path = self.work / f"{user.name}.json"
        path.write_text(json.dumps(config))
        return path


class ServerHost:
    """A server process on the host ``name``, with its data directory, which survives when it is killed.

    ``arguments`` follow those that all servers get.
    """

    def __init__(
        self, context: RunContext, users: Mapping[str, str], arguments: Sequence[str], name: str = SERVER
    ) -> None:
        self.name = name
        self.data = context.work / name
        self._context = context
        self._users = users
        self._arguments = list(arguments)
        self._child: AsyncProcess | None = None
        self._ready = asyncio.Event()

    @property
    def title(self) -> str:
        """Return how people call it."""
        return "the server" if self.name == SERVER else f"server {self.name}"

    async def start(self) -> None:
        """Start it and wait until it is ready; :class:`CannotRunError` with its last log line if it does not get
        ready.
        """
        context = self._context
        context.state.server = "starting"
        users = context.work / f"{self.name}.users"
        users.touch(0o600)
        users.write_text("".join(f"{name}:{password}\n" for name, password in self._users.items()))
        up = ["up", "--data-dir", str(self.data), "--users", str(users), *self._arguments]
        argv = context.network.command(self.name, python("wanderbus", *up))
        self._ready.clear()
        self._child = await context.crew.start(self.name, argv, self._on_line)
        await self._child.until(self._ready, SERVER_READY_S)
        context.state.server = "ready"

    async def kill(self, pause_s: float) -> None:
        """``kill -9``, and a restart ``pause_s`` later."""
        assert self._child is not None
        context = self._context
        killed_us = json_lines.wall_us()
        context.kills.append({"who": self.name, "at_us": killed_us})
        context.state.server_dead_since = time.monotonic()
        context.news(f"kill -9 {self._child.pid}: {self.title} is dead")
        try:
            await self._child.kill()
            await asyncio.sleep(pause_s)
            await self.start()
            context.state.server_dead_since = None
        finally:
            context.outages.append({"who": self.name, "from_us": killed_us, "to_us": json_lines.wall_us()})
        context.news(f"{self.title} is back as process {self._child.pid}")

    async def stop(self) -> None:
        """Stop it in order."""
        if self._child is not None and self._child.running:
            await self._child.end(GOODBYE_S)
        self._context.state.server = "stopped"

    def _on_line(self, line: str) -> None:
        if line.startswith("ready"):
            self._ready.set()


class PublisherHost:
    """The process of the publisher ``user``, who publishes the flights of some ``carriers``, or of all."""

    def __init__(self, context: RunContext, user: User = PUBLISHER, carriers: Collection[str] | None = None) -> None:
        self.user = user
        self._carriers = None if carriers is None else frozenset(carriers)
        self._context = context
        self._child: AsyncProcess | None = None
        self._ready = asyncio.Event()
        self._events = 0
        self._published = 0

    async def start(self, events: Sequence[FlightEvent], first_row: int, rows: int, rate: float) -> None:
        """Start it, let it publish its share of all ``events``, those of the slice, at its share of ``rate``, and wait
        until it is connected.
        """
        context = self._context
        self._events = sum(1 for _ in flights.of_carriers(events, self._carriers))
        config = context.configure(
            self.user,
            first_row=first_row,
            rows=rows,
            rate=rate * max(self._events, 1) / max(len(events), 1),
            carriers=None if self._carriers is None else sorted(self._carriers),
        )
        argv = context.network.command(self.user.name, python("demo.publisher", str(config)))
        self._child = await context.crew.start(self.user.name, argv, self._on_line)
        await self._child.until(self._ready, READY_S)

    def begin(self) -> None:
        """Start publishing."""
        if self._child is not None:
            self._child.send({"do": "start"})

    @property
    def failure(self) -> str | None:
        """Return its last log line if it ended without having published everything."""
        if self._child is None or self._child.running or self._published >= self._events:
            return None
        return self._child.last_words()

    async def stop(self) -> None:
        """End it, if it has not ended by itself."""
        if self._child is not None and self._child.running:
            await self._child.end(GOODBYE_S)

    def _on_line(self, line: str) -> None:
        fields = json_lines.parse(line) or {}
        if "ready" in fields:
            self._ready.set()
        if "published" in fields:
            published = int(fields["published"])
            self._context.state.published += published - self._published
            self._published = published


class TravellerHost:
    """One traveller: its current process, its results, which persist, and its address."""

    def __init__(self, context: RunContext, user: User) -> None:
        self.user = user
        self.results = context.work / "results" / f"{user.name}.sqlite"
        self.view = TravellerState(user.name, context.network.address(user.name))
        self.moves: list[Move] = []
        self.planned_ends: list[PlannedEnd] = []
        self.off_since = 0.0
        self._context = context
        self._child: AsyncProcess | None = None
        self._ready = asyncio.Event()
        self._leaving = False
        self._at = ""
        self._stays = "it does not say why"

    @property
    def failure(self) -> str | None:
        """Return its last log line if its process ended by itself."""
        if self._child is None or self._child.running or self._leaving:
            return None
        return self._child.last_words()

    async def start(self, ready_s: float, domain: str = "") -> None:
        """Start its process and wait until its subscriptions are durable; it calls the broker of the own domain, unless
        another one is given.
        """
        context = self._context
        self.results.parent.mkdir(exist_ok=True)
        more = {"broker": broker_of(domain)} if domain else {}
        config = context.configure(self.user, results=str(self.results), subscriptions=self.user.subscriptions, **more)
        argv = context.network.command(self.user.name, python("demo.traveller", str(config)))
        self._ready.clear()
        self._leaving = False
        self.view.status = "starting"
        self._child = await context.crew.start(self.user.name, argv, self._on_line)
        await self._child.until(self._ready, ready_s)

    async def move(self, place: str = "") -> None:
        """Change its address, at once; a process that cannot notice the change gets an order.

        ``place`` is a name of the next place for people.
        """
        network = self._context.network
        moved_us = json_lines.wall_us()
        old, address = self.view.address, await asyncio.to_thread(network.move, self.user.name)
        if network.needs_order and self._child is not None:
            self._child.send({"do": "rebind", "address": address})
        self.moves.append(Move(self.user.uri, moved_us, address))
        self.view.moves += 1
        self.view.address = address
        self._context.news(f"{self.user.name} moves from {old} to {address}" + (f", {place}" if place else ""))

    async def take_session(self, domain: str) -> None:
        """Let it move its session to a domain, and wait for that; :class:`CannotRunError` if it takes too long."""
        assert self._child is not None
        self._context.news(f"{self.user.name} takes the session to {domain}")
        self._at, began = "", time.monotonic()
        self._child.send({"do": "take_session", "to": domain})
        while self._at != domain:
            if not self._child.running or time.monotonic() - began > TAKE_SESSION_S_MAX:
                raise CannotRunError(f"the session of {self.user.name} did not come to {domain}: {self._stays}")
            await asyncio.sleep(0.05)
        taken_s = time.monotonic() - began
        self._context.news(f"the session of {self.user.name} is at {domain} after {taken_s:.1f} s")

    async def switch_off(self) -> None:
        """Stop its process in order, to be started again later."""
        self.off_since = time.monotonic()
        self.planned_ends.append(PlannedEnd(self.user.uri, json_lines.wall_us(), "switched off"))
        self._context.news(f"{self.user.name} switches off")
        await self.leave()
        self.view.status = "off"

    async def leave(self) -> None:
        """Stop its process in order."""
        assert self._child is not None
        self._leaving = True
        self._child.send({"do": "stop"})
        if await self._child.wait(GOODBYE_S) is None:
            await self._child.kill()

    async def kill(self) -> None:
        """``kill -9`` its process."""
        assert self._child is not None
        self._leaving = True
        now_us = json_lines.wall_us()
        self.planned_ends.append(PlannedEnd(self.user.uri, now_us, "killed"))
        self._context.kills.append({"who": self.user.name, "at_us": now_us})
        self._context.news(f"kill -9 {self._child.pid}: {self.user.name} is dead")
        await self._child.kill()
        self.view.status = "killed"

    def _on_line(self, line: str) -> None:
        fields = json_lines.parse(line) or {}
        if "ready" in fields:
            self._ready.set()
        if "taken" in fields:
            self.view.taken = int(fields["taken"])
        if "status" in fields:
            self.view.status = str(fields["status"])
        if "session_at" in fields:
            self._at = str(fields["session_at"])
        if "session_stays" in fields:
            self._stays = str(fields["session_stays"])
            self._context.news(f"the session of {self.user.name} stays: {self._stays}")


def server_arguments(context: RunContext, spark_subjects: Sequence[str], more: Sequence[str]) -> list[str]:
    """Return the arguments of the one server, whose file of settings is written; ``more`` are those of its SIP."""
    settings = context.work / "server.toml"
    settings.write_text(f"[broker]\nspark_subjects = {json.dumps(list(spark_subjects))}\n")
    address = context.network.address(SERVER)
    return ["--config", str(settings), "--host", address, "--domain", DOMAIN, *more]


def free_sip_port(address: str) -> int:
    """Return a UDP port to serve on at ``address``: 5060, or another if that one is in use."""
    for port in (SIP_PORT, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise CannotRunError(f"no UDP port can be used at {address}")
