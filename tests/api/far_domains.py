"""Domains a.example and b.example on loopback, between which sessions move; b.example may have several servers."""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

import wanderbus
from tests.api.world import SUBJECT, service
from tests.certificates import certify, make_certificates
from wanderbus.config import DomainsSettings
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.peers.far_servers import VisitorsChoice
from wanderbus.runtime.files.domain_file import create_domain
from wanderbus.runtime.files.federation_file import card_of, create_federation, put_domain, read_federation
from wanderbus.settings.federation import ForeignDomainSettings

NAMES: Final = ("a.example", "b.example")
USERS: Final = {"a.example": {"carol": "secret", "dave": "sesame"}, "b.example": {"bob": "hunter2"}}
ALONE: Final = "gate"
"""Name of the gateway of a domain of one server."""


class TwoDomains:
    """Two domains that share events, and between which sessions move unless one of them does not permit it.

    :param gives: whether a domain gives sessions to the other
    :param takes: whether it takes them
    :param visitors: service for users of the other domain
    :param b_servers: number of the servers of b.example, of which the first one is the gateway
    :param one_proxy: whether all of them are behind the proxy of the first one, in place of one of their own
    """

    def __init__(
        self,
        directory: Path,
        *,
        gives: bool = True,
        takes: bool = True,
        visitors: VisitorsChoice = "own",
        b_servers: int = 1,
        one_proxy: bool = False,
    ) -> None:
        self.directory = directory
        self.one_proxy = one_proxy
        self.files = make_certificates(directory)
        network = f"127.{secrets.randbelow(254) + 1}.{secrets.randbelow(256)}"
        self.b_servers = [ALONE] if b_servers == 1 else [f"s{each}" for each in range(1, b_servers + 1)]
        places = [("a.example", ALONE), *(("b.example", each) for each in self.b_servers)]
        self.hosts = {place: f"127.0.0.{number}" for number, place in enumerate(places, 1)}
        self.tls_ports = {place: _free_port(host) for place, host in self.hosts.items()}
        self.federations = {name: directory / name / "federation.toml" for name in NAMES}
        for number, (name, file) in enumerate(self.federations.items(), 1):
            file.parent.mkdir(parents=True)
            gateway = ALONE if name == "a.example" else self.b_servers[0]
            create_federation(file, name, {gateway: f"{network}.{number}:5900"})
        self.event_domain: Path | None = None
        if b_servers > 1:
            self.event_domain = create_domain(directory / "b-domain", "b.example", b_servers)
            text = self.event_domain.read_text()
            self.event_domain.write_text(text.replace('"127.0.0.', f'"127.{network.split(".")[1]}.255.'))
        for name, other in (NAMES, NAMES[::-1]):
            card = card_of(read_federation(self.federations[other]))
            foreign = ForeignDomainSettings(
                public_key=card.public_key, gateways=card.gateways, receive=(SUBJECT,), send=(SUBJECT,)
            )
            foreign = msgspec.structs.replace(foreign, gives_sessions=gives, takes_sessions=takes, visitors=visitors)
            put_domain(self.federations[name], other, foreign)

    def routes_to(self, name: str) -> tuple[str, ...]:
        """Return the addresses of the proxies of a domain."""
        found = [f"{self.hosts[place]}:{port}" for place, port in self.tls_ports.items() if place[0] == name]
        return tuple(found[:1] if self.one_proxy else found)

    def settings(self, name: str, server: str) -> dict[str, Any]:
        """Return the settings of a server."""
        (other,) = set(NAMES) - {name}
        place = name, server
        settings: dict[str, Any] = {
            "domain": name,
            "host": self.hosts[place],
            "port": 0,
            "tls_port": self.tls_ports[place],
            "data_dir": self.directory / name / f"data-{server}",
            "users": USERS[name],
            "tls_certificate": certify(self.directory, f"{name}-{server}", f"DNS:{name},IP:{self.hosts[place]}"),
            "user_domains": (other,),
            "domains": DomainsSettings(
                ca_file=self.files.authority, lookup=False, trusted=(other,), routes={other: self.routes_to(other)}
            ),
            "federation": self.federations[name],
            "broker": BrokerConfig(roles={"sip:dave@a.example": "administrator"}),
        }
        if server in (ALONE, self.b_servers[0]):
            settings["federation_gateway"] = server
        if server != ALONE:
            settings |= {"event_domain": self.event_domain, "event_server": server}
        if self.one_proxy and name == "b.example":
            (password := self.directory / "broker").touch(0o600)
            password.write_text("quorum\n")
            settings["broker_password_file"] = password
            if server != self.b_servers[0]:
                for key in ("port", "tls_port", "tls_certificate", "domains"):
                    del settings[key]
                (proxy,) = self.routes_to(name)
                settings |= {"sip_server": f"sips:{proxy}", "ca_file": self.files.authority}
        return settings

    @asynccontextmanager
    async def running(self) -> AsyncIterator[list[wanderbus.Server]]:
        """Run all servers, that of a.example first."""
        async with AsyncExitStack() as stack:
            self.servers = [
                await stack.enter_async_context(wanderbus.Server(**self.settings(*place))) for place in self.hosts
            ]
            yield self.servers

    def agent(self, name: str, domain: str, password: str, **options: Any) -> Any:
        """Return an agent of a user at the first server of a domain, to be entered."""
        place = next(each for each in self.hosts if each[0] == domain)
        settings: dict[str, Any] = {
            "password": password,
            "server": f"{self.hosts[place]}:{self.tls_ports[place]}",
            "transport": "tls",
            "ca_file": self.files.authority,
            "state_dir": self.directory / domain / f"state-{name}",
        }
        return wanderbus.connect(f"sip:{name}@{domain}", **(settings | options))

    def owners(self, user: str, session: str = "default") -> Sequence[int]:
        """Return the places of the servers that have a session, as :meth:`running` orders them."""
        return [
            place
            for place, server in enumerate(self.servers)
            for row in sessions_at(server)
            if (row.user, row.name) == (user, session) and not row.is_fenced
        ]


def sessions_at(server: wanderbus.Server) -> list[Any]:
    """Return the rows of the sessions at a server."""
    return list(service(server).broker.state.sessions.values())


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
