"""Summary of the replications of the merging experiment, and its goals (SPEC R-04, X35)."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from wanderbus.evaluation.goals import Goal
from wanderbus.evaluation.merging.growth import Growth
from wanderbus.evaluation.merging.measuring import Counted, MergedOutcome, Weight
from wanderbus.evaluation.merging.methods import Method, Propagated
from wanderbus.evaluation.merging.mixes import REFERENCE
from wanderbus.evaluation.merging.plots import merging_plot
from wanderbus.evaluation.merging.summary import PUBLISHED, SHOWN, Spread, goals, summarize


def outcome(
    *counted: Counted,
    tuples: int = 3,
    mix: str = REFERENCE.name,
    method: Method = Method.IMPERFECT,
    filters: int = 10,
    subscriptions: int = 200,
    gzip_stream_bytes: int = 150,
) -> MergedOutcome:
    return MergedOutcome(
        mix,
        tuples,
        subscriptions,
        method,
        seed=1,
        structures=10,
        filters=filters,
        predicates=30,
        by_schema=counted or (Counted(wanted=95, unwanted=5),),
        propagated=Propagated(20, 40),
        xml_each=Weight(2_000, 1_000),
        xml_stream=Weight(1_500, gzip_stream_bytes),
        merge_ms=1.0,
        match_us=2.0,
    )


def met(*outcomes: MergedOutcome, growths: tuple[Growth, ...] = ()) -> dict[str, Goal]:
    return {goal.name: goal for goal in goals(summarize(outcomes), growths, 0.9)}


def test_replications_give_least_mean_and_most() -> None:
    (summary,) = summarize(
        [
            outcome(Counted(wanted=9, unwanted=1), Counted(wanted=10)),
            outcome(Counted(wanted=7, unwanted=3), Counted(wanted=10), filters=20),
        ]
    )
    assert summary.precision_percent == Spread(85, 90, 95)
    assert summary.schema_quartiles_percent == (85.0, 100.0)
    assert (summary.runs, summary.filters, summary.events) == (2, 15, 40)
    assert summary.reduction_percent == pytest.approx(92.5)
    assert (summary.xml_each.percent, summary.xml_stream.percent) == (50, 10)


def test_a_set_that_lets_nothing_through_has_no_precision() -> None:
    (summary,) = summarize([outcome(Counted()), outcome(Counted())])
    assert (summary.precision_percent, summary.schema_quartiles_percent, summary.recall_percent) == (None, None, None)


def test_the_published_precision() -> None:
    assert SHOWN == {2: "100", 3: "92-99", 4: "60-82"}
    assert PUBLISHED == {2: (99.5, 100), 3: (92, 99), 4: (60, 82)}
    at_200, at_100, perfect, random = summarize(
        [
            outcome(),
            outcome(subscriptions=100),
            outcome(method=Method.PERFECT),
            outcome(mix="random-structure"),
        ]
    )
    assert at_200.published == (92.0, 99.0)
    assert (at_100.published, perfect.published, random.published) == (None, None, None)


@pytest.mark.parametrize(
    ("tuples", "wanted", "is_met"),
    [(2, 9_949, False), (2, 9_950, True), (3, 9_199, False), (3, 9_310, True), (3, 9_901, False), (4, 7_250, True)],
)
def test_precision_is_held_to_the_published_range(tuples: int, wanted: int, is_met: bool) -> None:
    goal = met(outcome(Counted(wanted, 10_000 - wanted), tuples=tuples))[f"precision_{tuples}"]
    assert goal.met is is_met
    assert (goal.value, goal.goal) == (wanted / 100, PUBLISHED[tuples])


def test_other_mixes_and_sizes_are_held_to_no_published_precision() -> None:
    assert met(outcome(mix="two-sided"), outcome(subscriptions=100)).keys() == {
        "recall",
        "structures_not_fused",
        "gzip_streams_no_better",
    }


def test_one_event_missed_is_too_many() -> None:
    assert met(outcome())["recall"].met
    assert not met(outcome(), outcome(Counted(wanted=1_000_000, missed=1), tuples=2), outcome(tuples=4))["recall"].met


def test_every_other_goal_can_fail() -> None:
    flat, steep = (Growth(Method.PERFECT, (10, 100), (1.0, last_s)) for last_s in (10.0, 1_001.0))
    assert flat.slope == pytest.approx(1)
    good = met(
        outcome(),
        outcome(Counted(wanted=90, unwanted=10), method=Method.ADAPTIVE),
        outcome(Counted(wanted=5), method=Method.PERFECT),
        outcome(Counted(wanted=5), mix="random-structure", filters=199, method=Method.PERFECT),
        growths=(flat,),
    )
    bad = met(
        outcome(Counted(wanted=899, unwanted=101), method=Method.ADAPTIVE),
        outcome(filters=11, gzip_stream_bytes=750),
        outcome(Counted(wanted=99_999, unwanted=1), method=Method.PERFECT),
        outcome(mix="random-structure", filters=180, method=Method.PERFECT),
        growths=(steep,),
    )
    names = {
        "adaptive_precision",
        "perfect_precision",
        "structures_not_fused",
        "gzip_streams_no_better",
        "random_structure_reduction",
        "slope_perfect",
    }
    assert all(good[name].met for name in names)
    assert not any(bad[name].met for name in names)


def test_a_goal_in_words() -> None:
    assert str(Goal.within("precision_3", 93.14159, "%", (92.0, 99.0))) == "precision_3: 93.1416 %, goal 92 to 99: met"
    assert str(Goal.exactly("recall", 99.99999, "%", 100)) == "recall: 100 %, goal 100: NOT MET"


def test_the_plot_is_a_picture() -> None:
    summaries = summarize(
        outcome(Counted(wanted=9, unwanted=1), tuples=tuples, subscriptions=count, method=method)
        for tuples in (2, 3)
        for count in (100, 200)
        for method in Method
    )
    picture = merging_plot(REFERENCE, summaries)
    root = ElementTree.fromstring(picture)
    assert root.tag.endswith("svg")
    assert picture.count("published: ") == 2
    assert "3 tuples: precision, %" in picture
    assert "published: " not in merging_plot(REFERENCE, [s for s in summaries if s.cell.subscriptions == 100])
