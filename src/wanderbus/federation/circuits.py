"""Circuits as a server and a gateway know them (decision 0161)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Final, NamedTuple

import msgspec


class HostedCircuit(msgspec.Struct, frozen=True):
    """A circuit that ends here: the link between servers that it uses, 0 for the gateway here, and its number there."""

    peer_link: int
    number: int


class SentPlace(NamedTuple):
    """A place up to which the foreign domain has something to acknowledge, unless it ``is_skipped``."""

    epoch: int
    number: int
    is_skipped: bool


class ExportCircuit(msgspec.Struct):
    """The circuit to one server, and what the foreign domain has not acknowledged of it yet, in order."""

    number: int
    unacknowledged: deque[SentPlace] = msgspec.field(default_factory=deque)


CIRCUITS_MAX: Final = 2**40
"""Circuits of the gateways of one generation: those of a later one, on the same links, have other numbers."""


def circuit_numbers(generation: int, domains: int) -> list[Callable[[], int]]:
    """Return the functions that return the numbers of circuits for each domain, whose place is in each number."""
    first = generation * CIRCUITS_MAX // max(1, domains) * domains
    return [count(first + place, domains).__next__ for place in range(1, domains + 1)]


def domain_of_circuit(circuit: int, domains: int) -> int:
    """Return the place of the domain of a circuit."""
    return (circuit - 1) % domains
