"""Schemas, subscriptions and events of the merging experiment (SPEC R-04, X35)."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random

import pytest

from tests.evaluation.naive_merging import matches, plain
from wanderbus.errors import ConfigurationError
from wanderbus.evaluation.merging.mixes import MIXES, REFERENCE, Mix, Structures
from wanderbus.evaluation.merging.workload import NUMBER_RANGE, STRINGS, one_of, union, workload
from wanderbus.filters import parse

every_mix = pytest.mark.parametrize("mix", MIXES, ids=lambda mix: mix.name)


@every_mix
@pytest.mark.parametrize("tuples", [2, 3, 4])
def test_a_replication_is_the_papers(mix: Mix, tuples: int) -> None:
    made = workload(mix, tuples, 1)
    assert len(made.subscriptions) == 200
    assert len(made.schemas) == (200 if mix.structures is Structures.OWN else 10)
    assert {len(schema) for schema in made.schemas} == {tuples}
    assert all(constraint.places for each in made.subscriptions for constraint in each.constraints)
    # Attributes of one type share their values.
    for type_, values in {each.type: each.values for schema in made.schemas for each in schema}.items():
        assert list(values) == sorted(set(values))
        match type_:
            case "string":
                assert len(values) == STRINGS
            case "boolean":
                assert list(values) == [False, True]
            case _:
                assert values[0] == 0
                assert int(values[-1]) == NUMBER_RANGE - 1


def test_in_turn_every_schema_has_equally_many() -> None:
    made = workload(REFERENCE, 3, 1)
    assert set(Counter(each.schema for each in made.subscriptions).values()) == {20}
    assert set(Counter(each.schema for each in made.first(50).subscriptions).values()) == {5}
    drawn = Counter(each.schema for each in workload(Mix.named("drawn-schemas"), 3, 1).subscriptions)
    assert len(set(drawn.values())) > 1


def test_no_two_schemas_have_the_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five names give exactly ten pairs."""
    monkeypatch.setattr("wanderbus.evaluation.merging.workload.NAMES", 5)
    made = workload(REFERENCE, 2, 1)
    assert len({frozenset(each.name for each in schema) for schema in made.schemas}) == 10


def test_the_seed_decides_everything() -> None:
    one, again, other = (workload(REFERENCE, 3, seed) for seed in (1, 1, 2))
    assert one == again
    assert one.trials(50, Random(7)) == again.trials(50, Random(7))
    assert one.subscriptions != other.subscriptions
    assert one.schemas != other.schemas


@pytest.mark.parametrize(
    "mix", [mix for mix in MIXES if mix.structures is not Structures.OWN], ids=lambda mix: mix.name
)
def test_an_expression_equals_its_positions(mix: Mix) -> None:
    """The workload knows the matches without evaluation; the filters agree, event by event."""
    wanted = 0
    for seed in range(3):
        made = workload(mix, 2, seed, 40)
        for trial in made.trials(100, Random(seed)):
            for each, merged in zip(made.subscriptions, plain(made.subscriptions), strict=True):
                expected = matches(merged, made, trial.event)
                wanted += expected
                assert parse(each.text).matches(trial.event) is expected, (seed, each.text, trial)
    assert wanted > 50


def test_one_sided_constraints_hold_of_half_the_values() -> None:
    signs = Counter[str]()
    shares: dict[str, float] = defaultdict(float)
    counts = Counter[str]()
    for seed in range(20):
        made = workload(REFERENCE, 4, seed)
        for each in made.subscriptions:
            for attribute, constraint in zip(made.schemas[each.schema], each.constraints, strict=True):
                counts[attribute.type] += 1
                signs[constraint.text.split()[1]] += 1
                shares[attribute.type] += sum(map(len, constraint.places)) / len(attribute.values)
    for type_, count in counts.items():
        # Uniform from 0 to 1, the mean of n has a deviation of 0.29 / sqrt(n); five of them are allowed.
        assert shares[type_] / count == pytest.approx(0.5, abs=1.5 / count**0.5), type_
    assert signs.keys() == {"<", ">", "=="}
    assert abs(signs["<"] - signs[">"]) < 5 * (signs["<"] + signs[">"]) ** 0.5


def test_values_of_events_are_uniform() -> None:
    """Chi-squared of 20 cells: above 45 in one run of a thousand."""
    made = workload(Mix.named("numeric"), 2, 3)
    cells = Counter(
        (place, int(value // (NUMBER_RANGE / 20)))
        for trial in made.trials(4_000, Random(11))
        for place, value in enumerate(trial.event.attributes.values())
    )
    for place in range(2):
        assert sum((cells[place, cell] - 200) ** 2 / 200 for cell in range(20)) < 45


def test_wanted_events_are_of_values_that_some_subscription_asks_for() -> None:
    made = workload(Mix.named("equality-rich"), 3, 1)
    for trial in made.trials(300, Random(1)):
        own = [each for each in made.subscriptions if each.schema == trial.schema]
        for number, attribute in enumerate(made.schemas[trial.schema]):
            place = attribute.values.index(trial.event[attribute.name])
            assert any(place in places for each in own for places in each.constraints[number].places)


def test_union_of_places() -> None:
    assert union([(range(3, 5),), (range(0, 2), range(7, 9)), (range(4, 6), range(9, 10))]) == (
        range(0, 2),
        range(3, 6),
        range(7, 10),
    )


def test_every_position_of_several_runs_is_equally_likely() -> None:
    random = Random(5)
    drawn = Counter(one_of((range(2, 3), range(5, 10), range(20, 23)), random) for _ in range(9_000))
    assert drawn.keys() == {2, 5, 6, 7, 8, 9, 20, 21, 22}
    # Five deviations of a binomial of 9,000 and 1/9.
    assert all(abs(count - 1_000) < 150 for count in drawn.values())


def test_an_unknown_mix_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"there is no mix 'none'; mixes are one-sided, .*random-structure"):
        Mix.named("none")
