"""A domain of three servers, of which one is restored from a copy at each point; its channels have either model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final

from faults.agents import DOMAIN
from faults.restoring.server_world import ServerWorld
from faults.restoring.servers import InProcess, Place
from harness import domain_file
from wanderbus.runtime.files.domain_file import create_domain
from wanderbus.settings.event_domain import ROLES

SERVERS: Final = ("s1", "s2", "s3")
MODELS: Final = ("ordered", "decentralised")
SIP_PORT: Final = 5060


class DomainWorld(ServerWorld):
    """The servers run in this process, each at an address of its own."""

    publishers_of = {"bob": "s1", "ben": "s3"}  # noqa: RUF012  # never changed
    consumers_of = {"stayer": "s1", "choosy": "s2", "committer": "s2", "late": "s3"}  # noqa: RUF012

    def __init__(self, directory: Path, random: Random, model: str) -> None:
        super().__init__(directory, random)
        self._model = model

    def make_places(self) -> Mapping[str, Place]:
        """Return the servers by name; those of other worlds have other addresses."""
        network = f"127.{self.random.randint(1, 254)}.{self.random.randint(0, 255)}"
        hosts = {name: f"{network}.{number}" for number, name in enumerate(SERVERS, 1)}
        file = create_domain(self.directory / "domain", DOMAIN, len(SERVERS))
        file.write_text(f'model = "{self._model}"\n{file.read_text()}')
        places = {
            name: domain_file.Place(host, SIP_PORT, ROLES if number == 1 else ROLES[:2])
            for number, (name, host) in enumerate(hosts.items(), 1)
        }
        domain_file.place_servers(file, places)
        return {
            name: InProcess(
                self.directory / name,
                host=host,
                port=SIP_PORT,
                users=self.users,
                event_domain=file,
                event_server=name,
            )
            for name, host in hosts.items()
        }


def ordered(directory: Path, random: Random) -> DomainWorld:
    """Return a domain whose channels are ordered by their leaders."""
    return DomainWorld(directory, random, "ordered")


def decentralised(directory: Path, random: Random) -> DomainWorld:
    """Return a domain whose channels are decentralised."""
    return DomainWorld(directory, random, "decentralised")
