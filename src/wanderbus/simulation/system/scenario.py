"""Simulated history of the whole system: the seed decides who publishes, moves, disappears and crashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from wanderbus.machine import Address
from wanderbus.mobility.flow import KEEP_ALIVE_S, PONG_WITHIN_S, RECOVER_S_MAX
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.transports import RudpConfig
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.scenario import Scenario
from wanderbus.simulation.server import SERVER_IP, SimulatedServer
from wanderbus.simulation.signalling import SHARES, SignallingDraw
from wanderbus.simulation.status_watch import StatusWatch
from wanderbus.simulation.system.calling import call_all
from wanderbus.simulation.system.checkers import check_all
from wanderbus.simulation.system.traveller import Traveller
from wanderbus.subscription import QueuePolicy

EXPRESSIONS: Final = (
    "(Stock == PETR4) and (Price < 25)",
    "Stock == VALE3",
    "(Price >= 40) or (Stock == ITUB4)",
    "not (Price < 10)",
    "",
)
STOCKS: Final = ("PETR4", "VALE3", "ITUB4")

ACTIVE_S: Final = 40.0
"""Seconds with planned events."""

HEAL_S: Final = 1.5
"""Bound for a moved agent to be reached at its new address, without loss: three round trips and no timeout."""

NEAR_S: Final = 0.02
"""The longest delay between two sockets of one host."""

SETTLE_S: Final = 450.0
"""Seconds in which a repaired world has to come to rest."""

CALM_S: Final = 8.0
"""Seconds for which it then stays at rest, longer than the trial of a data channel."""

REGISTERED_S: Final = KEEP_ALIVE_S["TCP"] + PONG_WITHIN_S + 2 * RECOVER_S_MAX
"""Time in which an agent notices that its connection to the server broke silently, and has registered over another."""

SETTLE_ROUNDS_MAX: Final = 5
"""Number of times that it may come to rest and leave it again: there are four transports for data."""


class SystemScenario(Scenario):
    """A world with one server and a few travellers, set up by the seed."""

    counted: ClassVar = {
        "events": "events",
        "notifications": "notifications",
        "address_changes": "address changes",
        "agent_kills": "agents killed",
        "server_crashes": "server crashes",
        "datagrams": "datagrams",
    }

    traveller_class: type[Traveller] = Traveller
    expressions: Sequence[str] = EXPRESSIONS
    """Expressions and patterns to which travellers subscribe."""
    relay_addresses: Sequence[Address] = ()
    over_tcp = 0.3
    """Chance that a traveller's data use TCP."""
    signalling_shares: Sequence[float] = SHARES
    """Shares of travellers that signal over TCP."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        self.moves = 0
        self.kills = 0
        self._cuts = 0
        self._last_move: dict[str, int] = {}
        draw = self.world.random
        self.network = Network(self.world, self._conditions())
        self.network.towards[SERVER_IP] = self._draw_return_path(self.network.conditions)
        near_s = min(self.network.conditions.delay_max_s, NEAR_S)
        self.network.within = msgspec.structs.replace(
            self.network.conditions, delay_min_s=NEAR_S / 100, delay_max_s=near_s
        )
        rudp = RudpConfig()
        encryption = draw.random() < 0.85
        signalling = SignallingDraw(self.world, self.signalling_shares)
        self.server = SimulatedServer(
            self.world, self.network, self._broker_config(), rudp, encryption=encryption, relays=self.relay_addresses
        )
        self.travellers = [
            self.traveller_class(
                f"user{number}",
                number,
                self.world,
                self.network,
                rudp,
                expressions=draw.sample(self.expressions, draw.randint(1, 3)),
                resumes=draw.random() < 0.8,
                think_s_max=draw.choice([0.01, 0.1, 1.0]),
                encryption=encryption,
                data_transport="TCP" if draw.random() < self.over_tcp else "AUTO",
                transport=signalling.transport(),
            )
            for number in range(1, draw.randint(2, 4) + 1)
        ]
        self.watch = StatusWatch(
            lambda: [each for traveller in self.travellers if (each := traveller.watched)], lambda: self.server.access
        )
        self.world.on_step = lambda: self.watch.look(self.world.now)

    def _check_promises(self) -> None:
        self.problems += [*check_all(self.server, self.travellers), *self._call_over_tcp(), *self.check()]
        self.problems += self.watch.problems

    def counts(self) -> dict[str, float]:
        return {
            "events": sum(len(traveller.accepted) for traveller in self.travellers),
            "notifications": sum(len(items) for each in self.travellers for items in each.committed.items.values()),
            "address_changes": self.moves,
            "agent_kills": self.kills,
            "server_crashes": self.server.crashes,
            "datagrams": self.network.delivered,
        }

    def tour(self) -> None:
        """Let more happen in the repaired world, before it is checked."""

    def check(self) -> list[str]:
        """Return one line for each broken promise beyond the usual ones."""
        return []

    def _call_over_tcp(self) -> list[str]:
        """Call those who signal over TCP: each has a connection to the server, as only it opens one."""
        names = [traveller.name for traveller in self.travellers if traveller.transport == "TCP"]
        return call_all(self.world, self.network, names, REGISTERED_S)

    def _play(self) -> None:
        self.server.start()
        for traveller in self.travellers:
            self.world.at(self.world.random.uniform(0, 2), traveller.start)
            self.plan(traveller)
        if self.world.random.random() < 0.7:
            self._plan_server_crashes()
        self.world.run(ACTIVE_S)
        self._end_disturbances()
        self._settle()
        self.tour()

    def _settle(self) -> None:
        for _ in range(SETTLE_ROUNDS_MAX):
            self.world.run(self.world.now + SETTLE_S, self.at_rest)
            self.world.run(self.world.now + CALM_S)
            # Meanwhile the trial of a data channel behind a firewall may have failed, so that its agent uses another
            # transport.
            if self.at_rest():
                return

    def _broker_config(self) -> BrokerConfig:
        queue_max = 15 if self.world.random.random() < 0.2 else 10_000
        return BrokerConfig(queue=QueuePolicy(notifications_max=queue_max))

    def _conditions(self) -> PathConditions:
        """Draw the conditions of the paths to the travellers, sometimes as long as over a satellite."""
        draw = self.world.random
        bad = max(0.0, draw.uniform(-0.5, 1))
        far_s = draw.uniform(0.2, 0.95) if draw.random() < 0.1 else 0.0
        return PathConditions(
            loss=draw.uniform(0, 0.3) * bad,
            duplication=draw.uniform(0, 0.1) * bad,
            delay_min_s=far_s or 0.0005,
            delay_max_s=far_s * 1.1 or draw.choice([0.002, 0.02, 0.1]),
            spike=draw.uniform(0, 0.05) * bad,
        )

    def _draw_return_path(self, conditions: PathConditions) -> PathConditions:
        """Draw the conditions of the path to the server: like the other direction, or with more or less loss."""
        draw = self.world.random
        loss = conditions.loss * draw.choice([0.0, 2.0]) if draw.random() < 0.3 else conditions.loss
        return msgspec.structs.replace(conditions, loss=min(loss, 0.3))

    def plan(self, traveller: Traveller) -> None:
        """Plan publishing at the traveller's own rate, moves, network loss, crashes and restarts."""
        draw = self.world.random
        for _ in range(draw.randint(5, 20)):
            start = draw.uniform(3, ACTIVE_S)
            for _ in range(draw.choice([1, 1, 2, 8])):
                self.world.at(start + draw.uniform(0, 0.05), lambda: self._publish(traveller))
        for _ in range(draw.randint(0, 4)):
            self.world.at(draw.uniform(2, ACTIVE_S), lambda: self.move(traveller))
        if draw.random() < 0.5:
            start = draw.uniform(4, ACTIVE_S - 12)
            self.world.at(start, lambda: self._cut(traveller))
            self.world.at(start + draw.uniform(0.2, 12), lambda: self.network.mend(traveller.ip))
        if draw.random() < 0.5:
            start = draw.uniform(4, ACTIVE_S - 8)
            self.world.at(start, lambda: self._kill(traveller))
            self.world.at(start + draw.uniform(0.05, 8), lambda: self._revive(traveller))
        if traveller.transport == "TCP":
            for _ in range(draw.randint(0, 4)):
                self.world.at(draw.uniform(2, ACTIVE_S), self._close_signalling)

    def _plan_server_crashes(self) -> None:
        """Plan crashes at any time, or directly after data was written and before it was synced."""
        draw = self.world.random
        for _ in range(draw.randint(1, 3)):
            start = draw.uniform(3, ACTIVE_S - 6)
            if draw.random() < 0.3:
                self.world.at(start, self._crash_server)
            else:
                self.world.at(start, self._crash_at_next_append)

    def _crash_at_next_append(self) -> None:
        delay_s = self.world.random.uniform(0, 0.01)

        def crash() -> None:
            self.server.disk.on_append = lambda: None
            self.world.after(delay_s, self._crash_server)

        self.server.disk.on_append = crash

    def _crash_server(self) -> None:
        draw = self.world.random
        if self.network.is_bound((SERVER_IP, 5060)):
            self.server.crash(lose_rows=draw.random() < 0.3)
            self.world.after(draw.uniform(0.05, 5), self.server.start)

    def _publish(self, traveller: Traveller) -> None:
        if traveller.running:
            draw = self.world.random
            traveller.publish({"Stock": draw.choice(STOCKS), "Price": draw.randint(1, 50)})

    def move(self, traveller: Traveller) -> None:
        """Move; in a world without loss the broker must learn the new address within a bound (SPEC D-08)."""
        self.moves += 1
        self.network.mend(traveller.ip)
        was_connected = traveller.connected
        traveller.move()
        conditions = self.network.conditions
        serving = self.network.is_bound((SERVER_IP, 5060))
        near = 6 * conditions.delay_max_s < HEAL_S
        undisturbed = was_connected and serving and near and not (conditions.loss or conditions.spike)
        moment, crashes, kills = self.moves, self.server.crashes, self.kills

        def check() -> None:
            disturbed = (self.server.crashes, self.kills) != (crashes, kills) or self._cuts
            if undisturbed and not disturbed and self._last_move[traveller.name] == moment:
                known = self.server.address_of(traveller.uri)
                if known is None or not known.startswith(f"{traveller.ip}:"):
                    traveller.problems.append(f"moved to {traveller.ip}, the broker sends to {known} {HEAL_S} s later")

        self._last_move[traveller.name] = moment
        self.world.after(HEAL_S, check)

    def _cut(self, traveller: Traveller) -> None:
        self._cuts += 1
        self.network.cut(traveller.ip)

    def _close_signalling(self) -> None:
        self._cuts += 1
        self.server.close_signalling()

    def _kill(self, traveller: Traveller) -> None:
        if traveller.running:
            self.kills += 1
            traveller.kill()

    def _revive(self, traveller: Traveller) -> None:
        if not traveller.running:
            traveller.start()

    def _end_disturbances(self) -> None:
        network = self.network
        for conditions in (network.conditions, network.within, network.towards[SERVER_IP]):
            assert conditions is not None
            conditions.loss = conditions.spike = 0.0
        for traveller in self.travellers:
            self.network.mend(traveller.ip)
            self._revive(traveller)

    def at_rest(self) -> bool:
        """Return whether everyone is connected, updates nothing, and has consumed all that the broker has for them."""
        if not self.network.is_bound((SERVER_IP, 5060)):
            return False
        state = self.server.state
        if any(row.history for row in state.subscriptions.values()):
            return False
        return not state.queue and all(
            traveller.connected and traveller.settled and not traveller.is_updating for traveller in self.travellers
        )
