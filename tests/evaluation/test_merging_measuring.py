"""Precision by counting, and one replication of the merging experiment (SPEC B-04 to B-08, B-11, R-04, R-05)."""

from __future__ import annotations

import gzip
from itertools import product
from random import Random

import msgspec
import pytest

from tests.evaluation import naive_merging
from wanderbus.evaluation.merging.measuring import (
    Counted,
    Job,
    MergedOutcome,
    count_matches,
    match,
    predicates,
    run_one,
    weigh_each,
    weigh_stream,
)
from wanderbus.evaluation.merging.methods import Method, Propagated, merged, propagations
from wanderbus.evaluation.merging.mixes import MIXES, REFERENCE, Mix, Structures
from wanderbus.evaluation.merging.workload import SUBJECT, Trial, workload
from wanderbus.event import Event
from wanderbus.filters import Filter, parse
from wanderbus.filters.xml import write

SIZES = (25, 60)
DRAWN = [mix for mix in MIXES if mix.structures is not Structures.OWN]


def outcomes(mix: Mix, tuples: int, seed: int = 1, events: int = 400) -> dict[tuple[int, Method], MergedOutcome]:
    found = run_one(Job(mix, tuples, seed, SIZES, 0.9, events))
    return {(each.subscriptions, each.method): each for each in found}


def untimed(outcome: MergedOutcome) -> MergedOutcome:
    return msgspec.structs.replace(outcome, merge_ms=0.0, match_us=0.0)


def test_b08_a_known_case_gives_the_expected_ratio() -> None:
    """The two originals match 5 x 5 of 10 x 10 events each; fused they let all 100 through: precision is a half."""
    originals = [parse("A < 5 and B < 5"), parse("A >= 5 and B >= 5")]
    trials = [Trial(0, Event(SUBJECT, {"A": a, "B": b})) for a, b in product(range(10), repeat=2)]
    wanted, _ = match(originals, trials)
    for method, expected in (
        (Method.UNMERGED, Counted(wanted=50)),
        (Method.PERFECT, Counted(wanted=50)),
        (Method.IMPERFECT, Counted(wanted=50, unwanted=50)),
    ):
        matched, _ = match(merged(method, originals), trials)
        (counted,) = count_matches(trials, wanted, matched)
        assert counted == expected, method
        assert counted.recall_percent == 100
        assert counted.precision_percent == (50 if method is Method.IMPERFECT else 100)


def test_missed_matches_are_counted() -> None:
    trials = [Trial(schema, Event(SUBJECT, {})) for schema in (1, 0, 1, 1)]
    counted = count_matches(trials, [True, True, False, True], [True, False, True, False])
    assert counted == (Counted(missed=1), Counted(wanted=1, unwanted=1, missed=1))
    assert [each.recall_percent for each in counted] == [0, 50]
    assert [each.precision_percent for each in counted] == [None, 50]


@pytest.mark.parametrize("mix", DRAWN, ids=lambda mix: mix.name)
def test_merging_means_what_naive_merging_means(mix: Mix) -> None:
    """A merged set lets the same events through as the naive one, which is known without evaluation."""
    for seed in range(2):
        made = workload(mix, 3, seed, 60)
        filters = [parse(each.text) for each in made.subscriptions]
        trials = made.trials(250, Random(seed))
        for method, naive in (
            (Method.UNMERGED, naive_merging.plain(made.subscriptions)),
            (Method.PERFECT, naive_merging.perfectly(made.subscriptions)),
            (Method.IMPERFECT, naive_merging.imperfectly(made.subscriptions)),
        ):
            expected = [any(naive_merging.matches(each, made, trial.event) for each in naive) for trial in trials]
            kept = merged(method, filters)
            assert match(kept, trials)[0] == expected, (seed, method)
            assert len(kept) <= len(naive), (seed, method)
            assert match([naive_merging.as_filter(each) for each in naive], trials)[0] == expected, (seed, method)


def test_imperfect_merging_leaves_one_filter_of_each_structure() -> None:
    for mix in DRAWN:
        for (_, method), each in outcomes(mix, 2, events=20).items():
            if method is Method.IMPERFECT:
                assert each.filters == each.structures, mix.name


def test_b11_random_structures_hardly_merge() -> None:
    for each in outcomes(Mix.named("random-structure"), 3).values():
        assert each.filters >= 0.95 * each.subscriptions
        assert each.counted.missed == 0


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: mix.name)
def test_nothing_is_missed_and_perfect_is_perfect(mix: Mix) -> None:
    for tuples in (2, 4):
        for (_, method), each in outcomes(mix, tuples).items():
            assert each.counted.missed == 0, method
            if method in (Method.UNMERGED, Method.PERFECT):
                assert each.counted.unwanted == 0, method


def test_sizes_and_bytes_of_a_replication() -> None:
    found = outcomes(REFERENCE, 2)
    assert found.keys() == set(product(SIZES, Method))
    for count in SIZES:
        unmerged, imperfect = found[count, Method.UNMERGED], found[count, Method.IMPERFECT]
        assert unmerged.filters == count
        assert unmerged.predicates == 2 * count
        assert imperfect.filters <= found[count, Method.PERFECT].filters <= count
        assert imperfect.xml_each.plain_bytes < unmerged.xml_each.plain_bytes
        assert unmerged.xml_stream.gzip_bytes < unmerged.xml_each.gzip_bytes < unmerged.xml_each.plain_bytes


def test_o02_bytes_are_those_of_gzip() -> None:
    filters = [parse("Stock == PETR4 and Price < 25"), parse("Price > 30")]
    each = weigh_each(filters)
    assert each.plain_bytes == sum(len(write(one.root).encode()) for one in filters)
    assert 0 < each.gzip_bytes < sum(len(gzip.compress(write(one.root).encode())) for one in filters) + 10
    stream = weigh_stream(filters)
    assert stream.gzip_bytes < each.gzip_bytes
    assert stream.percent == 100 * stream.gzip_bytes / stream.plain_bytes


def test_a_replication_is_the_same_every_time() -> None:
    one, again, other = (outcomes(REFERENCE, 3, seed).values() for seed in (4, 4, 5))
    assert list(map(untimed, one)) == list(map(untimed, again))
    assert list(map(untimed, one)) != list(map(untimed, other))


def test_neighbours_receive_only_changes() -> None:
    filters = [parse(text) for text in ("A < 5", "A < 3", "A > 3", "B == 1")]
    assert propagations(Method.UNMERGED, filters) == [
        Propagated(1, 1),
        Propagated(2, 2),
        Propagated(3, 3),
        Propagated(4, 4),
    ]
    # The second is covered; with the third, one filter goes and one comes.
    assert propagations(Method.IMPERFECT, filters) == [
        Propagated(1, 1),
        Propagated(1, 1),
        Propagated(2, 3),
        Propagated(3, 4),
    ]


def test_predicates_of_a_filter() -> None:
    def count(text: str) -> int:
        one: Filter = parse(text)
        return predicates(one.root)

    assert count("A < 1 and (B == 2 or not (C > 3))") == 3
    assert count("A in (1, 2, 3) and exists B") == 4
    assert count("") == 0
