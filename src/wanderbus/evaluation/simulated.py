"""Runs of the grid in virtual time: real agents, SIP, reliable UDP and broker, on a simulated network and disk.

The seed of a run is its only source of chance: the same seed gives the same run, whatever other runs do.
"""

from __future__ import annotations

from random import Random
from typing import Final

from wanderbus.errors import WanderbusError
from wanderbus.evaluation.grid import Cell, Experiment
from wanderbus.evaluation.outcome import Outcome, Receipts, outcome
from wanderbus.evaluation.plan import RunPlan, plan
from wanderbus.evaluation.roaming import Measured, Script, roam
from wanderbus.event import Gap, Notification
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.transports import RudpConfig
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.server import SimulatedServer
from wanderbus.simulation.system.traveller import Traveller
from wanderbus.simulation.world import World
from wanderbus.subscription import QueuePolicy

NEARBY: Final = PathConditions(delay_min_s=0.001, delay_max_s=0.01)
"""Delay of every path: a wireless network next to the server, without loss."""

READY_S: Final = 3.0
"""Time at which all are connected and have subscribed."""

REST_S_MAX: Final = 60.0
"""Time after the last event at which the consumer must be at rest."""

Job = tuple[Cell, Experiment, int]
"""A run: its cell, its experiment and its seed."""


class SimulatedRun:
    """A world with a server, a fixed publisher, and a consumer that follows the plan of a seed."""

    def __init__(self, cell: Cell, experiment: Experiment, seed: int) -> None:
        self._cell = cell
        self._seed = seed
        chance = Random(seed)
        self.plan: RunPlan = plan(cell, experiment, chance.random(), chance)
        self.receipts = Receipts()
        self.received_s = 0.0
        self._waits_for_event = False
        self._world = World(seed)
        self._network = Network(self._world, NEARBY)
        rudp = RudpConfig()
        queue = QueuePolicy(notifications_max=cell.buffer, when_full="drop_oldest")
        self.server = SimulatedServer(self._world, self._network, BrokerConfig(queue=queue), rudp)
        self._publisher, self._consumer = (
            Traveller(
                name,
                number,
                self._world,
                self._network,
                rudp,
                expressions=expressions,
                resumes=True,
                think_s_max=0.0,
            )
            for number, (name, expressions) in enumerate((("publisher", ()), ("consumer", ("",))), 1)
        )
        self._consumer.on_arrival = self._arrived

    def run(self) -> Outcome:
        """Run the plan; raise :class:`WanderbusError` if it fails or never ends."""
        world, made = self._world, self.plan
        self.server.start()
        self._publisher.start()
        self._consumer.start()
        world.run(READY_S)
        if not self._consumer.settled:
            raise WanderbusError(f"{self}: the consumer did not subscribe: {self._consumer.problems}")
        began_s = READY_S - made.begin_s
        for number in range(made.published):
            world.at(began_s + made.at_s(number), lambda number=number: self._publisher.publish({"Number": number}))  # type: ignore[misc]
        measured: list[Measured] = []
        self._script: Script = roam(made.changes, began_s, 1 / made.experiment.rate_per_s, self, measured)
        self._continue(None)
        world.run(began_s + made.end_s + REST_S_MAX, lambda: self.receipts.accounted >= made.published)
        return outcome(self._cell, self._seed, made, self.receipts, measured)

    def leave(self) -> None:
        """Lose the address: nothing reaches the consumer or leaves it."""
        self._network.cut(self._consumer.ip)

    def arrive(self) -> None:
        """Get another address."""
        self._network.mend(self._consumer.ip)
        self._consumer.move()

    def _continue(self, moment_s: float | None) -> None:
        """Continue the script until its next wait."""
        try:
            wanted = next(self._script) if moment_s is None else self._script.send(moment_s)
            while callable(wanted):
                wanted()
                wanted = self._script.send(self._world.now)
        except StopIteration:
            return
        if wanted is None:
            self._waits_for_event = True
        else:
            self._world.at(wanted, lambda: self._continue(self._world.now))

    def _arrived(self, item: Notification | Gap) -> None:
        if isinstance(item, Gap):
            self.receipts.gap(item.count, item.position.number)
            return
        number = item.event["Number"]
        assert isinstance(number, int)
        self.receipts.event(number, item.position.number)
        self.received_s = self._world.now
        if self._waits_for_event:
            self._waits_for_event = False
            self._continue(self.received_s)

    def __str__(self) -> str:
        return f"cell {self._cell} with seed {self._seed}"


def run_one(job: Job) -> Outcome:
    """Return the outcome of one run; the same every time."""
    return SimulatedRun(*job).run()
