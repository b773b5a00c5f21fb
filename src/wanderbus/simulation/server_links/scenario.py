"""Simulated domain of 2 to 8 servers with links between them (SPEC J-12).

Links are opened, closed and abandoned; datagrams are lost, repeated, reordered and damaged; servers are divided, crash
and restart. An attacker on the path repeats and changes datagrams, and strangers claim to be servers. Then the network
is repaired: every wanted link must open, stay open whatever the attacker does, and notice a server that dies.
"""

from __future__ import annotations

from itertools import count
from typing import ClassVar, Final

from wanderbus.peers.link_parameters import PENDING_S
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.node import Node
from wanderbus.simulation.scenario import Scenario
from wanderbus.simulation.server_links.attackers import STRANGER, PathAttacker, start_stranger
from wanderbus.simulation.server_links.checkers import LinkRecord, check_delivered, check_open, check_rest
from wanderbus.simulation.server_links.server import LinkedServer
from wanderbus.simulation.world import World

ROUGH_S: Final = 20.0
SETTLE_S: Final = 20.0
"""Time after the repair in which every wanted link opens: a reset may be needed, and offers wait up to 6.25 s."""
CALM_S: Final = 6.0
NOTICED_S: Final = 6.5
"""Time in which every link to a dead server is closed."""
RESTARTED_S: Final = 2.5
"""Time in which every link of a server that has restarted with its reset key is open again."""


class _DividedNetwork(Network):
    """A network whose hosts are in groups, which cannot reach each other."""

    def __init__(self, world: World, conditions: PathConditions) -> None:
        super().__init__(world, conditions)
        self.groups: dict[str, int] = {}

    def conditions_of(self, source: str, destination: str) -> PathConditions:
        """Return conditions that lose everything between groups."""
        if self.groups.get(source, 0) != self.groups.get(destination, 0):
            return PathConditions(loss=1.0)
        return super().conditions_of(source, destination)


class LinksScenario(Scenario):
    """A world with a domain of servers, set up by the seed."""

    counted: ClassVar = {
        "openings": "links opened",
        "closings": "links closed",
        "messages": "messages",
        "crashes": "servers killed",
        "partitions": "partitions",
        "injected": "injected datagrams",
        "datagrams": "datagrams",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw = self.world.random
        self.records: dict[int, LinkRecord] = {}
        self.openings = self.closings = self.messages = self.crashes = self.partitions = 0
        self.network = _DividedNetwork(self.world, self._rough_conditions())
        self._numbers = count(1)
        self.servers: dict[str, LinkedServer] = {}
        for number in range(draw.choice([2, 2, 3, 3, 4, 5, 8])):
            self.servers[f"s{number}"] = LinkedServer(self, f"s{number}", (f"10.0.0.{number + 1}", 5_601))
        density = draw.choice([0.4, 0.8, 1.0])
        for server in self.servers.values():
            server.wanted = {each for each in self.servers if each != server.name and draw.random() < density}
        self._usurpers: dict[str, Node] = {}
        self.attacker = PathAttacker(self, draw.choice([0.0, 0.02, 0.1]), draw.choice([0.0, 2.0, 10.0]))
        self.network.tap = self.attacker.sees
        self._stranger = start_stranger(self, draw.choice(list(self.servers.values())), STRANGER)

    def _rough_conditions(self) -> PathConditions:
        draw = self.world.random
        return PathConditions(
            loss=draw.choice([0.0, 0.02, 0.1, 0.3]),
            duplication=draw.choice([0.0, 0.1]),
            delay_max_s=draw.choice([0.002, 0.05, 0.2]),
            spike=draw.choice([0.0, 0.05]),
            spike_s=draw.choice([0.5, 3.0]),
            damage=draw.choice([0.0, 0.02]),
        )

    def next_link(self) -> int:
        """Return the next number of a link; no two links of the world have the same."""
        return next(self._numbers)

    def counts(self) -> dict[str, float]:
        return {
            "servers": len(self.servers),
            "openings": self.openings,
            "closings": self.closings,
            "messages": self.messages,
            "crashes": self.crashes,
            "partitions": self.partitions,
            "injected": self.attacker.injected,
            "dropped": sum(each.machine.dropped.total() for each in self.servers.values() if each.running),
            "datagrams": self.network.delivered,
        }

    def _play(self) -> None:
        world, draw = self.world, self.world.random
        for server in self.servers.values():
            world.at(draw.choice([0.0, draw.uniform(0, 5)]), lambda server=server: self._start(server))  # type: ignore[misc]
        for _ in range(draw.choice([20, 100])):
            world.at(draw.uniform(0.1, ROUGH_S), self._send)
        disturbances = draw.sample(
            [self._crash, self._crash, self._partition, self._close, self._turn], draw.randint(0, 5)
        )
        for _ in range(draw.choice([2, 10, 25]) if disturbances else 0):
            world.at(draw.uniform(0.5, ROUGH_S), draw.choice(disturbances))
        self._run(ROUGH_S)
        self._repair()
        self._run(SETTLE_S)

    def _check_promises(self) -> None:
        self.problems += check_open(self.servers)
        self._stay_calm()
        self._restart_one()
        self.attacker.is_active = False
        self._stranger.kill()
        self._run(PENDING_S + 3.0)
        self._send_everywhere()
        self._run(5.0)
        self.problems += check_open(self.servers)
        self.problems += check_delivered(self.servers)
        self._run(1.0)
        self.problems += check_rest(self.servers.values())

    def _run(self, seconds: float) -> None:
        until = self.world.now + seconds
        self.world.run(until)
        self.world.now = until

    # Events of the world ---------------------------------------------------------------------------------------------

    def _start(self, server: LinkedServer) -> None:
        if not server.running:
            if usurper := self._usurpers.pop(server.name, None):
                usurper.kill()
                self.attacker.usurped.discard(server.address)
            server.start()

    def _some_server(self) -> LinkedServer | None:
        alive = [server for server in self.servers.values() if server.running]
        return self.world.random.choice(alive) if alive else None

    def _send(self) -> None:
        if server := self._some_server():
            server.send_somewhere()

    def _close(self) -> None:
        if server := self._some_server():
            server.close_some_link()

    def _turn(self) -> None:
        """A server changes its mind about a link."""
        if server := self._some_server():
            other = self.world.random.choice([each for each in self.servers if each != server.name])
            server.want(other, is_wanted=other not in server.wanted)

    def _crash(self) -> None:
        """A server crashes; often a stranger takes its address until it is back."""
        draw = self.world.random
        if server := self._some_server():
            self.crashes += 1
            server.crash(loses_reset_key=draw.random() < 0.2)
            if draw.random() < 0.4:
                self._usurpers[server.name] = start_stranger(self, server, server.address)
                self.attacker.usurped.add(server.address)
            self.world.after(draw.choice([0.0, 0.3, draw.uniform(0, 10)]), lambda: self._start(server))

    def _partition(self) -> None:
        self.partitions += 1
        self.network.groups = {each.address[0]: self.world.random.randrange(2) for each in self.servers.values()}
        self.world.after(self.world.random.uniform(0.1, 10.0), self.network.groups.clear)

    # The end ---------------------------------------------------------------------------------------------------------

    def _repair(self) -> None:
        self.network.groups = {}
        self.network.conditions = PathConditions()
        for server in self.servers.values():
            self._start(server)

    def _stay_calm(self) -> None:
        """Check that no link closes in a repaired network, although the attacker is still there."""
        before = self.openings, self.closings
        self._run(CALM_S)
        if (self.openings, self.closings) != before:
            self.problems.append("a link was opened or closed in a repaired network")

    def _restart_one(self) -> None:
        """Check that an idle link notices a dead server, and that links are soon there again after a restart."""
        draw = self.world.random
        server = draw.choice(list(self.servers.values()))
        server.crash()
        if draw.random() < 0.5:
            self._run(NOTICED_S)
            for each in self.servers.values():
                if any(link.peer == server.name for link in each.links.values()):
                    self.problems.append(f"{each.name} does not notice that {server.name} is dead")
            self._start(server)
        else:
            self._run(draw.choice([0.0, 0.5]))
            self._start(server)
            self._run(RESTARTED_S)
            self.problems += [f"after a restart: {problem}" for problem in check_open(self.servers)]

    def _send_everywhere(self) -> None:
        for server in self.servers.values():
            for link in list(server.links.values()):
                server.send(link, 2)
