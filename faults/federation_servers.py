"""Servers of three federated domains as processes, which are killed, and the links between them, which are cut.

Each domain has two servers, which both lead channels, have users, and are gateways to the other domains.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from faults.agents import PASSWORD
from faults.victim import Victim
from harness.domain_file import LINK_PORT, Place, place_servers
from harness.domain_network import DomainNetwork
from harness.ports import free_port
from wanderbus.federation.routing_messages import Method
from wanderbus.runtime.files.domain_file import create_domain
from wanderbus.runtime.files.federation_file import card_of, create_federation, put_domain, put_method, read_federation
from wanderbus.settings.federation import ForeignDomainSettings

DOMAINS: Final = ("alpha.test", "beta.test", "gamma.test")
SERVERS: Final = ("s1", "s2")
"""Servers of each domain; the first one has the links to other domains as long as it runs."""

SIP_PORT: Final = 5060
GATEWAY_PORT: Final = 5900
READY_S_MAX: Final = 150.0
QUEUE_MAX: Final = 1_000_000
"""Events that wait for a foreign domain: more than a cut can last."""

AFTER_BURST_S_MAX: Final = 0.15


class Cut(NamedTuple):
    """A time in which nothing passed from one domain to another, on the monotonic clock; domains by number."""

    source: int
    target: int
    began_ns: int
    healed_ns: int


class FederatedServers:
    """All servers of all domains, each with a data directory.

    ``burst`` is called just before a fault, so that many events are on their way. Every second type has
    ``method``, the others multicast.
    """

    def __init__(
        self,
        directory: Path,
        network: DomainNetwork,
        subjects: Sequence[str],
        users: Mapping[str, Sequence[str]],
        *,
        burst: Callable[[], None] = lambda: None,
        method: Method = "multicast",
    ) -> None:
        self.cuts: list[Cut] = []
        self._directory = directory
        self._network = network
        self._burst = burst
        self.places = {domain: self._places(number) for number, domain in enumerate(DOMAINS)}
        files = {domain: self._federation_file(number, domain) for number, domain in enumerate(DOMAINS)}
        for domain, other in permutations(DOMAINS, 2):
            card = card_of(read_federation(files[other]))
            shared = tuple(subjects)
            foreign = ForeignDomainSettings(
                public_key=card.public_key, gateways=card.gateways, receive=shared, send=shared
            )
            put_domain(files[domain], other, foreign)
        for file in files.values() if method != "multicast" else ():
            for subject in subjects[1::2]:
                put_method(file, subject, method)
        self._victims = {
            (domain, server): victim
            for number, domain in enumerate(DOMAINS)
            for server, victim in self._victims_of(number, domain, files[domain], users[domain])
        }

    def _places(self, number: int) -> dict[str, Place]:
        places = {}
        for host, server in enumerate(SERVERS, 1):
            address = self._network.address(number, host)
            is_shared = self._network.mode == "loopback"
            ports = (free_port(address), free_port(address)) if is_shared else (SIP_PORT, LINK_PORT)
            roles = ["access", "resolution", "directory"][: 3 if host == 1 else 2]
            places[server] = Place(address, ports[0], roles, ports[1])
        return places

    def _federation_file(self, number: int, domain: str) -> Path:
        own = self._directory / domain
        own.mkdir()
        file = own / "federation.toml"
        places = self.places[domain]
        create_federation(file, domain, {name: f"{place.host}:{GATEWAY_PORT}" for name, place in places.items()})
        return file

    def _victims_of(self, number: int, domain: str, federation: Path, users: Sequence[str]) -> list[tuple[str, Victim]]:
        own = self._directory / domain
        file = create_domain(own / "domain", domain, len(SERVERS))
        place_servers(file, self.places[domain])
        passwords = own / "users"
        passwords.touch(0o600)
        passwords.write_text("".join(f"{name}:{PASSWORD}\n" for name in users))
        settings = own / "server.toml"
        settings.write_text(f"[broker.queue]\nnotifications_max = {QUEUE_MAX}\n")
        common = {"--config": settings, "--users": passwords, "--domain": domain, "--event-domain": file}
        common |= {"--federation": federation}

        def on_host(argv: Sequence[str]) -> list[str]:
            return self._network.command(number, argv)

        found = []
        for server, place in self.places[domain].items():
            options = {
                **common,
                "--host": place.host,
                "--port": place.sip_port,
                "--data-dir": self.data(domain, server),
            }
            options |= {"--event-server": server, "--federation-gateway": server}
            words = ["up", *(str(word) for option in options.items() for word in option)]
            victim = Victim(
                f"{server} of {domain}",
                "faults.patient_server",
                *words,
                errors=own / f"{server}.stderr",
                ready_s_max=READY_S_MAX,
                on_host=on_host,
            )
            found.append((server, victim))
        return found

    def data(self, domain: str, server: str) -> Path:
        """Return the data directory of a server."""
        return self._directory / domain / f"data-{server}"

    async def start(self) -> None:
        """Start all servers, and wait until they are ready."""
        for victim in self._victims.values():
            await victim.start()
        for victim in self._victims.values():
            await victim.ready()

    async def kill(self, domain: str, servers: Sequence[str], down_s: float, random: Random) -> None:
        """Kill servers of a domain, and start them again after ``down_s``; return when they are ready."""
        victims = [self._victims[domain, each] for each in servers]
        await self._in_burst(random)
        for victim in victims:
            await victim.kill()
        await asyncio.sleep(down_s)
        for victim in victims:
            await victim.start()
        for victim in victims:
            await victim.ready()

    async def cut(self, ways: Sequence[tuple[int, int]], meanwhile: Awaitable[None], random: Random) -> None:
        """Let nothing pass these ways between domains until ``meanwhile`` is done."""
        await self._in_burst(random)
        began_ns = time.monotonic_ns()
        for source, target in ways:
            await asyncio.to_thread(self._network.cut, source, target)
        await meanwhile
        for source, target in ways:
            await asyncio.to_thread(self._network.heal, source, target)
        healed_ns = time.monotonic_ns()
        # Acknowledgements go the other way.
        both = {*ways, *((target, source) for source, target in ways)}
        self.cuts += [Cut(source, target, began_ns, healed_ns) for source, target in sorted(both)]

    async def _in_burst(self, random: Random) -> None:
        """Return while events of a burst are on their way."""
        self._burst()
        await asyncio.sleep(random.uniform(0, AFTER_BURST_S_MAX))

    async def end(self) -> None:
        """Kill all servers; raise :class:`~faults.victim.Died` if one had ended by itself."""
        for victim in self._victims.values():
            await victim.kill()
