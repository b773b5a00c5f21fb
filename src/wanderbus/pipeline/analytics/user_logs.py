"""Fold over one user's entries in the logs of several servers: a session goes on where it has moved (decision 0145).

The entries come in the order of time, so the logs take turns. If clocks differ, the target may import a session before
the source fences it. The entries of the target's log then wait for the source's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import Final

from wanderbus.pipeline.analytics.handovers import Handover, SessionMoves
from wanderbus.pipeline.analytics.user_fold import Fate, FoldEntry, MovedSession, Taking, UserFold
from wanderbus.pipeline.lake_offsets import base_below

HELD_MAX: Final = 100_000
"""Most entries of a user that wait for a session to leave another log; beyond it, the session is given up there."""


class UserLogs:
    """The folds of one user, one for each log.

    :param servers: the servers whose logs these are; those of several domains after their domains
    """

    def __init__(self, servers: Collection[str] = ()) -> None:
        self._servers = servers
        self._domains = {_domain_of(each) for each in servers} - {""}
        self._moves = SessionMoves[MovedSession]()
        self._folds: dict[int, UserFold] = {}
        self._held: dict[int, deque[FoldEntry]] = {}
        """Entries that wait, by the base of their log; the first of each log is an import."""
        self._held_count = 0
        self._given_up: set[tuple[str, int]] = set()

    @property
    def folds(self) -> Collection[UserFold]:
        """Return the folds in the order in which their logs began."""
        return self._folds.values()

    def step(self, entry: FoldEntry) -> Iterator[Fate | Taking]:
        """Apply one entry, and those that waited for it; yield what they settle."""
        base = base_below(entry.offset)
        if base in self._held or self._has_to_wait(base, entry):
            self._held.setdefault(base, deque()).append(entry)
            self._held_count += 1
            if self._held_count > HELD_MAX:
                yield from self._give_up()
            return
        yield from self._fold(base).step(entry)
        if entry.kind == "session_fenced":
            yield from self._go_on()

    def close(self) -> Iterator[Fate | Handover]:
        """Yield the matches that still wait, and the handovers."""
        while self._held:
            yield from (each for each in self._give_up() if isinstance(each, Fate))
        for fold in self._folds.values():
            yield from fold.close()
        for handover, moved in self._moves.rest():
            for match in moved.matches():
                yield Fate(match, "handed_over", handover.fenced_us)
        yield from self._moves.handovers()

    def _fold(self, base: int) -> UserFold:
        if (fold := self._folds.get(base)) is None:
            fold = self._folds[base] = UserFold(self._moves)
        return fold

    def _has_to_wait(self, base: int, entry: FoldEntry) -> bool:
        """Return whether an entry imports a session that another of these logs has to fence first."""
        if entry.kind != "session_imported":
            return False
        key = entry.session or "", entry.first or 0
        source, server = self._moves.handover(key).source or "", self._fold(base).server or ""
        # Another domain knows a server that is alone by the name of its gateway, and not by that in its log.
        is_of_other = _domain_of(source) in self._domains - {_domain_of(server)}
        is_known = is_of_other or (source in self._servers and source != server)
        return is_known and key not in self._given_up and not self._moves.has_left(key)

    def _go_on(self) -> Iterator[Fate | Taking]:
        """Apply the entries that need not wait any longer."""
        is_fenced = True
        while is_fenced:
            is_fenced = False
            for base, held in list(self._held.items()):
                while held and not self._has_to_wait(base, held[0]):
                    entry = held.popleft()
                    self._held_count -= 1
                    is_fenced |= entry.kind == "session_fenced"
                    yield from self._fold(base).step(entry)
                if not held:
                    del self._held[base]

    def _give_up(self) -> Iterator[Fate | Taking]:
        """Import the sessions that are waited for as if their sources were unknown."""
        for held in self._held.values():
            self._given_up.add((held[0].session or "", held[0].first or 0))
        yield from self._go_on()


def _domain_of(server: str) -> str:
    """Return the domain before the name of a server; "" if there is none."""
    return server.rpartition("/")[0]
