"""Storage of a simulated broker, which outlives it: its disk, readers of its past, and its matching engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from wanderbus.broker.messages import (
    Append,
    Appended,
    EventsWanted,
    HistoryWanted,
    MatchesWanted,
    OffsetWanted,
)
from wanderbus.broker.state.state import BrokerState
from wanderbus.machine import Input, Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import decode_record
from wanderbus.simulation.disk import SimulatedDisk
from wanderbus.simulation.engine_beside import EngineBeside
from wanderbus.simulation.past_events import read_events, read_own
from wanderbus.simulation.world import World


class SimulatedStorage:
    """Performs the outputs of a broker that are for its disk, and feeds it the answers with ``give``.

    An answer to an earlier life of the broker is lost.

    :param save_s: shortest and longest pause until the rows are saved again
    """

    def __init__(
        self, world: World, config: BrokerConfig, give: Callable[[Input], None], *, save_s: tuple[float, float]
    ) -> None:
        self.disk = SimulatedDisk(world)
        self.engine = EngineBeside(world, self.disk)
        """The matching engine beside the broker; a crash of the broker leaves it running."""
        self.log_begins = 0
        """Offset below which records of the log are lost for other servers, and for readers of channels."""
        self.lives = 0
        self.is_up = False
        """True while the broker runs."""
        self._world = world
        self._config = config
        self._give = give
        self._save_s = save_s

    def start(self) -> BrokerState:
        """Begin a life of the broker; return its state."""
        self.lives += 1
        self.is_up = True
        return self.recovered()

    def stop(self) -> None:
        """End the life of the broker."""
        self.is_up = False

    def crash(self, *, lose_rows: bool) -> None:
        """Lose power; the state file may be lost too."""
        self.stop()
        self.disk.crash()
        if lose_rows:
            self.disk.forget_rows()

    def recovered(self, *, from_log_alone: bool = False) -> BrokerState:
        """Return the state on the disk: rows updated from the log, or rebuilt from the log alone."""
        state = BrokerState(self._config.server, self._config.publishes_remembered)
        log = self.disk.log
        if not from_log_alone and self.disk.rows_offset:
            state.load({name: rows.items() for name, rows in self.disk.rows.items()}, self.disk.rows_offset)
            state.wall_us = log[state.offset - 1][1]
        for offset, _, payload in log[state.offset :]:
            state.apply(offset, decode_record(payload))
        return state

    def check_rows(self, state: BrokerState) -> Iterator[str]:
        """Yield the differences between live state, rows with the rest of the log, and the log alone (DESIGN 5.1)."""
        live = _rows(state)
        for what, stored in (
            ("the rows with the log", self.recovered()),
            ("the log alone", self.recovered(from_log_alone=True)),
        ):
            for table, rows in _rows(stored).items():
                if rows != live[table]:
                    differing = [key for key in rows.keys() | live[table] if rows.get(key) != live[table].get(key)]
                    yield f"{what} and the live state differ in {table}: {sorted(differing)[:3]}"

    def save_later(self, state: BrokerState) -> None:
        """Save the changed rows of ``state`` now and then, until the broker crashes."""

        def save() -> None:
            self.disk.save(state.changes(), state.offset)
            self.save_later(state)

        self._world.after(self._world.random.uniform(*self._save_s), self._in_this_life(save))

    def perform(self, output: Output) -> bool:
        """Perform ``output``; return False if it is not for the disk."""
        match output:
            case Append():
                self._append(output)
            case EventsWanted() | HistoryWanted() | OffsetWanted():
                # The answer comes after a while, from the log as it is then.
                answer = self._in_this_life(lambda: self._read(output))
                self._world.after(self._world.random.uniform(0.0002, 0.05), answer)
            case MatchesWanted():
                life = self.lives
                self.engine.ask(output, lambda read: self._give_to(life, read))
            case _:
                return False
        return True

    def _append(self, output: Append) -> None:
        life, log = self.lives, output.log
        self.disk.append(
            log, output.entries, lambda durable: self._give_to(life, Appended(log, durable)), urgent=output.urgent
        )

    def _read(self, wanted: EventsWanted | HistoryWanted | OffsetWanted) -> None:
        if isinstance(wanted, EventsWanted):
            assert wanted.piece.end <= self.disk.durable, "the answer ends with records that are not durable"
            self._give(read_events(self.disk, self.log_begins, wanted))
        else:
            self._give(read_own(self.disk, wanted))

    def _give_to(self, life: int, given: Input) -> None:
        if self.is_up and life == self.lives:
            self._give(given)

    def _in_this_life(self, action: Callable[[], None]) -> Callable[[], None]:
        """Return ``action`` for later; it does nothing once the broker has crashed."""
        life = self.lives
        return lambda: action() if self.is_up and life == self.lives else None


def _rows(state: BrokerState) -> dict[str, dict[str, bytes]]:
    return {table.name: {key: msgspec.json.encode(row) for key, row in table.items()} for table in state.tables}
