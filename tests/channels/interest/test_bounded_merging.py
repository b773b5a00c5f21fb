"""Merging and covering are bounded by counted work, for filters that somebody else chooses (SPEC B-10, U-02)."""

from __future__ import annotations

import string
from random import Random

import pytest

from wanderbus import limits
from wanderbus.channels.interest import covering_set
from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.interest_set import InterestSet
from wanderbus.event import Event
from wanderbus.filters import Filter, parse
from wanderbus.filters.evaluate import evaluate
from wanderbus.filters.normalising import normal_form, to_node
from wanderbus.work import WorkBudget

SUBJECT = "S"


def costly(seed: int, contained: int = 100) -> str:
    """Return a filter of 2 KB: many contained texts, which multiply with eight clauses of two ways."""
    draw = Random(seed)
    texts = " or ".join(f'contains "{"".join(draw.choices(string.ascii_lowercase, k=3))}"' for _ in range(contained))
    return f"any a ({texts})" + "".join(f" and (b{each} == 1 or c{each} == 2)" for each in range(8))


def units(merged: InterestSet, key: int, text: str) -> int:
    """Add a filter; return the units of work that it took."""
    work = WorkBudget(limits.MERGE_WORK_MAX)
    merged.update({key: (SUBJECT, parse(text))}, (), work)
    return int(work.done)


def lets_through(sent: list[Interest], attributes: dict[str, object]) -> bool:
    event = Event(SUBJECT, attributes)
    return any(evaluate(to_node((each.conjunction,)), event) is True for each in sent)


@pytest.mark.parametrize("contained", [100, 60])
def test_filters_that_multiply_are_merged_within_the_bound(contained: int) -> None:
    merged = InterestSet("perfect")
    for seed in range(8):
        assert units(merged, seed, costly(seed, contained)) < 1.2 * limits.MERGE_WORK_MAX
    wanted = [parse(costly(seed, contained)) for seed in range(8)]
    draw = Random(1)
    for _ in range(200):
        text = "".join(draw.choices(string.ascii_lowercase, k=200))
        attributes: dict[str, object] = {"a": text}
        attributes |= {f"{draw.choice('bc')}{each}": draw.choice((1, 2)) for each in range(8)}
        event = Event(SUBJECT, attributes)
        if any(each.matches(event) for each in wanted):
            assert lets_through(merged.sent(), attributes)


def test_filters_beyond_the_bound_are_sent_as_they_are_and_lose_nothing() -> None:
    merged = InterestSet("perfect")
    forms = {}
    for number in range(40):
        text = f"x > {number} and y < {number % 7}"
        forms[number] = parse(text)
        merged.update({number: (SUBJECT, forms[number])}, (), WorkBudget(1))
    assert merged.exceeded == 40
    draw = Random(3)
    for _ in range(300):
        event = Event(SUBJECT, {"x": draw.randrange(50), "y": draw.randrange(-1, 8)})
        if any(each.matches(event) for each in forms.values()):
            assert lets_through(merged.sent(), dict(event.attributes))
    for number in forms:
        merged.update({}, [number], WorkBudget(1))
    assert merged.sent() == []
    assert len(merged) == 0


def test_a_change_among_many_filters_of_one_structure_costs_no_more_than_among_few() -> None:
    work_of = {}
    for count in (500, 20_000):
        merged = InterestSet("perfect")
        merged.update({each: (SUBJECT, parse(f"A >= {each * 10} and A < {each * 10 + 5}")) for each in range(count)})
        work_of[count] = units(merged, count, f"A >= {count * 10} and A < {count * 10 + 5}")
    assert work_of[20_000] < limits.MERGE_WORK_MAX
    assert work_of[20_000] < 4 * work_of[500]


def test_many_filters_of_one_structure_are_still_merged() -> None:
    merged = InterestSet("perfect")
    for each in range(1_000):
        merged.update({each: (SUBJECT, parse(f"Id == {each}"))})
    assert merged.exceeded == 0
    assert len(merged.sent()) < 12


def test_filters_that_a_broad_one_covered_are_placed_again_in_turns() -> None:
    merged = InterestSet("perfect")
    merged.update({"all": (SUBJECT, parse(""))})
    count = 5_000
    merged.update({each: (SUBJECT, parse(f"A >= {each * 10} and B == {each}")) for each in range(count)})
    assert len(merged.sent()) == 1
    work = WorkBudget()
    merged.update({}, ["all"], work)
    assert work.done < limits.MERGE_WORK_MAX
    turns = 0
    while not merged.is_settled:
        assert lets_through(merged.sent(), {"A": 0, "B": -1}), "less is wanted before all of it is placed"
        merged.go_on()
        turns += 1
    assert 3 < turns < count
    assert len(merged.sent()) == count


def test_a_broad_filter_that_comes_back_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering_set, "ORPHANS_MAX", 3)
    merged = InterestSet("perfect")
    merged.update({"all": (SUBJECT, parse(""))})
    merged.update({each: (SUBJECT, parse(f"A == {each}")) for each in range(10)})
    merged.update({}, ["all"])
    merged.update({"again": (SUBJECT, parse(""))})
    assert merged.is_settled
    assert len(merged.sent()) == 1
    merged.update({}, ["again"])
    for _ in range(10):
        merged.go_on()
    assert not lets_through(merged.sent(), {"A": 11})
    assert lets_through(merged.sent(), {"A": 9})


def adaptive_set(count: int) -> InterestSet:
    """Return a set of ranges that adaptive merging joins where it may, added at once."""
    merged, draw = InterestSet("adaptive", precision_min=0.5), Random(2)
    lows = [draw.randrange(10_000) for _ in range(count)]
    texts = [f"A >= {low} and A < {low + draw.randint(1, 60)} and C == {draw.randrange(40)}" for low in lows]
    merged.update({each: (SUBJECT, parse(text)) for each, text in enumerate(texts)})
    return merged


def work_of_turns(merged: InterestSet, precision: float) -> list[float]:
    """Merge to another precision in turns; return the units of each."""
    merged.set_precision([SUBJECT], precision)
    turns: list[float] = [merged._work.done]
    while not merged.is_settled:
        merged.go_on()
        turns.append(merged._work.done)
    return turns


def test_a_subject_is_merged_to_another_precision_in_turns() -> None:
    merged = adaptive_set(800)
    before = len(merged.sent())
    turns = work_of_turns(merged, 1.0)
    assert len(turns) > 3
    assert max(turns) < 1.6 * limits.MERGE_WORK_MAX
    precise = len(merged.sent())
    assert before < precise
    assert max(work_of_turns(merged, 0.5)) < 1.6 * limits.MERGE_WORK_MAX
    assert len(merged.sent()) <= precise, "a block that takes too much work stays as it was"


def test_a_change_goes_on_between_turns_of_merging_to_another_precision() -> None:
    merged = adaptive_set(800)
    merged.set_precision([SUBJECT], 1.0)
    merged.update({"more": (SUBJECT, parse("D == 1"))}, range(0, 800, 2))
    merged.update({"again": (SUBJECT, parse("A >= 5 and A < 6 and C == 3"))}, ["more", *range(1, 800, 2)])
    while not merged.is_settled:
        merged.go_on()
    assert [str(to_node((each.conjunction,))) for each in merged.sent()] == [
        str(to_node(normal_form(parse("A >= 5 and A < 6 and C == 3"))))
    ]


def test_the_work_does_not_depend_on_the_process() -> None:
    done = {
        tuple(units(merged, seed, costly(seed, 60)) for seed in range(3)) for merged in (InterestSet(), InterestSet())
    }
    assert len(done) == 1


def test_the_normal_form_of_the_costliest_filter_is_bounded() -> None:
    draw = Random(5)

    def contained() -> str:
        return " or ".join(f'contains "{"".join(draw.choices(string.ascii_lowercase, k=3))}"' for _ in range(50))

    text = " and ".join(f"(any a ({contained()}) or any a ({contained()}))" for _ in range(8))
    found: Filter = parse(text)
    work = WorkBudget()
    (only,) = normal_form(found, work=work)
    assert work.done <= limits.NORMAL_FORM_WORK_MAX
    assert only.residuals == (found.root,)
