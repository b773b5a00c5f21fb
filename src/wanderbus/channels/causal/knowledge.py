"""Knowledge of who was sent what: the sparse matrix "k has sent n to j" (Raynal, Schiper and Toueg 1991)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from wanderbus.channels.causal.header import Dot, Header, HeaderEntry, Origin, bitmap, members


class Knowledge:
    """Last event of each origin that was sent to each server, in the causal past of ``server``.

    An event that is surely delivered has no place here, and neither has one that precedes another event to the same
    server: who waits for the later one waits for the earlier one.
    """

    def __init__(self, server: int) -> None:
        self.server = server
        self.removed: set[int] = set()
        """Servers that left the domain for good: nobody waits for what they lack."""
        self.forgotten: set[int] = set()
        """Servers whose events everybody has."""
        self._columns: dict[int, dict[Origin, tuple[int, int]]] = {}
        """Number by destination and origin, and how many events this server had published when it learnt it."""
        self._settled: dict[Origin, tuple[int, int]] = {}
        """Settled mark of each origin, and the servers that lag behind it."""

    def begin_again(self, former: Origin) -> None:
        """Forget what this server sent under its incarnation before, and count its events from the beginning."""
        self._settled.pop(former, None)
        for server, column in self._columns.items():
            self._columns[server] = {each: (number, 0) for each, (number, _) in column.items() if each != former}

    def publish(self, origin: Origin, number: int, befores: Mapping[int, int]) -> tuple[HeaderEntry, ...]:
        """Note that this server sends an event to the servers of ``befores``; return the entries of its header.

        These are the causes that the destinations wait for, and what changed since the event before for any of them.
        """
        if not befores:
            return ()
        oldest = min(befores.values())
        found: dict[Dot, list[int]] = {}
        for server, column in self._columns.items():
            is_destination = server in befores
            for known, (last, learnt) in column.items():
                if (known != origin) if is_destination else learnt >= oldest:
                    found.setdefault((known, last), []).append(server)
        for server in befores:
            # The destinations learn this entry from the bitmap of the event itself.
            self._columns[server] = {origin: (number, number - 1)}
        return tuple(HeaderEntry(*dot, bitmap(servers)) for dot, servers in sorted(found.items()))

    def learn(self, header: Header, published: int) -> None:
        """Take over what a delivered event tells; ``published`` is how many events this server has published."""
        covered = header.servers
        self.learn_entries(header.entries, published, covered)
        for server in members(covered):
            column = self._columns.get(server, {})
            for entry in header.entries:
                if entry.concerns(server) and column.get(entry.origin, (0, 0))[0] <= entry.number:
                    column.pop(entry.origin, None)
            self._put(server, header.origin, header.number, published)
        self.settle(header.origin, header.settled, header.lagging)

    def learn_entries(self, entries: Iterable[HeaderEntry], published: int, covered: int = 0) -> bool:
        """Take over ``entries`` for all servers but the ``covered`` ones; return whether any was new."""
        is_new = False
        for entry in entries:
            for server in members(entry.servers & ~covered):
                is_new |= self._put(server, entry.origin, entry.number, published)
        return is_new

    def entries(self) -> tuple[HeaderEntry, ...]:
        """Return everything that is known."""
        found: dict[Dot, list[int]] = {}
        for server, column in self._columns.items():
            for origin, (number, _) in column.items():
                found.setdefault((origin, number), []).append(server)
        return tuple(HeaderEntry(*dot, bitmap(servers)) for dot, servers in sorted(found.items()))

    def settle(self, origin: Origin, number: int, lagging: int) -> None:
        """Note that all events of ``origin`` up to ``number`` are delivered everywhere but at the ``lagging``."""
        self._settled[origin] = number, lagging
        for server in self._columns:
            if not lagging >> server & 1:
                self.reach(server, origin, number)

    def reach(self, server: int, origin: Origin, number: int) -> None:
        """Note that ``server`` has delivered all events of ``origin`` up to ``number``."""
        column = self._columns.get(server, {})
        if origin in column and column[origin][0] <= number:
            del column[origin]

    def columns(self) -> dict[int, tuple[tuple[int, int, int, int], ...]]:
        """Return the entries by destination, sorted: server and incarnation of the origin, number, when learnt."""
        return {
            server: tuple(sorted((*origin, *number) for origin, number in column.items()))
            for server, column in self._columns.items()
            if column
        }

    def load_column(self, server: int, entries: Iterable[tuple[int, int, int, int]]) -> None:
        """Take over what :meth:`columns` gave for the destination ``server``."""
        self._columns[server] = {(origin, life): (number, learnt) for origin, life, number, learnt in entries}

    def settled(self) -> Mapping[Origin, tuple[int, int]]:
        """Return the settled mark of each origin, and the servers that lag behind it."""
        return self._settled

    def load_settled(self, origin: Origin, number: int, lagging: int) -> None:
        """Take over a settled mark; the columns are as they were behind it."""
        self._settled[origin] = number, lagging

    def remove(self, server: int) -> None:
        """Forget what ``server`` lacks: it left the domain for good."""
        self.removed.add(server)
        self._columns.pop(server, None)

    def forget(self, server: int) -> None:
        """Forget what ``server`` sent: everybody has it."""
        self.forgotten.add(server)
        for column in self._columns.values():
            for origin in [each for each in column if each[0] == server]:
                del column[origin]
        for origin in [each for each in self._settled if each[0] == server]:
            del self._settled[origin]

    def is_settled(self, dot: Dot, servers: int) -> bool:
        """Return whether the event is surely delivered at all ``servers``."""
        number, lagging = self._settled.get(dot[0], (0, 0))
        return dot[1] <= number and not lagging & servers

    def is_settled_at(self, origin: Origin, number: int, lagging: int) -> bool:
        """Return whether this is the settled mark of ``origin`` already."""
        return self._settled.get(origin, (0, 0)) == (number, lagging)

    def _put(self, server: int, origin: Origin, number: int, published: int) -> bool:
        if server == self.server or server in self.removed or origin[0] in self.forgotten:
            return False
        column = self._columns.setdefault(server, {})
        if column.get(origin, (0, 0))[0] >= number or self.is_settled((origin, number), 1 << server):
            return False
        column[origin] = number, published
        return True
