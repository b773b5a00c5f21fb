"""Domains of one server on loopback that share events."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import wanderbus
from tests.api.world import PASSWORDS, SUBJECT
from wanderbus.federation.routing_messages import Method
from wanderbus.runtime.files.federation_file import (
    card_of,
    create_federation,
    put_domain,
    put_method,
    read_federation,
)
from wanderbus.settings.federation import ForeignDomainSettings


class FederatedDomains:
    """Domains by name, each with a server, and the types that all of them send and receive.

    :param apart: pairs of domains that have no link
    """

    def __init__(
        self,
        directory: Path,
        names: Sequence[str],
        types: Sequence[str] = (SUBJECT,),
        *,
        method: Method = "multicast",
        apart: Collection[frozenset[str]] = (),
    ) -> None:
        self.directory = directory
        network = f"127.{secrets.randbelow(254) + 1}.{secrets.randbelow(256)}"
        self.files: Mapping[str, Path] = {name: directory / name / "federation.toml" for name in names}
        self.ports: dict[str, int] = {}
        for place, (name, file) in enumerate(self.files.items(), 1):
            file.parent.mkdir(parents=True)
            create_federation(file, name, {"gate": f"{network}.{place}:5900"})
            for each in types if method != "multicast" else ():
                put_method(file, each, method)
        for name, file in self.files.items():
            for other, of_other in self.files.items():
                if other != name:
                    card = card_of(read_federation(of_other))
                    shared = tuple(types)
                    gateways = {} if frozenset((name, other)) in apart else card.gateways
                    foreign = ForeignDomainSettings(
                        public_key=card.public_key, gateways=gateways, receive=shared, send=shared
                    )
                    put_domain(file, other, foreign)

    @asynccontextmanager
    async def server(self, name: str, **options: Any) -> AsyncIterator[wanderbus.Server]:
        """Run the server of a domain; it keeps its port when it is started again."""
        server = wanderbus.Server(
            domain=name,
            data_dir=self.directory / name / "data",
            users=PASSWORDS,
            port=self.ports.get(name, 0),
            federation=self.files[name],
            federation_gateway="gate",
            **options,
        )
        async with server:
            self.ports[name] = server.address[1]
            yield server

    @asynccontextmanager
    async def servers(self) -> AsyncIterator[dict[str, wanderbus.Server]]:
        """Run all servers."""
        async with AsyncExitStack() as stack:
            yield {name: await stack.enter_async_context(self.server(name)) for name in self.files}

    def agent(self, name: str, user: str = "alice", **options: Any) -> Any:
        """Return an agent of a user at the server of a domain, to be entered."""
        return wanderbus.connect(
            f"sip:{user}@{name}",
            server=f"127.0.0.1:{self.ports[name]}",
            password=PASSWORDS[user],
            state_dir=self.directory / name / f"state-{user}",
            **options,
        )
