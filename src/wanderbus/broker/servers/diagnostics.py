"""Diagnostics of a broker: what waits in its parts, and where an event would go."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from wanderbus.broker.links import Links
from wanderbus.broker.readers import Link, OpenReader
from wanderbus.broker.servers.decentralised_events import DecentralisedEvents
from wanderbus.broker.servers.settled_interest import SettledInterest
from wanderbus.event import Event


class Part(Protocol):
    """A part of the broker in which something may wait for an answer."""

    @property
    def waiting(self) -> Collection[object]:
        """Return what waits; empty once nothing is under way."""
        ...


class Diagnostics:
    """Looks into the ``parts`` of a broker, by what waits for answers in each, and changes nothing."""

    def __init__(
        self, links: Links, settled: SettledInterest, decentralised: DecentralisedEvents | None, **parts: Part
    ) -> None:
        self._links = links
        self._settled = settled
        self._decentralised = decentralised
        self._parts = parts

    @property
    def missing(self) -> Sequence[str]:
        """Return the servers whose interest is not complete here."""
        return self._settled.missing

    def waiting(self) -> dict[str, Collection[object]]:
        """Return what waits for answers, by part; a part where nothing waits is absent."""
        return {name: waiting for name, part in self._parts.items() if (waiting := part.waiting)}

    def unserved(self) -> Iterator[tuple[Link, OpenReader]]:
        """Yield readers that are sent nothing though something waits and nothing is unacknowledged: always none."""
        return self._links.unserved()

    def readers(self) -> Iterator[tuple[Link, OpenReader]]:
        """Yield every reader with its link."""
        return ((link, reader) for link in self._links.all() for reader in link.readers())

    def destinations(self, event: Event) -> frozenset[int]:
        """Return the numbers of the servers to which an event of a decentralised channel would go."""
        assert self._decentralised is not None, "the server has decentralised channels"
        return self._decentralised.index.destinations(event)
