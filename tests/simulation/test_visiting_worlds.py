"""Seeded worlds whose users call other domains, which fetch their sessions: each event comes once (SPEC D-13, L-01)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import pytest

from wanderbus.broker.sessions.handover_messages import FenceSession
from wanderbus.broker.state.state import BrokerState
from wanderbus.machine import ClockRead, Input, Output
from wanderbus.peers.far_servers import FarDomain, FarDomains
from wanderbus.peers.handover.session_handovers import HandoversOutput, SessionHandovers
from wanderbus.peers.owner_messages import VisitorCalled, VisitorStays
from wanderbus.peers.parts import HANDOVERS
from wanderbus.simulation.federation.moving_node import MovingNode
from wanderbus.simulation.federation.moving_scenario import MovingScenario
from wanderbus.simulation.scenario import Result
from wanderbus.sip.proxy.visit_proofs import VisitProof, visit_mac

SEEDS = range(1, 9)


class NotedHandovers(SessionHandovers):
    """Handovers which note the sessions that leave because of visits."""

    fetched: set[tuple[str, int]]

    def step(self, inputs: Iterable[Input | Output], now: float) -> list[HandoversOutput]:
        outputs = super().step(inputs, now)
        fences = [each for each in outputs if isinstance(each, FenceSession) and each.cause == "visit"]
        self.fetched |= {(each.user, each.owner_epoch) for each in fences}
        return outputs


class VisitingNode(MovingNode):
    """A server which fetches the sessions of visitors, and gives those of users who have called elsewhere."""

    visits = 0
    """Calls of visitors."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.fetched: set[tuple[str, int]] = set()
        """Sessions that left because of visits, and their owner epochs."""
        super().__init__(*arguments, **options)

    def _make_handovers(self, state: BrokerState) -> SessionHandovers:
        foreign = {
            each.name: FarDomain(each.receives, each.sends, each.gives_sessions, each.takes_sessions, "move")
            for each in self.parameters.domains
        }
        domains = FarDomains(self.domain, foreign, lineage=self.channels.lineage)
        handovers = NotedHandovers(
            self.others,
            self.others,
            state,
            self.domain,
            None,
            self.piece_bytes,
            domains=domains,
            service=f"sip:broker@{self.domain}",
            visit_key=self.domain.encode(),
        )
        handovers.fetched = self.fetched
        return handovers

    def visit(self, user: str) -> None:
        """Let a user of another domain call, whose proxy proves it."""
        self.visits += 1
        home, call = user.rpartition("@")[2], f"{self.name}-{self.visits}"
        at_s = self.wall_us // 1_000_000
        proof = VisitProof(at_s, visit_mac(home.encode(), user, self.domain, call, "default", at_s))
        self._note(f"is called by {user}")
        self._feed_part(HANDOVERS, [VisitorCalled(call, user, "default", True, proof)])

    def _feed_part(self, part: Any, inputs: Sequence[Any]) -> None:
        if self.alive:
            self._parts.precede(HANDOVERS, ClockRead(self.wall_us))
        super()._feed_part(part, inputs)

    def _perform(self, output: Input | Output) -> None:
        if isinstance(output, VisitorStays):
            self._note(f"does not get {output.user}: {output.reason}")
        else:
            super()._perform(output)


class VisitingScenario(MovingScenario):
    """A world in which users call other domains; their sessions come there, and are moved on or back by operators."""

    def _node_type(self) -> type[MovingNode]:
        return VisitingNode

    def _move_session(self) -> None:
        draw = self.world.random
        mover = draw.choice(self.moving)
        home = mover.user.rpartition("@")[2]
        hosts = [each for each in self.homes.values() if each.domain != home and isinstance(each, VisitingNode)]
        if draw.random() < 0.4 or not hosts:
            super()._move_session()
            return
        host = draw.choice(hosts)
        host.visit(mover.user)
        self.world.at_random(20, self.world.now, self.world.now + draw.choice([0.3, 3.0]), self._publish)
        end = self.world.now + draw.choice([0.1, 1.0])
        self.world.at_random(10, self.world.now, end, partial(self._publish_from, mover))
        victim = self.homes[draw.choice([host.name, *self.layout.domains[home].servers])]
        if draw.random() < 0.3:
            self.world.after(draw.uniform(0.0, draw.choice([0.3, 3.0])), partial(self._crash_now, victim))

    def counts(self) -> dict[str, float]:
        nodes = [each for each in self.homes.values() if isinstance(each, VisitingNode)]
        fetched = sum(len(each.fetched) for each in nodes)
        return super().counts() | {"visits": sum(each.visits for each in nodes), "fetched": fetched}


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [VisitingScenario.run_seed(seed) for seed in SEEDS]


def test_d13_every_promise_holds_while_sessions_follow_their_users(results: list[Result]) -> None:
    assert [(each.seed, each.problems) for each in results if each.problems] == []


def test_eight_seeds_have_enough_happening_in_them(results: list[Result]) -> None:
    for field, least in (("visits", 50), ("fetched", 8), ("moves", 20), ("crashes", 10), ("notifications", 5_000)):
        assert sum(result.counts[field] for result in results) > least, field
