"""Domain of three servers, of which one lies to the other two; these are observed as one server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.domain_file import Place, place_servers
from hostile.attack import DOMAIN
from hostile.network import ATTACKER, SECOND, SERVER, Network
from hostile.server import PORTS, Server
from wanderbus.runtime.files.domain_file import create_domain

LIAR: Final = "s3"
PLACES: Final = {
    "s1": Place(SERVER, PORTS["port"], ("access", "resolution", "directory")),
    "s2": Place(SECOND, PORTS["port"], ("access", "resolution")),
    LIAR: Place(ATTACKER, PORTS["port"], ("access",)),
}


class Domain:
    """Servers of a domain; the figures are those of the two honest ones, ``orders`` is the directory of the liar."""

    trace = ""

    def __init__(self, network: Network, directory: Path, users: Sequence[str], orders: Path) -> None:
        file = create_domain(directory / "domain", DOMAIN, len(PLACES))
        place_servers(file, PLACES)
        made = {}
        for name, place in PLACES.items():
            own = directory / name
            own.mkdir()
            liar = orders if name == LIAR else None
            made[name] = Server(network, own, users, host=place.host, member=(file, name), liar=liar)
        self._liar = made.pop(LIAR)
        self._honest = list(made.values())
        self.data = self._honest[0].data

    @property
    def ended(self) -> int:
        """Return the number of times that one ended without being stopped."""
        return sum(each.ended for each in self._honest)

    def start(self) -> float:
        """Start all, and return the duration of the slowest start of an honest one."""
        slowest_s = max(each.start() for each in self._honest)
        self._liar.start()
        return slowest_s

    def stop(self) -> None:
        """Stop all in order."""
        for each in (*self._honest, self._liar):
            each.stop()

    def has_ended(self) -> bool:
        """Return whether one ended without being stopped."""
        return any(each.has_ended() for each in self._honest)

    def rss_mib(self) -> float:
        """Return the resident memory of the one that has more."""
        return max(each.rss_mib() for each in self._honest)

    def open_files(self) -> int:
        """Return the number of descriptors of the one that has more."""
        return max(each.open_files() for each in self._honest)

    def cpu_s(self) -> float:
        """Return the processor time that they have used."""
        return sum(each.cpu_s() for each in self._honest)

    def waited_s(self) -> float:
        """Return how long they were ready without a processor."""
        return sum(each.waited_s() for each in self._honest)
