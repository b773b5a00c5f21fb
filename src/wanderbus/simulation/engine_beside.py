"""A simulated matching engine in a world with time: it reads a server's disk, and answers late (SPEC T-06)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from wanderbus.broker.messages import MatchesRead, MatchesWanted
from wanderbus.simulation.disk import SimulatedDisk
from wanderbus.simulation.engine import SimulatedEngine
from wanderbus.simulation.world import World


class EngineBeside(SimulatedEngine):
    """The engine beside a server with ``disk``; a crash of the server leaves it running."""

    def __init__(self, world: World, disk: SimulatedDisk) -> None:
        super().__init__(_Payloads(disk))
        self.delay_s_max = 0.5
        """Longest time until an answer, once there are records to match."""
        self._world = world
        self._disk = disk

    def ask(self, wanted: MatchesWanted, give: Callable[[MatchesRead], None]) -> None:
        """Call ``give`` with the answer, after a delay of its own; as on Spark, an answer waits for new records."""

        def begin() -> None:
            self._world.after(self._world.random.uniform(0.001, self.delay_s_max), answer)

        def answer() -> None:
            give(self.answer(wanted, self._disk.durable))

        is_first = wanted.subscriptions is not None
        self._disk.when_durable(wanted.first if is_first else wanted.first + 1, begin)


class _Payloads(Sequence[bytes]):
    """The payloads of a disk's records, without a copy of the log."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def __len__(self) -> int:
        return len(self._disk.log)

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        if isinstance(index, int):
            return self._disk.log[index][2]
        return [payload for _, _, payload in self._disk.log[index]]
