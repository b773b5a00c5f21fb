"""Several servers of which one lies to the others; the honest ones are observed as one server."""

from __future__ import annotations

from collections.abc import Sequence

from hostile.server import Server


class Servers:
    """Honest servers and a liar: the figures are those of the honest ones."""

    trace = ""

    def __init__(self, honest: Sequence[Server], liar: Server) -> None:
        self._honest = honest
        self._liar = liar
        self.data = honest[0].data

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
