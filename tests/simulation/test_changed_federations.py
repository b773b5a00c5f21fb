"""Seeded worlds of domains whose files change while servers run: methods, trust, and domains (SPEC M-01, M-05)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar

import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.federation.circuit_host import CircuitHost
from wanderbus.federation.member import FederationMember
from wanderbus.federation.routing_messages import Method
from wanderbus.simulation.federation.layout import TYPES, SimulatedDomain
from wanderbus.simulation.federation.scenario import ACTIVE_S, FederationScenario

Patch = pytest.MonkeyPatch

READ_S_MAX = 5.0
"""Longest time from the change of a file until a server of the domain has read it."""


class ChangedFilesScenario(FederationScenario):
    """Domains whose operators change types that cross, and remove each other, often for a while, while events flow."""

    def _plan(self) -> None:
        super()._plan()
        draw = self.world.random
        for _ in range(draw.choice([1, 3, 6])):
            self.world.at(draw.uniform(5.0, ACTIVE_S), draw.choice([self._change_trust, self._remove]))

    def _change_trust(self) -> None:
        """Send or receive a type, or cease to do so."""
        domain, other = self._pair()
        event_type = self.world.random.choice(TYPES)
        if self.world.random.random() < 0.5:
            domain.sends = {**domain.sends, other.name: domain.sends[other.name] ^ {event_type}}
            self._cross(domain, other, event_type)
        else:
            domain.receives = {**domain.receives, other.name: domain.receives[other.name] ^ {event_type}}
            self._cross(other, domain, event_type)
        self._read_again([domain])

    def _remove(self) -> None:
        """Remove a domain from the file of another one, and add it again later."""
        domain, other = self._pair()
        self._set_absent(domain, other, is_absent=True)
        if self.world.random.random() < 0.7:
            add = partial(self._set_absent, domain, other, is_absent=False)
            self.world.after(self.world.random.uniform(0.1, 20.0), add)

    def _set_absent(self, domain: SimulatedDomain, other: SimulatedDomain, *, is_absent: bool) -> None:
        for event_type in TYPES:
            self._cross(domain, other, event_type)
            self._cross(other, domain, event_type)
        domain.absent = domain.absent | {other.name} if is_absent else domain.absent - {other.name}
        self._read_again([domain])

    def _pair(self) -> tuple[SimulatedDomain, SimulatedDomain]:
        one, other = self.world.random.sample(list(self.layout.domains.values()), 2)
        return one, other

    def _cross(self, source: SimulatedDomain, target: SimulatedDomain, event_type: str) -> None:
        self.layout.changed.add((source.name, target.name, event_type))
        self.interest.forget(source.name, target.name, event_type)

    def _read_again(self, domains: Iterable[SimulatedDomain]) -> None:
        """Let each server of these domains read its file again, soon."""
        for domain in domains:
            for name in domain.servers:
                read = partial(self._read, domain, name)
                self.world.after(self.world.random.uniform(0.0, READ_S_MAX), read)

    def _read(self, domain: SimulatedDomain, name: str) -> None:
        self.hosts[name].change_federation(self.layout.parameters(domain, name))


class ChangedMethodsScenario(ChangedFilesScenario):
    """Domains whose operators change the method, each at a time of its own, and add a domain that all had removed."""

    changes: ClassVar[Sequence[Method]] = ("rendezvous", "multicast")
    method = "rendezvous"

    def _change_trust(self) -> None:
        """Change the method, in one domain after the other."""
        draw = self.world.random
        self.layout.method = draw.choice(self.changes)
        for domain in self.layout.domains.values():
            self.world.after(draw.uniform(0.0, 20.0), partial(self._read_again, [domain]))

    def _set_absent(self, domain: SimulatedDomain, other: SimulatedDomain, *, is_absent: bool) -> None:
        for each in self.layout.domains.values():
            if each is not other:
                super()._set_absent(each, other, is_absent=is_absent)


def test_m01_every_promise_holds_while_files_change() -> None:
    results = [ChangedFilesScenario.run_seed(seed) for seed in (1, 2, 3, 4, 5, 6)]
    assert [each.problems for each in results] == [[]] * len(results)


def test_m05_every_promise_holds_while_methods_change() -> None:
    results = [ChangedMethodsScenario.run_seed(seed) for seed in (1, 2, 3, 4, 5, 6)]
    assert [each.problems for each in results] == [[]] * len(results)


def keep_sessions_of_removed_domains(patch: Patch) -> None:
    patch.setattr(CircuitHost, "leave", lambda self, domains, epoch: [])


def begin_again_without_a_word(patch: Patch) -> None:
    patch.setattr(FederationMember, "_say_begun", lambda self, former: None)


def forget_subscriptions(patch: Patch) -> None:
    patch.setattr(FederationMember, "_inherit", lambda self, former, now: None)


SABOTAGES: Sequence[tuple[Callable[[Patch], None], tuple[int, ...]]] = [
    (keep_sessions_of_removed_domains, (8,)),
    (begin_again_without_a_word, (3,)),
    (forget_subscriptions, (1,)),
]


@pytest.mark.parametrize(
    ("break_product", "known"), SABOTAGES, ids=lambda value: value.__name__ if callable(value) else ""
)
def test_a_missing_safeguard_of_changed_files_is_noticed(
    monkeypatch: Patch, break_product: Callable[[Patch], None], known: tuple[int, ...]
) -> None:
    break_product(monkeypatch)
    assert is_noticed(ChangedFilesScenario.run_seed, known)
