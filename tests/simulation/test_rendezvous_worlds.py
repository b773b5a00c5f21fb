"""Seeded worlds of domains with several gateways, whose filters go by a rendezvous (SPEC M-03; decision 0166)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.federation import routing_lives
from wanderbus.federation.filter_routing import FilterRouting
from wanderbus.federation.gateway import Gateway
from wanderbus.federation.gateway_choice import link_name
from wanderbus.federation.methods.multicast_method import MulticastMethod
from wanderbus.federation.routing_messages import Method
from wanderbus.federation.shared_links import SharedLinks
from wanderbus.federation.wire import FiltersBegun, encode
from wanderbus.simulation.federation.layout import SimulatedDomain
from wanderbus.simulation.federation.scenario import ACTIVE_S, FederationScenario

Patch = pytest.MonkeyPatch


class RendezvousScenario(FederationScenario):
    """Domains of which each type has one as its rendezvous; some cannot reach the first gateway of another one."""

    method = "rendezvous"

    def _plan(self) -> None:
        super()._plan()
        draw, pairs = self.world.random, list[tuple[str, str]]()
        for domain, other in self.layout.pairs():
            if len(domain.gateways) > 1 and draw.random() < 0.5:
                first = link_name(domain.name, domain.gateways[0])
                pairs += [(first, link_name(other.name, each)) for each in other.gateways]
        self.world.at(draw.uniform(2.0, ACTIVE_S / 2), lambda: self.foreign_links.separate(pairs))

    def _repair(self) -> None:
        super()._repair()
        self.foreign_links.separate(())


class ChangingScenario(RendezvousScenario):
    """Domains whose operators change the method, each at a time of its own, and restart the gateways with it."""

    def _plan(self) -> None:
        super()._plan()
        draw = self.world.random
        for domain in self.layout.domains.values():
            if draw.random() < 0.5:
                self._use(domain, "multicast")
            changes: list[tuple[Method, ...]] = [
                ("rendezvous",),
                ("multicast", "rendezvous"),
                ("rendezvous", "multicast"),
            ]
            for method in draw.choice(changes):
                self.world.at(draw.uniform(5.0, ACTIVE_S), partial(self._restart_with, domain, method))

    def _use(self, domain: SimulatedDomain, method: Method) -> None:
        for name in domain.servers:
            parameters = self.hosts[name].parameters
            routing = msgspec.structs.replace(parameters.routing, method=method)
            self.hosts[name].parameters = msgspec.structs.replace(parameters, routing=routing)

    def _restart_with(self, domain: SimulatedDomain, method: Method) -> None:
        self._use(domain, method)
        for name in domain.gateways:
            self._crash_now(self.hosts[name], self.world.random.uniform(0.1, 3.0))


def test_every_promise_holds() -> None:
    results = [RendezvousScenario.run_seed(seed) for seed in (3, 5, 12, 19, 24)]
    assert [each.problems for each in results] == [[]] * len(results)
    assert sum(each.counts["takeovers"] for each in results) >= 6


def test_every_promise_holds_while_methods_change() -> None:
    results = [ChangingScenario.run_seed(seed) for seed in (3, 5, 6, 24, 37)]
    assert [each.problems for each in results] == [[]] * len(results)


def use_links_where_they_are(patch: Patch) -> None:
    patch.setattr(SharedLinks, "reachable", lambda self, links: [])


def begin_again_in_silence(patch: Patch) -> None:
    on_message, silent = Gateway._on_message, encode(FiltersBegun())

    def deaf(self: Gateway, domain: str, link: int, payload: bytes, now: float) -> None:
        if payload == silent:
            self._consumed(link, 1)
        else:
            on_message(self, domain, link, payload, now)

    patch.setattr(Gateway, "_on_message", deaf)


def begin_with_the_present_method_alone(patch: Patch) -> None:
    patch.setattr(routing_lives, "SERVER_METHODS", ())


def announce_no_method(patch: Patch) -> None:
    patch.setattr(FilterRouting, "_announce", lambda self, domain, is_change=False: None)


def take_former_tables_for_known(patch: Patch) -> None:
    def is_known(self: MulticastMethod, domain: str, type: str) -> bool:
        return any(
            sender == domain and self._tables.is_current((sender, each)) for sender, each in self._tables.routes()
        )

    patch.setattr(MulticastMethod, "is_known", is_known)


def take_filters_of_the_time_before(patch: Patch) -> None:
    patch.setattr(Gateway, "_await_answer", lambda self, domain: None)


def await_answers_of_former_links(patch: Patch) -> None:
    unlinked = Gateway._unlinked

    def forgetful(self: Gateway, domain: str, now: float) -> None:
        unanswered = self._unanswered[domain]
        unlinked(self, domain, now)
        self._unanswered[domain] = unanswered

    patch.setattr(Gateway, "_unlinked", forgetful)


SABOTAGES: Sequence[tuple[Callable[[Patch], None], type[RendezvousScenario], tuple[int, ...]]] = [
    (use_links_where_they_are, RendezvousScenario, (5, 11)),
    (begin_again_in_silence, RendezvousScenario, (5,)),
    (begin_with_the_present_method_alone, ChangingScenario, (5, 2)),
    (announce_no_method, ChangingScenario, (3, 2)),
    (take_former_tables_for_known, ChangingScenario, (6,)),
    (take_filters_of_the_time_before, ChangingScenario, (5,)),
    (await_answers_of_former_links, RendezvousScenario, (12,)),
]


@pytest.mark.parametrize(
    ("break_product", "scenario", "known"), SABOTAGES, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_missing_safeguard_of_several_gateways_is_noticed(
    monkeypatch: Patch,
    break_product: Callable[[Patch], None],
    scenario: type[RendezvousScenario],
    known: tuple[int, ...],
) -> None:
    break_product(monkeypatch)
    assert is_noticed(scenario.run_seed, known, "")
