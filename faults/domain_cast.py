"""Cast of a domain run: agents on few hosts, spread over servers, subjects and filters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Final

from demo.network import Network
from faults.agents import INTERESTS
from faults.domain_journal import AgentRole, HostRole, Reader
from faults.domain_servers import ACCESS
from harness.domain_file import Place

HOSTS_MAX: Final = 8
"""Processes of agents; with the servers, as many hosts as the network has addresses for."""

AGENTS_PER_HOST: Final = 8
FAN_OUT: Final = 2
"""Subscribers of an event, before filters."""

OUTBOX_EACH: Final = 4
"""One of so many agents publishes through an outbox."""

DECENTRALISED_EACH: Final = 2
"""Decentralised subjects that each agent subscribes to: causes and effects may be of different subjects."""


def cast(
    count: int, network: Network, places: Mapping[str, Place], seed: int, directory: Path, rate_per_s: float
) -> list[HostRole]:
    """Return the roles of ``count`` agents, spread over hosts, servers, subjects and filters."""
    random = Random(seed)
    ordered = [f"Ordered{number}" for number in range(max(2, count // FAN_OUT))]
    decentralised = [f"Free{number}" for number in range(max(2, count * DECENTRALISED_EACH // FAN_OUT))]
    agents: list[AgentRole] = []
    for number in range(count):
        subjects = [ordered[number % len(ordered)], *random.sample(decentralised, DECENTRALISED_EACH)]
        readers = tuple(Reader(subject, _interest(random)) for subject in subjects)
        server = ACCESS[number % len(ACCESS)]
        address = f"{places[server].host}:{places[server].sip_port}"
        agents.append(AgentRole(number, address, readers, number % OUTBOX_EACH == 0, server))
    names = host_names(count)
    return [
        HostRole(
            name,
            str(directory),
            tuple(agents[place :: len(names)]),
            tuple(ordered),
            tuple(decentralised),
            rate_per_s / len(names),
            random.getrandbits(32),
            network.address(name) if network.needs_order else None,
        )
        for place, name in enumerate(names)
    ]


def host_names(agents: int) -> list[str]:
    """Return the hosts of so many agents."""
    return [f"h{number}" for number in range(max(1, min(HOSTS_MAX, agents // AGENTS_PER_HOST)))]


def _interest(random: Random) -> str:
    return random.choice(["everything", "everything", *INTERESTS])
