"""Files that the operators of the airlines write for their servers: settings, certificates, event domains, federation.

Users of one domain may use the brokers of the others, and sessions may move between all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from demo import SUBJECTS
from demo.airlines import Airline
from demo.domains_operator import GATEWAY_PORT
from demo.hosts import RunContext
from harness.certificate import Authority
from harness.domain_file import Place, place_servers
from harness.federation_files import GatewayPlace, share_types
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.launch import python

INIT_S: Final = 30.0


class DomainsFiles:
    """The files of all ``airlines``, below the directory of the run."""

    def __init__(self, context: RunContext, airlines: Iterable[Airline]) -> None:
        self._context = context
        self._airlines = list(airlines)
        self._directory = context.work / "domains"
        self._directory.mkdir()
        self._authority = Authority(self._directory)
        context.ca_file = self._authority.file
        self._federations = {each.domain: self._of(each) / "federation.toml" for each in self._airlines}

    def arguments(self, airline: Airline, server: str) -> list[str]:
        """Return the arguments of a server, whose settings and certificate are written.

        One of several servers is in an event domain, too.
        """
        context, directory, name = self._context, self._of(airline), name_of(airline, server)
        directory.mkdir(exist_ok=True)
        address = context.network.address(server)
        (settings := directory / f"{server}.toml").write_text(self._settings(airline, server))
        where = ["--config", str(settings), "--host", address, "--port", str(context.sip_port)]
        where += ["--domain", airline.domain]
        if len(airline.servers) > 1:
            where += ["--event-domain", str(directory / "domain.toml"), "--event-server", name]
        gateway = ["--federation-gateway", name] if server == airline.gateway else []
        return [*where, "--federation", str(self._federations[airline.domain]), *gateway]

    def _settings(self, airline: Airline, server: str) -> str:
        """Return the settings for TLS, and for users of the other domains and calls of the own users there."""
        context = self._context
        address_of = context.network.address
        others = [each for each in self._airlines if each != airline]
        names = json.dumps([each.domain for each in others])
        certificate = self._authority.certify(server, airline.domain, address_of(server))
        routes = {each.domain: [f"{address_of(its)}:{context.tls_port}" for its in each.servers] for each in others}
        lines = [
            f"tls_certificate = {json.dumps(str(certificate))}",
            f"tls_port = {context.tls_port}",
            f"user_domains = {names}",
            "[domains]",
            "lookup = false",
            f"ca_file = {json.dumps(str(self._authority.file))}",
            f"trusted = {names}",
            "[domains.routes]",
            *(f"{json.dumps(domain)} = {json.dumps(servers)}" for domain, servers in routes.items()),
        ]
        return "\n".join(lines) + "\n"

    def share(self, reached: Mapping[tuple[str, str], str]) -> None:
        """Write the federation of each domain; ``reached`` is that of :func:`harness.federation_files.share_types`."""
        places = {each: self._context.network.address(each.gateway) for each in self._airlines}
        gateways = {
            airline.domain: GatewayPlace(name_of(airline, airline.gateway), f"{address}:{GATEWAY_PORT}")
            for airline, address in places.items()
        }
        share_types(self._federations, gateways, SUBJECTS, reached, sessions_move=True)

    async def make_event_domain(self, airline: Airline) -> None:
        """Write the file of an event domain of several servers."""
        directory, context = self._of(airline), self._context
        words = ["init", str(directory), "--size", str(len(airline.servers)), "--name", airline.domain]
        child = await context.crew.start("domain", python("wanderbus", "domain", *words), lambda line: None)
        if await child.wait(INIT_S) != 0:
            raise CannotRunError(child.last_words())
        places = {
            name_of(airline, server): Place(
                context.network.address(server),
                context.sip_port,
                ["access", "resolution", *(["directory"] if server == airline.gateway else [])],
            )
            for server in airline.servers
        }
        place_servers(directory / "domain.toml", places)

    def _of(self, airline: Airline) -> Path:
        return self._directory / airline.domain


def name_of(airline: Airline, server: str) -> str:
    """Return the name of a server in the files of its domain: ``wanderbus domain init`` numbers them."""
    return f"s{airline.servers.index(server) + 1}"
