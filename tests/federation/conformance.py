"""Cells of the conformance of federations: each method with each model of channels on both sides, and each merging.

The same users publish and subscribe in the same way in each cell, and each has to receive the same events (SPEC M-05).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Final, Literal, NamedTuple

from tests.federation.domains import Domains
from wanderbus.channels.interest.interest_set import MODES, InterestMode
from wanderbus.federation.routing_messages import Method
from wanderbus.filters import parse
from wanderbus.simulation.domains.domain_device import DomainDevice

Model = Literal["ordered", "decentralised"]

MODELS: Final[tuple[Model, ...]] = ("ordered", "decentralised")
SERVER_METHODS: Final[tuple[Method, ...]] = ("multicast", "rendezvous", "tree")
"""Methods that servers have."""

_SERVERS: Final = {"alpha": ("a1", "a2"), "beta": ("b1", "b2"), "gamma": ("g1",)}
_WANTED: Final = (("b1", "x > 2"), ("b2", "x == 1 or x > 4 and x < 8"), ("b2", "x < 4"), ("g1", ""), ("a1", "x == 9"))
"""Server and filter of each reader."""
_VALUES: Final = range(10)


class Cell(NamedTuple):
    """A method, the models of the domain that publishes and of one that receives, and the merging of both."""

    method: Method
    source: Model
    target: Model
    merging: InterestMode

    def __str__(self) -> str:
        return "/".join(self)


CELLS: Final = tuple(Cell(*each) for each in product(SERVER_METHODS, MODELS, MODELS, MODES))


def problems_of(cell: Cell) -> list[str]:
    """Return how the deliveries of a cell differ from those of all others."""
    decentralised = [
        name for name, model in (("alpha", cell.source), ("beta", cell.target)) if model == "decentralised"
    ]
    domains = Domains(
        _SERVERS,
        gateways={name: servers for name, servers in _SERVERS.items() if name not in decentralised},
        decentralised=decentralised,
        method=cell.method,
        merging=cell.merging,
        apart=[frozenset(("alpha", "beta"))] if cell.method == "tree" else (),
    )
    readers = [domains.device(server, f"reader-{place}") for place, (server, _) in enumerate(_WANTED)]
    for reader, (_, wanted) in zip(readers, _WANTED, strict=True):
        reader.subscribe("T", wanted)
    publishers = [domains.device(server, f"publisher-{server}") for server in ("a1", "a2")]
    domains.wait()
    for publisher in publishers:
        domains.publish(publisher, *_VALUES)
    readers[0].unsubscribe_all()
    domains.wait()
    for publisher in publishers:
        domains.publish(publisher, *[each + len(_VALUES) for each in _VALUES])
    return [*_differences(readers, publishers), *domains.problems()]


def _differences(readers: list[DomainDevice], publishers: list[DomainDevice]) -> Iterator[str]:
    for place, (reader, (server, text)) in enumerate(zip(readers, _WANTED, strict=True)):
        wanted = parse(text)
        offered = range(len(_VALUES) if place == 0 else 2 * len(_VALUES))
        for publisher in publishers:
            events = {uid: each.event for uid, each in publisher.published.items()}
            expected = [uid for uid, event in events.items() if event["x"] in offered and wanted.matches(event)]
            received = [item.text for items in reader.items.values() for item in items if item.text in events]
            if received != expected:
                yield f"a reader of {text or 'everything'} at {server} has {received} (expected {expected})"
