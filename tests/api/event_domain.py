"""A domain of servers on loopback."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from pathlib import Path
from typing import Any, Self

import wanderbus
from tests.api.world import PASSWORDS, SUBJECT, service
from wanderbus.runtime.files.domain_file import create_domain, read_domain
from wanderbus.runtime.net.free_port import free_port

AWAY = {"s1": "erin", "s2": "frank", "s3": "grace"}
"""A user for each server who subscribes there and disconnects."""

USERS = PASSWORDS | {"carol": "third", "dave": "fourth"} | dict.fromkeys(AWAY.values(), "away")
READERS = {"s1": "alice", "s2": "carol", "s3": "dave"}
"""A user for each server: all devices of one user would be at the server that owns the session."""


def multicast_table(group: str = "", interface: str = "") -> str:
    """The table of a multicast group on loopback, which no other test has unless it is given."""
    address = f"239.{secrets.randbelow(64) + 192}.{secrets.randbelow(256)}.{secrets.randbelow(254) + 1}"
    group = group or f"{address}:{free_port('127.0.0.1')}"
    named = f'interface = "{interface}"\n' if interface else ""
    return f'[multicast]\ngroup = "{group}"\n{named}'


class Domain:
    """A domain of servers, each with a data directory of its own."""

    def __init__(self, directory: Path, size: int = 3, *, keys: str = "", tables: str = "") -> None:
        self.directory = directory
        self.file = create_domain(directory, "localhost", size)
        # Every domain has a network of its own: the file names ports before the servers bind them.
        network = f"127.{secrets.randbelow(254) + 1}.{secrets.randbelow(256)}"
        text = self.file.read_text().replace('"127.0.0.', f'"{network}.')
        self.file.write_text(f"{keys}\n{text}\n{tables}")
        self.ports: dict[str, int] = {}

    def copied(self, directory: Path) -> Self:
        """Return the domain of a copy of the directory; its servers have other ports."""
        found = copy(self)
        found.directory, found.file, found.ports = directory, directory / self.file.name, {}
        return found

    def leader(self, subject: str = SUBJECT) -> str:
        """The server that leads the channel of a subject."""
        return read_domain(self.file).channel(subject).leader

    def places(self, subject: str = SUBJECT) -> list[str]:
        """The server that leads the channel of a subject, and the others."""
        leader = self.leader(subject)
        return sorted(read_domain(self.file).settings.servers, key=lambda name: name != leader)

    def subject_of(self, leader: str) -> str:
        """A subject whose channel this server leads."""
        return next(name for name in map("Subject{}".format, range(1_000)) if self.leader(name) == leader)

    def data_dir(self, name: str) -> Path:
        """The data directory of a server."""
        return self.directory / f"data-{name}"

    @asynccontextmanager
    async def server(self, name: str, **options: Any) -> AsyncIterator[wanderbus.Server]:
        """Run one server; it keeps its port when it is started again."""
        server = wanderbus.Server(
            domain="localhost",
            data_dir=self.data_dir(name),
            users=USERS,
            port=self.ports.get(name, 0),
            event_domain=self.file,
            event_server=name,
            **options,
        )
        async with server:
            self.ports[name] = server.address[1]
            yield server

    @asynccontextmanager
    async def servers(self, **options: Any) -> AsyncIterator[dict[str, wanderbus.Server]]:
        """Run all servers."""
        async with AsyncExitStack() as stack:
            names = read_domain(self.file).settings.servers
            yield {name: await stack.enter_async_context(self.server(name, **options)) for name in names}

    async def started_once(self) -> None:
        """Run all servers until each leader knows what the others want: before that, events wait there."""
        async with self.servers() as servers:
            for each in servers.values():
                while service(each).broker.diagnostics.missing:
                    await asyncio.sleep(0.005)

    def agent(self, server: str, name: str = "alice", **options: Any) -> wanderbus.Agent:
        """An agent of a user at a server."""
        settings: dict[str, Any] = {
            "password": USERS[name],
            "server": f"127.0.0.1:{self.ports[server]}",
            "state_dir": self.directory / f"{name}-{server}",
        }
        return wanderbus.connect(f"sip:{name}@localhost", **(settings | options))
