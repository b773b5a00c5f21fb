"""Simulated history of reliable UDP alone: two endpoints, their connections, and disturbances (SPEC F).

A third of the seeds are calm: nothing is lost, addresses change one at a time, and no connection may fail. In the
others all kinds of failures happen. Then the network is repaired, and :mod:`.checkers` checks the promises of every
connection. Both kinds have attackers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from wanderbus.parameters.transports import RudpConfig
from wanderbus.rudp.interface import Secrets
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.rudp.attacker import Attacker
from wanderbus.simulation.rudp.checkers import check_finished, check_retired, check_settled, check_weight
from wanderbus.simulation.rudp.party import Channel, End, RudpParty
from wanderbus.simulation.rudp.plans import plan, plan_traffic
from wanderbus.simulation.rudp.watch import Watch
from wanderbus.simulation.scenario import Scenario

ACTIVE_S: Final = 30.0
"""Seconds with planned events."""


NARROW_BYTES: Final = 972
"""Size above which some paths drop datagrams: packets of more than 1,000 bytes over IPv4."""


class RudpScenario(Scenario):
    """A world with two parties, set up by the seed."""

    counted: ClassVar = {
        "connections": "connections",
        "messages": "messages",
        "moves": "announced moves",
        "rebindings": "others",
        "learnt": "of them challenged",
        "failures": "failures",
        "resets": "resets",
        "injected": "injected datagrams",
        "datagrams": "datagrams",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw = self.world.random
        self.calm = draw.random() < 0.35
        self.sealed = draw.random() < 0.75
        self.moves = self.rebindings = 0
        self.channels: list[Channel] = []
        self.network = Network(self.world, PathConditions())
        self.settle_share = 0.0
        self._dead_until = 0.0
        self._known_at = 0.0
        """Time when the last signalling message arrives."""
        self.settled_by = math.inf
        """Time after which no connection may fail any more, in the repaired network."""
        self._rtt_s = math.exp(draw.uniform(math.log(0.04), math.log(2.0)))
        config = self._config()
        self.watch = Watch(config, self.problems)
        self.parties = [self._party(number, config) for number in (1, 2)]
        chance = draw.choice([0.0, 0.02, 0.1])
        self.attacker = Attacker(self.world, self.network, chance, draw.choice([0.0, 2.0, 10.0]))
        self.network.tap = self.attacker.sees

    def _config(self) -> RudpConfig:
        draw = self.world.random
        return RudpConfig(
            message_bytes_max=2**20,
            consume_at_once=draw.random() < 0.7,
            messages_per_datagram_max=draw.choice([1_000, 1_000, 1]),
            packets_in_flight_max=draw.choice([32, 128, 512]),
            rekey_packets=draw.choice([8, 100, 2**20]),
        )

    def _party(self, number: int, config: RudpConfig) -> RudpParty:
        """Draw the paths to a party, and whether it is behind a NAT and therefore sends keepalives."""
        draw = self.world.random
        keepalive_s = draw.choice([1.0, 3.0]) if draw.random() < 0.5 else None
        return RudpParty(
            number,
            self.world,
            self.network,
            self.watch,
            msgspec.structs.replace(config, keepalive_s=keepalive_s),
            conditions=self._conditions(self._rtt_s * draw.uniform(0.4, 0.6)),
            think_s=draw.choice([0.01, 0.3]),
            on_ended=self._ended,
        )

    def _conditions(self, delay_s: float) -> PathConditions:
        """Draw the conditions of one direction; the other has its own."""
        draw = self.world.random
        conditions = PathConditions(
            delay_min_s=delay_s,
            delay_max_s=delay_s * draw.choice([1.0, 1.1, 1.5]),
            bytes_per_s=draw.choice([None, None, None, 30_000, 200_000]),
            line_s_max=draw.choice([0.2, 0.5]),
            datagram_bytes_max=draw.choice([None, None, None, NARROW_BYTES]),
        )
        if not self.calm:
            conditions.loss = draw.choice([0.0, 0.02, 0.1, 0.3])
            conditions.duplication = draw.choice([0.0, 0.05])
            conditions.spike = draw.choice([0.0, 0.02, 0.05])
            conditions.spike_s = draw.choice([0.5, 3.0])
            conditions.damage = draw.choice([0.0, 0.02]) if self.sealed else 0.0
        return conditions

    def _check_promises(self) -> None:
        self.settle_share = check_settled(self)
        check_finished(self)
        check_retired(self)

    def counts(self) -> dict[str, float]:
        taken = [message for end in self.ends for message in end.peer.sent[: end.taken]]
        return {
            "connections": len(self.channels),
            "messages": len(taken),
            "kilobytes": sum(map(len, taken)) // 1_000,
            "moves": self.moves,
            "rebindings": self.rebindings,
            "learnt": sum(party.learnt for party in self.parties),
            "failures": sum(party.failures for party in self.parties),
            "resets": sum(party.resets for party in self.parties),
            "injected": self.attacker.injected,
            "datagrams": self.network.delivered,
            "settle_share": round(self.settle_share, 3),
        }

    @property
    def ends(self) -> list[End]:
        """Return the ends of all connections, past and present."""
        return [end for channel in self.channels for end in channel.ends]

    def _play(self) -> None:
        plan(self, ACTIVE_S)
        check_weight(self)
        self.attacker.begin(lambda: [party.address for party in self.parties])
        self.world.run(ACTIVE_S)
        self._end_disturbances()

    # Actions of the plans ------------------------------------------------------------------------------------------

    def open_channel(self) -> None:
        """Set up a connection by signalling; the callee opens first, the caller when the answer arrives."""
        draw = self.world.random
        dialling, accepting = draw.sample(self.parties, 2)
        channel = Channel(dialling.allocate(), accepting.allocate())
        self.channels.append(channel)
        keys = [draw.randbytes(32), draw.randbytes(32)]
        delays_s = self._signalling_s(), self._signalling_s()
        for end, sending, at in (
            (channel.dialled, 0, self.world.now + sum(delays_s)),
            (channel.accepted, 1, self.world.now + delays_s[0]),
        ):
            secrets = Secrets(sending=keys[sending], receiving=keys[1 - sending]) if self.sealed else None
            self.watch.opened(end, secrets)
            self._known_at = max(self._known_at, at)
            self.world.at(at, lambda end=end, secrets=secrets: end.party.open(end, secrets))  # type: ignore[misc]
        self.world.after(sum(delays_s), lambda: plan_traffic(self, channel, ACTIVE_S))

    def send(self, end: End, sizes: Sequence[int]) -> None:
        """Send random messages of ``sizes`` bytes, all at once."""
        end.party.send(end, [self.world.random.randbytes(size) for size in sizes])

    def move(self, party: RudpParty) -> None:
        """Change the address of ``party``, which notifies its peers and learns their addresses."""
        self.moves += 1
        party.change_address()
        party.moved()
        for end in list(party.ends):
            if end.state != "closed":
                self._signal(end.peer, end.generation, party.address, answered=True)

    def rebind_nat(self, party: RudpParty) -> None:
        """Change the address of ``party`` without notice."""
        self.rebindings += 1
        party.change_address()

    def restart(self, party: RudpParty) -> None:
        """Crash and restart ``party``; its connections are opened again."""
        lost = [end for end in party.ends if end.state != "closed"]
        party.restart()
        for _ in lost[:1]:
            self.world.after(self.world.random.uniform(0, 5), self._open_again)

    def kill_network(self, seconds: float) -> None:
        """Lose everything, in both directions, for a while."""
        self._dead_until = max(self._dead_until, self.world.now + seconds)
        for party in self.parties:
            self.network.cut(party.address[0])
        self.world.at(self._dead_until, self._revive_network)

    def _revive_network(self) -> None:
        if self.world.now >= self._dead_until:
            for party in self.parties:
                self.network.mend(party.address[0])

    def _signal(self, end: End, generation: int, address: tuple[str, int], *, answered: bool) -> None:
        """Send ``end`` its peer's address, one signalling delay later; it answers with its own."""

        def deliver() -> None:
            end.party.learn_path(end, generation, address)
            if answered:
                self._signal(end.peer, end.generation, end.party.address, answered=False)

        delay_s = self._signalling_s()
        self._known_at = max(self._known_at, self.world.now + delay_s + answered * 3 * self._rtt_s)
        self.world.after(delay_s, deliver)

    def _signalling_s(self) -> float:
        return self._rtt_s * self.world.random.choice([0.5, self.world.random.uniform(0.5, 3)])

    def _ended(self, end: End) -> None:
        """Handle a connection that failed or was reset; in most cases the owners agree on a new one."""
        if end.state == "failed":
            if self.calm:
                self.problems.append(f"{end.party.name}: a connection failed in a calm world at {self.world.now:.3f}")
            if self.world.now > self.settled_by and end.peer.state == "open" and end.channel.can_reach:
                self.problems.append(f"{end.party.name}: a connection failed in a mended world at {self.world.now:.3f}")
        if self.world.random.random() < 0.5:
            self.world.after(self._signalling_s(), self._open_again)

    def _open_again(self) -> None:
        """Close each connection that does not live on both sides, and open a new one instead."""
        broken = [channel for channel in self.channels if channel.is_broken]
        if self.world.now >= ACTIVE_S:
            return
        for channel in broken:
            for end in channel.ends:
                end.party.close(end)
        if broken:
            self.open_channel()

    def _end_disturbances(self) -> None:
        """Undo everything harmful, and let the last signalling message and the last delayed datagram arrive."""
        self.attacker.active = False
        self._dead_until = self.world.now
        self._revive_network()
        spikes_s = [party.conditions.spike_s for party in self.parties if party.conditions.spike]
        for party in self.parties:
            conditions = party.conditions
            conditions.loss = conditions.duplication = conditions.spike = conditions.damage = 0.0
            conditions.delay_min_s = conditions.delay_max_s
        self.world.run(max(ACTIVE_S, self._known_at) + max(spikes_s, default=0.0))
