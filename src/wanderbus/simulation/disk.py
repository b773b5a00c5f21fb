"""Simulated disk: keeps synced data, and after a crash any prefix of unsynced data (DESIGN rule 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from wanderbus.simulation.world import World

LogEntry = tuple[int, int, bytes]


class Disk:
    """The event log and the state store of one simulated server."""

    def __init__(self, world: World) -> None:
        self.log: list[LogEntry] = []
        self.rows: dict[str, dict[str, bytes]] = {}
        self.rows_offset = 0
        self._world = world
        self._synced = 0
        self._syncing = False
        self._urgent = False
        """True if somebody waits for entries that are not being synced yet."""
        self._power = 0
        self.on_append: Callable[[], None] = lambda: None
        """Called when entries were written but not synced yet: the worst moment for a crash."""
        self._pending: list[tuple[Mapping[str, Mapping[str, bytes | None]], int]] = []
        self._synced_to: Callable[[int], None] = lambda durable: None

    def append(self, entries: Sequence[LogEntry], synced: Callable[[int], None], *, urgent: bool = True) -> None:
        """Write ``entries``; call ``synced`` with the durable next offset after each sync of the group commit.

        Entries that are not ``urgent`` wait for urgent ones, or for rows to save.
        """
        self.log.extend(entries)
        self._urgent |= urgent
        self._synced_to = synced
        self.on_append()
        self._sync_if_wanted()

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
        kept = self._world.random.randint(self._synced, len(self.log))
        self._world.note("disk", f"crash keeps {kept} of {len(self.log)} records, {self._synced} synced")
        del self.log[kept:]
        self._synced = kept

    def forget_rows(self) -> None:
        """Delete the state file; the log is whole."""
        self.rows.clear()
        self.rows_offset = 0

    def _sync_if_wanted(self) -> None:
        if self._syncing or not (self._urgent or self._pending):
            return
        self._syncing, self._urgent = True, False
        target, power = len(self.log), self._power

        def finished() -> None:
            if power != self._power:
                return
            self._syncing = False
            self._synced = target
            self._commit_rows()
            self._synced_to(target)
            self._sync_if_wanted()

        self._world.after(self._world.random.uniform(0.0002, 0.01), finished)

    def _commit_rows(self) -> None:
        while self._pending and self._pending[0][1] <= self._synced:
            changes, self.rows_offset = self._pending.pop(0)
            for table, rows in changes.items():
                stored = self.rows.setdefault(table, {})
                for key, row in rows.items():
                    if row is None:
                        stored.pop(key, None)
                    else:
                        stored[key] = row
