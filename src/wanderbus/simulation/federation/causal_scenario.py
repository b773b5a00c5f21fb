"""Simulated domains with causal order between them (decision 0175).

Users answer what they read, in all domains. Pairs of domains are cut apart while others are not, so answers come on the
shorter way; servers crash, links are slow, and some domains are away for longer than anything waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import ClassVar, Final

import msgspec

from wanderbus.event import Event
from wanderbus.federation.gateway_choice import link_name
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.domains.domain_device import DomainDevice
from wanderbus.simulation.federation.causal_truth import ANSWERS, CausalTruth
from wanderbus.simulation.federation.layout import TYPES, FederationLayout, SimulatedDomain
from wanderbus.simulation.federation.node import FederatedNode
from wanderbus.simulation.federation.scenario import ACTIVE_S, FederationScenario

ANSWERS_S_MAX: Final = 0.5
"""Longest time until a user answers an event."""
ANSWERED: Final = 0.15
"""Share of the events that a user answers."""
ANSWERS_MAX: Final = 400
"""Answers of one world."""
CUT_S: Final = (0.3, 3.0, 25.0)
"""Longest times for which two domains are cut apart."""


class CausalLayout(FederationLayout):
    """Decentralised domains, which share most types with each other."""

    def __init__(self, seed: int, draw: Random) -> None:
        super().__init__(seed, draw)
        self.are_causal = True
        for domain in self.domains.values():
            domain.gateways = domain.gateways[:1]
            domain.decentralised = frozenset(TYPES)

    def _count(self, draw: Random) -> int:
        return draw.choice([2, 3, 3, 3, 4])


class CausalFederationScenario(FederationScenario):
    """A world with several decentralised domains, set up by the seed."""

    counted: ClassVar = {
        **FederationScenario.counted,
        "answers": "answers in another domain",
        "read": "pairs of a cause and an answer that one session got",
        "crossed": "of these, pairs that came on different ways",
        "excused": "answers that came before a cause which was late",
        "unordered": "events that went on without a cause",
        "held": "events that waited for a cause",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self._answers = 0
        self._causal_truth: CausalTruth | None = None
        super().__init__(seed, keep_trace=keep_trace)
        self._tempers = self.world.apart("answers")
        for device in self.devices:
            device.on_event = partial(self._answer, device)

    def _make_layout(self, seed: int, draw: Random) -> FederationLayout:
        return CausalLayout(seed, draw)

    def _make_node(self, domain: SimulatedDomain, name: str, config: BrokerConfig) -> FederatedNode:
        node = super()._make_node(domain, name, msgspec.structs.replace(config, spark_subjects=()))
        node.clock_ahead_s = 0.0
        return node

    def counts(self) -> dict[str, float]:
        truth = self._causal_truth
        return {
            **super().counts(),
            "answers": self._answers,
            **dict.fromkeys(("read", "crossed", "excused"), 0),
            **({} if truth is None else truth.counters),
            "unordered": sum(self._imported("unordered")),
            "held": sum(self._imported("held")),
        }

    def _imported(self, kind: str) -> Iterator[int]:
        for node in self.hosts.values():
            yield from (row.get(kind, 0) for row in node.member.rows().values())

    def _answer(self, device: DomainDevice, event: Event) -> None:
        """Let the user answer an event, of which there may be several devices."""
        draw = self._tempers
        if self.world.now > ACTIVE_S or self._answers >= ANSWERS_MAX or draw.random() > ANSWERED:
            return
        self._answers += 1
        answer = self._event(draw.choice(TYPES))
        answer = msgspec.structs.replace(answer, attributes={**answer.attributes, ANSWERS: event["Uid"]})
        outbox = draw.random() < 0.5
        life = device.lives
        self.world.after(
            draw.uniform(0.0, draw.choice([0.001, ANSWERS_S_MAX])),
            lambda: device.publish(answer, outbox=outbox) if device.lives == life else None,
        )

    def _plan(self) -> None:
        super()._plan()
        draw = self.world.apart("cuts")
        for _ in range(draw.choice([0, 10, 20])):
            self.world.at(draw.uniform(3.0, ACTIVE_S), partial(self._cut, draw))

    def _cut(self, draw: Random) -> None:
        """Cut two domains apart, and no others, for a while."""
        one, other = draw.sample(list(self.layout.domains.values()), 2)
        pairs = [
            (link_name(one.name, here), link_name(other.name, there))
            for here in one.gateways
            for there in other.gateways
        ]
        self.foreign_links.separate(pairs)
        self.world.after(draw.uniform(0.1, draw.choice(CUT_S)), partial(self.foreign_links.separate, ()))

    def _repair(self) -> None:
        super()._repair()
        self.foreign_links.separate(())

    def _check_promises(self) -> None:
        super()._check_promises()
        self._causal_truth = CausalTruth(self.hosts)
        self.problems += self._causal_truth.problems
