"""Circuits as a server and a gateway know them (decision 0161)."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

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
