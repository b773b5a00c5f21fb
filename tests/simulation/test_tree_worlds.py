"""Seeded worlds of domains with few links, whose types have the method tree (SPEC M-04, M-05; decision 0170)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import msgspec
import pytest

from tests.simulation.noticing import is_noticed
from tests.simulation.tree_scenario import SHAPES, TreeLayout, TreeScenario
from wanderbus.federation.methods import spanning_tree
from wanderbus.federation.routed.links import RoutedLinks
from wanderbus.simulation.federation.moving_scenario import MovingScenario

SEEDS = (1, 2, 3, 4, 7, 9, 14)
Patch = pytest.MonkeyPatch


def test_m04_every_promise_holds_in_chains_rings_and_stars() -> None:
    results = [TreeScenario.run_seed(seed) for seed in SEEDS]
    assert [each.problems for each in results] == [[]] * len(results)
    assert {seed % len(SHAPES) for seed in SEEDS} == set(range(len(SHAPES)))
    for field, least in (("passed", 2_000), ("imported", 800), ("crashes", 10), ("partitions", 10), ("takeovers", 1)):
        assert sum(each.counts[field] for each in results) > least, field


class MovingTreeScenario(MovingScenario):
    """Sessions move between domains, most of which have no link of their own."""

    method = "tree"

    def _make_layout(self, seed: int, draw: Random) -> TreeLayout:
        layout = TreeLayout(seed, draw)
        layout.sessions_move = True
        return layout


def test_sessions_move_between_domains_without_a_link() -> None:
    results = [MovingTreeScenario.run_seed(seed) for seed in (2, 9)]
    assert [each.problems for each in results] == [[], []]
    assert sum(each.counts["moves"] for each in results) >= 5


def find_the_longest_tree(patch: Patch) -> None:
    chosen = spanning_tree._chosen
    patch.setattr(
        spanning_tree,
        "_chosen",
        lambda edges: chosen([msgspec.structs.replace(each, distance=-each.distance) for each in edges]),
    )


def call_each_domain_once(patch: Patch) -> None:
    call_missing = RoutedLinks._call_missing

    def call(self: RoutedLinks, now: float) -> None:
        if not self.__dict__.setdefault("called", False):
            call_missing(self, now)
            self.__dict__["called"] = bool(self._ends)

    patch.setattr(RoutedLinks, "_call_missing", call)


SABOTAGES: Sequence[tuple[Callable[[Patch], None], str, tuple[int, ...]]] = [
    (find_the_longest_tree, "is not in the tree", (7, 5)),
    (call_each_domain_once, "have a link to", (2, 9)),
]


@pytest.mark.parametrize(
    ("break_product", "problem", "known"), SABOTAGES, ids=lambda value: value.__name__ if callable(value) else ""
)
def test_a_missing_safeguard_of_routed_links_is_noticed(
    monkeypatch: Patch, break_product: Callable[[Patch], None], problem: str, known: tuple[int, ...]
) -> None:
    break_product(monkeypatch)
    assert is_noticed(TreeScenario.run_seed, known, problem)
