"""Seeded worlds of decentralised domains: nobody reads an answer before its cause (SPEC K-06; decision 0175)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.simulation.noticing import is_noticed
from wanderbus.broker.causes.domain_order import DomainOrder
from wanderbus.broker.causes.domain_pasts import DomainPasts
from wanderbus.federation.cause_order import CauseOrder
from wanderbus.simulation.federation.causal_scenario import CausalFederationScenario
from wanderbus.simulation.layers import Layer, replay_command
from wanderbus.simulation.scenario import Result

SEEDS = (1, 4, 5, 8, 17, 20)
Patch = pytest.MonkeyPatch


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [CausalFederationScenario.run_seed(seed) for seed in SEEDS]


def test_k06_no_answer_before_its_cause_in_any_domain(results: list[Result]) -> None:
    failed = [each for each in results if each.problems]
    replays = [replay_command(Layer.FEDERATION_CAUSAL, each.seed) for each in failed]
    assert not failed, (replays, [each.problems for each in failed])


def test_the_seeds_have_enough_happening_in_them(results: list[Result]) -> None:
    for field, least in (
        ("domains", 18),
        ("imported", 1_500),
        ("answers", 500),
        ("read", 2_000),
        ("crossed", 200),
        ("held", 300),
        ("crashes", 5),
        ("partitions", 5),
    ):
        assert sum(result.counts[field] for result in results) > least, field


def test_the_same_seed_gives_the_same_history_of_causal_domains() -> None:
    first, second = (CausalFederationScenario(4, keep_trace=True) for _ in range(2))
    assert first.run() == second.run()
    assert first.world.trace == second.world.trace


def wait_for_no_cause(patch: Patch) -> None:
    patch.setattr(CauseOrder, "must_wait", lambda self, source, causes: False)


def publish_past_the_gateway(patch: Patch) -> None:
    patch.setattr(DomainOrder, "gateway", lambda self, targets: None)


def name_no_cause_of_others(patch: Patch) -> None:
    patch.setattr(DomainPasts, "causes", lambda self, own, domains, now_us: ())


SABOTAGES: Sequence[tuple[Callable[[Patch], None], str, tuple[int, ...]]] = [
    (wait_for_no_cause, " before its cause ", (8, 1)),
    (publish_past_the_gateway, " before its cause ", (17,)),
    (name_no_cause_of_others, " before its cause ", (8, 1)),
]


@pytest.mark.parametrize(
    ("break_product", "problem", "known"),
    SABOTAGES,
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_missing_safeguard_of_causal_domains_is_noticed(
    monkeypatch: Patch, break_product: Callable[[Patch], None], problem: str, known: tuple[int, ...]
) -> None:
    break_product(monkeypatch)
    assert is_noticed(CausalFederationScenario.run_seed, known, problem)
