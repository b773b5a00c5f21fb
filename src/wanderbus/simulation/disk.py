"""Simulated disk: keeps synced data, and after a crash any prefix of unsynced data (DESIGN rule 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from wanderbus.records import SERVER_LOG, AnyRecord, decode_record
from wanderbus.simulation.world import World

LogEntry = tuple[int, int, bytes]
SYNC_S_MAX: Final = 0.01
"""Longest time of a sync."""


class DiskCopy(NamedTuple):
    """Logs, rows, and the offset that the rows reflect."""

    logs: Mapping[str, Sequence[LogEntry]]
    rows: Mapping[str, Mapping[str, bytes]]
    rows_offset: int


class SimulatedDisk:
    """The logs, by name, and the state store of one simulated server; its rows reflect the server's own log."""

    def __init__(self, world: World) -> None:
        self.logs: dict[str, list[LogEntry]] = {SERVER_LOG: []}
        self.rows: dict[str, dict[str, bytes]] = {}
        self.rows_offset = 0
        self._world = world
        self._synced: dict[str, int] = {}
        """Durable next offset, by log."""
        self._syncing = False
        self._urgent = False
        """True if somebody waits for entries that are not being synced yet."""
        self._power = 0
        self.on_append: Callable[[], None] = lambda: None
        """Called when entries were written but not synced yet: the worst moment for a crash."""
        self._pending: list[tuple[Mapping[str, Mapping[str, bytes | None]], int]] = []
        self._synced_to: dict[str, Callable[[int], None]] = {}
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        """Actions that wait until the server's own log is durable below an offset."""

    @property
    def log(self) -> list[LogEntry]:
        """Return the server's own log."""
        return self.logs[SERVER_LOG]

    def records(self) -> list[AnyRecord]:
        """Return the records of a broker in its own log."""
        return [decode_record(payload) for _, _, payload in self.log]

    @property
    def durable(self) -> int:
        """Return the offset below which the server's own log is synced."""
        return self._synced.get(SERVER_LOG, 0)

    def append(
        self, log: str, entries: Sequence[LogEntry], synced: Callable[[int], None], *, urgent: bool = True
    ) -> None:
        """Write ``entries`` to ``log``; call ``synced`` with its durable next offset after each sync of all logs.

        Entries that are not ``urgent`` wait for urgent ones, or for rows to save.
        """
        self.logs.setdefault(log, []).extend(entries)
        self._urgent |= urgent
        self._synced_to[log] = synced
        self.on_append()
        self._sync_if_wanted()

    def when_durable(self, end: int, action: Callable[[], None]) -> None:
        """Do ``action`` as soon as the server's own log is durable below ``end``, unless the server crashes before."""
        self._waiting.append((end, action))
        self._do_waiting()

    def save(self, changes: Mapping[str, Mapping[str, bytes | None]], offset: int) -> None:
        """Commit rows that reflect every record below ``offset``, once those records are durable."""
        self._pending.append((changes, offset))
        self._commit_rows()
        self._sync_if_wanted()

    def crash(self) -> None:
        """Lose power: a prefix of the unsynced data survives."""
        self._power += 1
        self._syncing = self._urgent = False
        self._pending.clear()
        self._waiting.clear()
        for name, log in self.logs.items():
            synced = self._synced.get(name, 0)
            kept = self._world.random.randint(synced, len(log))
            self._world.note("disk", f"crash keeps {kept} of {len(log)} records, {synced} synced")
            del log[kept:]
            self._synced[name] = kept

    def copy(self) -> DiskCopy:
        """Return what is durable now."""
        logs = {name: log[: self._synced.get(name, 0)] for name, log in self.logs.items()}
        return DiskCopy(logs, {name: dict(rows) for name, rows in self.rows.items()}, self.rows_offset)

    def restore(self, copy: DiskCopy) -> None:
        """Replace everything by an earlier copy, after a crash."""
        self.logs = {name: list(log) for name, log in copy.logs.items()}
        self._synced = {name: len(log) for name, log in copy.logs.items()}
        self.rows = {name: dict(rows) for name, rows in copy.rows.items()}
        self.rows_offset = copy.rows_offset

    def forget_rows(self) -> None:
        """Delete the state file; the log is whole."""
        self.rows.clear()
        self.rows_offset = 0

    def _sync_if_wanted(self) -> None:
        if self._syncing or not (self._urgent or self._pending):
            return
        self._syncing, self._urgent = True, False
        targets, power = {name: len(log) for name, log in self.logs.items()}, self._power

        def finished() -> None:
            if power != self._power:
                return
            self._syncing = False
            self._synced |= targets
            self._commit_rows()
            for name, synced in list(self._synced_to.items()):
                if name in targets:
                    synced(targets[name])
            self._do_waiting()
            self._sync_if_wanted()

        self._world.after(self._world.random.uniform(0.0002, SYNC_S_MAX), finished)

    def _do_waiting(self) -> None:
        due = [action for end, action in self._waiting if end <= self.durable]
        self._waiting = [each for each in self._waiting if each[0] > self.durable]
        for action in due:
            action()

    def _commit_rows(self) -> None:
        while self._pending and self._pending[0][1] <= self._synced.get(SERVER_LOG, 0):
            changes, self.rows_offset = self._pending.pop(0)
            for table, rows in changes.items():
                stored = self.rows.setdefault(table, {})
                for key, row in rows.items():
                    if row is None:
                        stored.pop(key, None)
                    else:
                        stored[key] = row
