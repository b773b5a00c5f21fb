"""Seeded worlds of one service with several servers: each caller reaches the server that owns its session (SPEC J-01).

The proxy chooses by load, so most calls reach another server first, which redirects them with 302. Datagrams are lost,
servers die and return, and callers move.
"""

from __future__ import annotations

import pytest

from wanderbus.machine import Output
from wanderbus.mobility.messages import CreateSession, Refuse
from wanderbus.simulation.network import Network, PathConditions
from wanderbus.simulation.node import Node
from wanderbus.simulation.server import DOMAIN, SERVER_ADDRESS, password_of
from wanderbus.simulation.sip.party import SIP_PORT, Manner, SIPParty
from wanderbus.simulation.world import SeededRandom, World
from wanderbus.sip.proxy.access_policy import AccessPolicy
from wanderbus.sip.proxy.sip_server import SIPServer

ACTIVE_S = 60.0
SETTLE_S = 300.0
BROKER = f"sip:broker@{DOMAIN}"


class Server(SIPParty):
    """One server of the service; it redirects the sessions of other servers."""

    owners: dict[str, Server]
    redirected = 0

    def _consider(self, id: str, *, update: bool) -> None:
        owner = self.owners[self.sessions[id].remote_uri]
        if owner is self or update:
            super()._consider(id, update=update)
            return
        Server.redirected += 1
        self.feed(Refuse(id, 302, contacts=(f"sip:broker@{owner.ip}:{SIP_PORT}",)))


class Caller(SIPParty):
    """A party that calls the service."""

    def _create(self, uri: str) -> None:
        if self.running:
            self._calls += 1
            self.wanted[uri] = id = f"{self.name}-{self._life}-{self._calls}"
            self.feed(CreateSession(id, uri, self.media, is_service=True))


class AccessWorld:
    """Three servers, eight callers and a proxy, set up by the seed."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        draw = self.world.random
        conditions = PathConditions(loss=draw.choice([0.0, 0.05, 0.2]), delay_max_s=draw.choice([0.002, 0.05, 0.2]))
        self.network = Network(self.world, conditions)
        random = SeededRandom(self.world)
        policy = AccessPolicy(choice="least_loaded")
        proxy = SIPServer(DOMAIN, SERVER_ADDRESS, password_of, random, b"k" * 16, expires_min_s=5, access=policy)
        Node("proxy", proxy, {"sip": SERVER_ADDRESS}, self.world, self.network, self._ignore)
        manner = Manner(authenticates=True)
        self.servers = [Server("broker", f"10.2.0.{n}", manner, self.world, self.network) for n in range(1, 4)]
        self.callers = [Caller(f"user{n}", f"10.3.0.{n}", Manner(), self.world, self.network) for n in range(1, 9)]
        owners = {caller.uri: draw.choice(self.servers) for caller in self.callers}
        for server in self.servers:
            server.owners = owners
        self.owners = owners

    def run(self) -> list[str]:
        """Run the world; return the callers that have no session with their owner at the end."""
        world, draw = self.world, self.world.random
        for party in (*self.servers, *self.callers):
            world.at(draw.uniform(0, 0.5), party.start)
        for caller in self.callers:
            world.at(draw.uniform(1, 10), lambda caller=caller: caller.call(BROKER))  # type: ignore[misc]
            place = f"10.4.{caller.ip.rpartition('.')[2]}.1"
            world.at(draw.uniform(10, ACTIVE_S), lambda caller=caller, place=place: caller.move(place))  # type: ignore[misc]
        for server in draw.sample(self.servers, 2):
            died = draw.uniform(3, ACTIVE_S - 20)
            world.at(died, server.kill)
            world.at(died + draw.uniform(1, 20), server.start)
        world.run(ACTIVE_S)
        self.network.conditions.loss = 0.0
        for _ in range(int(SETTLE_S)):
            if not self.astray():
                break
            world.run(world.now + 1.0)
        return self.astray() + [problem for caller in self.callers for problem in caller.problems]

    def astray(self) -> list[str]:
        """Return the callers that have no session with their owner."""
        return [
            f"{caller.name} is not at {owner.ip}"
            for caller in self.callers
            for owner, id in [(self.owners[caller.uri], caller.wanted[BROKER])]
            if id is None or not caller.talks_to(owner, id) or not owner.talks_to(caller, id)
        ]

    def _ignore(self, output: Output) -> None:
        """Ignore the reports of the proxy."""


@pytest.mark.parametrize("seed", range(1, 9))
def test_j01_every_caller_reaches_the_owner_of_its_session(seed: int) -> None:
    Server.redirected = 0
    assert AccessWorld(seed).run() == []
    assert Server.redirected > 0
