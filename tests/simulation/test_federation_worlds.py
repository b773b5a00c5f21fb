"""Seeded worlds of domains that share events: each event once, in order, and only where it is wanted (SPEC M)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.federation import imports as imports_module
from wanderbus.federation import routing_lives
from wanderbus.federation.circuit_host import CircuitHost
from wanderbus.federation.domestic_interest import DomesticTable
from wanderbus.federation.exports import Exports
from wanderbus.federation.gateway import Gateway
from wanderbus.federation.imported import Imported
from wanderbus.federation.imports import Imports
from wanderbus.federation.methods.wanted_interests import WantedInterests
from wanderbus.simulation.federation.scenario import FederationScenario
from wanderbus.simulation.layers import Layer, replay_command
from wanderbus.simulation.scenario import Result

SEEDS = range(1, 13)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [FederationScenario.run_seed(seed) for seed in SEEDS]


def test_every_promise_holds(results: list[Result]) -> None:
    failed = [each for each in results if each.problems]
    replays = [replay_command(Layer.FEDERATION, each.seed) for each in failed]
    assert [(replay, each.problems) for replay, each in zip(replays, failed, strict=True)] == []


def test_a_dozen_seeds_have_enough_happening_in_them(results: list[Result]) -> None:
    for field, least in (
        ("domains", 24),
        ("servers", 40),
        ("events", 2_000),
        ("imported", 800),
        ("notifications", 1_000),
        ("subscriptions", 100),
        ("counting", 200),
        ("takeovers", 1),
        ("crashes", 10),
        ("breaks", 10),
        ("partitions", 10),
    ):
        assert sum(result.counts[field] for result in results) > least, field


def test_the_same_seed_gives_the_same_history() -> None:
    first, second = (FederationScenario(4, keep_trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.world.trace == second.world.trace


def name_the_gateway_in_the_publisher(patch: Patch) -> None:
    """Let each life of each gateway publish under numbers of its own."""
    publish_of = Imports._publish_of

    def apart(self: Imports, *arguments: Any) -> Any:
        publish = publish_of(self, *arguments)
        return publish and msgspec.structs.replace(publish, device=f"{publish.device}/{id(self)}")

    patch.setattr(Imports, "_publish_of", apart)


def number_by_arrival(patch: Patch) -> None:
    publish_of = Imports._publish_of

    def counted(self: Imports, *arguments: Any) -> Any:
        publish = publish_of(self, *arguments)
        return publish and msgspec.structs.replace(publish, number=publish.request)

    patch.setattr(Imports, "_publish_of", counted)


def begin_before_the_filters_are_known(patch: Patch) -> None:
    def at_once(self: Gateway, domain: str, now: float) -> None:
        if domain in self._links:
            self._apply(domain, self._exports[domain].begin(now))

    patch.setattr(Gateway, "_begin", at_once)


def acknowledge_what_is_not_durable(patch: Patch) -> None:
    received = Imports.received

    def at_once(self: Imports, message: Any, wall_us: int, now: float) -> Imported:
        result = received(self, message, wall_us, now)
        for each in self._waiting[message.server]:
            each.is_done = True
        self._finish(message.server, result)
        return result

    patch.setattr(Imports, "received", at_once)


def begin_each_life_with_one_epoch(patch: Patch) -> None:
    patch.setattr(routing_lives, "epoch_of", lambda life, place, known=0: 1)


def replace_circuits_in_silence(patch: Patch) -> None:
    patch.setattr(CircuitHost, "_replace", lambda self, former: None)


def take_the_whole_by_its_changes(patch: Patch) -> None:
    apply_message = WantedInterests.apply

    def changes_only(self: WantedInterests, *arguments: Any) -> None:
        result = arguments[5]
        if result.added or result.removed:
            apply_message(self, *arguments)

    patch.setattr(WantedInterests, "apply", changes_only)


def mix_the_types_of_a_server(patch: Patch) -> None:
    patch.setattr(imports_module, "device_of", lambda identity, subject: identity.origin)


def tell_before_all_servers_have_told(patch: Patch) -> None:
    patch.setattr(DomesticTable, "awaited", property(lambda self: ()))


def keep_what_an_earlier_life_knew(patch: Patch) -> None:
    patch.setattr(Exports, "interests", lambda self: [])


def forward_children_that_nobody_wants(patch: Patch) -> None:
    forward = Exports._forward

    def forwarded(self: Exports, arrived: Any, now: float) -> None:
        self._filters[arrived.event.subject] += 1
        forward(self, arrived, now)
        self._filters[arrived.event.subject] -= 1

    patch.setattr(Exports, "_forward", forwarded)


def never_publish_again(patch: Patch) -> None:
    patch.setattr(Imports, "retry", lambda self, now: Imported())


SABOTAGES: Sequence[tuple[Callable[[Patch], None], str, tuple[int, ...]]] = [
    (name_the_gateway_in_the_publisher, "has accepted", (1, 2)),
    (number_by_arrival, "has accepted", (1, 2)),
    (begin_before_the_filters_are_known, " has missed ", (2, 4)),
    (acknowledge_what_is_not_durable, " has missed ", (63,)),
    (begin_each_life_with_one_epoch, "", (2, 6)),
    (replace_circuits_in_silence, " interest ", (63, 11)),
    (take_the_whole_by_its_changes, " has too much interest ", (2, 3)),
    (mix_the_types_of_a_server, "has accepted", (1, 2)),
    (tell_before_all_servers_have_told, " has missed ", (2, 4)),
    (keep_what_an_earlier_life_knew, " has too much interest ", (10, 24)),
    (forward_children_that_nobody_wants, " of type ", (2, 5)),
    (never_publish_again, " not durable", (2,)),
]


@pytest.mark.parametrize(
    ("break_product", "problem", "known"),
    SABOTAGES,
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_missing_safeguard_is_noticed(
    monkeypatch: Patch, break_product: Callable[[Patch], None], problem: str, known: tuple[int, ...]
) -> None:
    break_product(monkeypatch)
    assert is_noticed(FederationScenario.run_seed, known, problem)
