"""Requests to learn when interest counts in other domains, and the answers of a gateway (SPEC M-02)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import msgspec

from wanderbus.federation.routing_messages import Method
from wanderbus.machine import Output

Marks = Mapping[str, tuple[Method, Hashable]]
"""Marks of the interest in each type, by which a gateway finds out whether it counts."""


class InterestCounts(Output, frozen=True):
    """The gateway answers the request ``number`` of the server at the other end of ``link``."""

    link: int
    number: int


class EverywhereRequest(msgspec.Struct):
    """A request of a user: when it is given up, and the gateways that have not answered, None before they are asked."""

    name: str
    until: float
    mark: int | None = None
    gateways: set[str] | None = None
