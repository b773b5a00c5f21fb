"""Seeded worlds of domains that share events: each event once, in order, and only where it is wanted (SPEC M)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.federation.imports import Imports
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
        ("takeovers", 2),
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


SABOTAGES: Sequence[tuple[Callable[[Patch], None], str, tuple[int, ...]]] = [
    (name_the_gateway_in_the_publisher, "was accepted by", (1, 2)),
    (number_by_arrival, "", (1, 2)),
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
