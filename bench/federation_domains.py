"""Domains of one operator each that share events: their servers as processes, and the jobs of subscribers at them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.broker_ours import connected, running
from bench.broker_peer import HOST, Deliveries, Place
from harness import domain_file
from harness.domain_file import place_servers
from harness.ports import free_port
from harness.workers import Line, Worker
from wanderbus.client.operator import Operator
from wanderbus.runtime.files.domain_file import create_domain, read_domain
from wanderbus.runtime.files.federation_file import card_of, create_federation, put_domain, read_federation
from wanderbus.settings.federation import ForeignDomainSettings

NAMES: Final = ("alpha.test", "beta.test", "gamma.test")
TYPES: Final = tuple(f"Shared.{number}" for number in range(4))
"""Types that all domains send and receive."""

OWN_TYPES: Final = tuple(f"Own.{number}" for number in range(4))
"""Types that stay in their domain."""

KNOWN_S_MAX: Final = 30.0
"""Longest time until a domain knows what another one wants."""

_OPERATOR: Final = "olga"
_USERS: Final = ("publisher0", "subscriber0", _OPERATOR)
_ROLES: Final = ("access", "sip", "leader")


@contextlib.contextmanager
def federated(directory: Path, domains: int = 2, servers: int = 1) -> Iterator[tuple[tuple[Place, ...], ...]]:
    """Run ``domains`` of ``servers`` servers each for the block, all of them gateways; return the servers of each."""
    names = [f"s{number}" for number in range(1, servers + 1)]
    files = {name: directory / name / "federation.toml" for name in NAMES[:domains]}
    for name, file in files.items():
        file.parent.mkdir()
        create_federation(file, name, {each: f"{HOST}:{free_port()}" for each in names})
    for name, file in files.items():
        for other, of_other in files.items():
            if other != name:
                card = card_of(read_federation(of_other))
                foreign = ForeignDomainSettings(
                    public_key=card.public_key, gateways=card.gateways, receive=TYPES, send=TYPES
                )
                put_domain(file, other, foreign)
    with contextlib.ExitStack() as stack:
        places = [_servers(stack, name, file, names, 10 * number) for number, (name, file) in enumerate(files.items())]
        yield tuple(places)


def _servers(
    stack: contextlib.ExitStack, domain: str, federation: Path, names: Sequence[str], first: int
) -> tuple[Place, ...]:
    """Run the servers of a domain; ``first`` tells its loopback addresses from those of others."""
    belongs: dict[str, tuple[str, ...]] = {names[0]: ("--domain", domain)}
    if len(names) > 1:
        file = create_domain(federation.parent / "domain", domain, len(names))
        roles = {name: each.roles for name, each in read_domain(file).settings.servers.items()}
        hosts = {name: f"127.0.0.{first + number}" for number, name in enumerate(names, 1)}
        place_servers(
            file,
            {name: domain_file.Place(hosts[name], 5060, roles[name], free_port(), link_host=HOST) for name in names},
        )
        belongs = {name: ("--event-domain", str(file), "--event-server", name) for name in names}
    places = []
    for name in names:
        own = federation.parent / name
        own.mkdir()
        shares = ("--federation", str(federation), "--federation-gateway", name, "--admin", _OPERATOR)
        place = stack.enter_context(running(own, _USERS, *belongs[name], *shares))
        places.append({**place, "domain": domain})
    return tuple(places)


def wait_until_known(places: Sequence[Place], filters: int) -> None:
    """Wait until each server of a domain, which are at ``places``, has so many filters of other domains."""
    with Worker() as worker:
        worker.start(_until_known, list(places), filters).receive()


async def _until_known(line: Line, places: Sequence[Place], filters: int) -> bool:
    until_s, wanted = time.monotonic() + KNOWN_S_MAX, filters * len(places)
    async with contextlib.AsyncExitStack() as stack:
        agents = [await stack.enter_async_context(connected(each, _OPERATOR, Operator.SESSION)) for each in places]
        while time.monotonic() < until_s:
            rows = [row for each in agents async for row in each.operator.foreign_domains()]
            if sum(each.filters for each in rows if each.is_linked and each.is_settled) == wanted:
                return True
            await asyncio.sleep(0.05)
    raise RuntimeError(f"{places[0]['domain']} does not know {filters} filters of the other domain: {rows}")


class Received(NamedTuple):
    """Events that a subscriber has received in all, and how many of them are different ones."""

    events: int
    different: int


async def consume(line: Line, place: Place, subjects: Sequence[str]) -> Received:
    """Subscribe to each of ``subjects``, report it, and serve requests for events until one is None.

    A request has the number of the events that will be published then. Its first answer is that it is known, and the
    second one the times of these events (:class:`Consumed`).
    """
    deliveries, stamps = Deliveries(0), list[float]()

    async def read(notifications: Any) -> None:
        async for notification in notifications:
            stamps.append(float(notification.event["At"]))
            deliveries.add(stamps[-1])

    async with connected(place, "subscriber0") as agent, contextlib.AsyncExitStack() as stack:
        for subject in subjects:
            subscription = await stack.enter_async_context(agent.subscribe(subject))
            stack.callback(asyncio.create_task(read(subscription)).cancel)
        line.send("subscribed")
        while (events := await line.receive()) is not None:
            deliveries = Deliveries(events)
            line.send("ready")
            line.send(await deliveries.all())
    return Received(len(stamps), len(set(stamps)))
