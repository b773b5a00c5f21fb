"""The merged set while filters are added and removed: always equal to a merge of all of them (SPEC B-12)."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.filters.merging_cases import conjunctions, filters, of_node, random_alike
from wanderbus.filters import merging
from wanderbus.filters.merging import MergedSet, filter_of, merge_conjunctions
from wanderbus.filters.merging_results import MergedChange
from wanderbus.filters.normal import Conjunction
from wanderbus.filters.normalising import normal_form
from wanderbus.work import WorkBudget


def forms(*texts: str) -> tuple[Conjunction, ...]:
    return tuple(conjunctions(*texts))


def test_removing_the_coverer_brings_back_the_covered() -> None:
    merged = MergedSet()
    narrow, wide = filters("x < 5 and y < 5", "x < 9 and y < 9")
    assert merged.add(1, narrow) == MergedChange(forms("x < 5 and y < 5"), ())
    assert merged.add(2, wide) == MergedChange(forms("x < 9 and y < 9"), forms("x < 5 and y < 5"))
    assert merged.remove(2) == MergedChange(forms("x < 5 and y < 5"), forms("x < 9 and y < 9"))


def test_an_update_without_effect_is_not_reported() -> None:
    merged = MergedSet()
    wide, narrow = filters("x < 9", "x < 5")
    merged.add(1, wide)
    assert not merged.add(2, wide)
    assert not merged.add(3, narrow)
    assert not merged.remove(1)
    assert not merged.remove(3)
    assert merged.remove(2).removed == forms("x < 9")
    assert len(merged) == 0


def test_several_at_once_change_it_once() -> None:
    merged = MergedSet()
    merged.add("old", filters("x == 3")[0])
    change = merged.update(dict(zip("abc", filters("x == 1", "x == 2", "y == 1"), strict=True)), ["old"])
    assert set(change.added) == set(forms("x in (1, 2)", "y == 1"))
    assert change.removed == forms("x == 3")


def test_the_same_id_takes_the_place_of_what_was_there() -> None:
    merged = MergedSet()
    merged.add(1, filters("x == 1")[0])
    assert merged.add(1, filters("x == 2")[0]) == MergedChange(forms("x == 2"), forms("x == 1"))
    assert merged.conjunctions() == list(forms("x == 2"))


def test_only_changed_structures_are_merged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def counting(conjunctions: Any, _work: WorkBudget) -> list[Conjunction]:
        seen.append(len(conjunctions))
        return list(conjunctions)

    monkeypatch.setattr(merging, "merging_of", lambda *_: counting)
    merged = MergedSet()
    merged.update(dict(enumerate(filters("x == 1", "x == 2", "x == 2", "y == 1"))))
    assert sorted(seen) == [1, 2]
    seen.clear()
    merged.remove(1)
    assert seen == []
    merged.remove(2)
    assert seen == [1]


def test_an_unknown_id_is_refused_and_nothing_changes() -> None:
    merged = MergedSet()
    merged.add(1, filters("x == 1")[0])
    with pytest.raises(KeyError):
        merged.update({2: filters("x == 2")[0]}, [1, 7])
    assert merged.conjunctions() == list(forms("x == 1"))


def test_merged_filters_have_an_equivalent_text() -> None:
    merged = MergedSet()
    merged.update(dict(enumerate(filters("x == 1 and y < 3", "x == 1 and y > 7"))))
    (one,) = merged.filters()
    assert normal_form(one) == tuple(merged.conjunctions())
    assert one == filter_of(merged.conjunctions()[0])


def test_nothing_is_kept_of_filters_that_are_gone() -> None:
    class Id:
        """An object that a weak reference can follow."""

    merged = MergedSet()
    ids = [Id() for _ in range(100)]
    merged.update({id: filters(f"x == {number} and y{number} < 3")[0] for number, id in enumerate(ids)})
    gone = weakref.ref(ids[0])
    merged.update(removed=ids)
    ids.clear()
    gc.collect()
    assert gone() is None
    assert not merged._forms
    assert not merged._groups


class Coming(RuleBasedStateMachine):
    """Filters of few structures and values added, replaced and removed at random."""

    @initialize(mode=st.sampled_from(merging.MODES), seed=st.integers(0, 10_000))
    def begin(self, mode: merging.Mode, seed: int) -> None:
        rng = random.Random(seed)
        self.mode = mode
        self.pool = [normal_form(of_node(node)) for _ in range(3) for node in random_alike(rng, 6)]
        self.merged = MergedSet(mode, precision_min=0.7)
        self.there: dict[int, int] = {}
        self.current: set[Conjunction] = set()

    def hear(self, change: MergedChange) -> None:
        assert not self.current & set(change.added)
        assert set(change.removed) <= self.current
        self.current = (self.current - set(change.removed)) | set(change.added)

    @rule(id=st.integers(0, 12), which=st.integers(0, 17))
    def add(self, id: int, which: int) -> None:
        self.there[id] = which
        self.hear(self.merged.add(id, self.pool[which]))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.there:
            id = data.draw(st.sampled_from(sorted(self.there)))
            del self.there[id]
            self.hear(self.merged.remove(id))

    @rule(data=st.data())
    def change(self, data: st.DataObject) -> None:
        leaving = [id for id in sorted(self.there) if data.draw(st.booleans())]
        coming = data.draw(st.dictionaries(st.integers(0, 12), st.integers(0, 17), max_size=4))
        for id in leaving:
            del self.there[id]
        self.there |= coming
        self.hear(self.merged.update({id: self.pool[which] for id, which in coming.items()}, leaving))

    @invariant()
    def is_what_merging_anew_gives(self) -> None:
        if not hasattr(self, "merged"):
            return
        fresh = merge_conjunctions(
            (each for which in self.there.values() for each in self.pool[which]), self.mode, precision_min=0.7
        )
        assert set(self.merged.conjunctions()) == set(fresh) == self.current
        assert len(self.merged) == len(fresh)


TestComing = Coming.TestCase
TestComing.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
