"""Interest sets: what is sent covers what is local, is minimal, and comes back (SPEC B-10, B-12, J-10)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.filters.merging_cases import of_node, random_alike, random_events, random_nodes
from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.channels.interest.interest_set import MODES, InterestMode, InterestSet
from wanderbus.errors import ConfigurationError
from wanderbus.event import Event
from wanderbus.filters import Filter, parse
from wanderbus.filters.evaluate import evaluate
from wanderbus.filters.merging import merge_conjunctions
from wanderbus.filters.normalising import to_node

SUBJECTS = ("s", "t", None)


def texts(change: InterestChange) -> tuple[list[str], list[str]]:
    added, removed = (
        [str(parse_back(each)) for each in sorted(several, key=repr)] for several in (change.added, change.removed)
    )
    return added, removed


def parse_back(interest: Interest) -> str:
    from wanderbus.filters.merging import filter_of

    return f"{interest.subject}: {filter_of(interest.conjunction).text}"


def added(interests: InterestSet, id: str, subject: str | None, text: str) -> tuple[list[str], list[str]]:
    return texts(interests.update({id: (subject, parse(text))}))


@pytest.mark.parametrize("mode", MODES)
def test_a_covered_filter_sends_nothing_and_comes_back_in_the_change_that_removes_its_coverer(
    mode: InterestMode,
) -> None:
    interests = InterestSet(mode)
    assert added(interests, "wide", "s", "x < 9") == (["s: x < 9"], [])
    assert added(interests, "narrow", "s", "x < 5 and y == 1") == ([], [])
    assert texts(interests.update({}, ["wide"])) == (["s: x < 5 and y == 1"], ["s: x < 9"])


def test_a_wider_filter_replaces_what_it_covers_in_one_change() -> None:
    interests = InterestSet()
    added(interests, "narrow", "s", "x < 5 and y == 1")
    assert added(interests, "wide", "s", "x < 9") == (["s: x < 9"], ["s: x < 5 and y == 1"])


def test_a_filter_of_every_subject_covers_those_of_each() -> None:
    interests = InterestSet()
    added(interests, "one", "s", "x < 5")
    assert added(interests, "all", None, "x < 9") == (["None: x < 9"], ["s: x < 5"])
    assert added(interests, "another", "t", "x < 3") == ([], [])
    assert texts(interests.update({}, ["all"])) == (["s: x < 5", "t: x < 3"], ["None: x < 9"])


def test_a_filter_of_one_subject_covers_none_of_every_subject() -> None:
    interests = InterestSet()
    added(interests, "one", "s", "x < 9")
    assert added(interests, "all", None, "x < 5") == (["None: x < 5"], [])


def test_a_filter_of_two_owners_goes_when_both_are_gone() -> None:
    interests = InterestSet()
    added(interests, "first", "s", "x < 5")
    assert added(interests, "second", "s", "x < 5") == ([], [])
    assert not interests.update({}, ["first"])
    assert texts(interests.update({}, ["second"])) == ([], ["s: x < 5"])


def test_a_replaced_filter_is_one_change() -> None:
    interests = InterestSet()
    added(interests, "one", "s", "x < 5")
    assert added(interests, "one", "s", "x < 3") == (["s: x < 3"], ["s: x < 5"])
    assert added(interests, "one", "s", "x < 3") == ([], [])


def test_modes_differ_in_what_they_merge() -> None:
    sizes = {}
    for mode in MODES:
        interests = InterestSet(mode, precision_min=0.0)
        for number in range(4):
            added(interests, f"{number}", "s", f"x == {number} and y == 0")
        added(interests, "4", "s", "x == 9 and y == 7")
        sizes[mode] = len(interests.sent())
    assert sizes == {"none": 5, "perfect": 2, "imperfect": 1, "adaptive": 1}


def test_adaptive_merging_splits_again_for_a_higher_precision() -> None:
    interests = InterestSet("adaptive", precision_min=0.0)
    added(interests, "1", "s", "x == 1 and y == 1")
    added(interests, "2", "s", "x == 9 and y == 9")
    added(interests, "3", "s", "x == 9 and y == 1")
    assert len(interests.sent()) == 1
    interests.set_precision(["s"], 1.0)
    assert {parse_back(each) for each in interests.sent()} == {"s: x == 9 and y in {1, 9}", "s: x == 1 and y == 1"} or (
        len(interests.sent()) == 2
    )
    assert not matches(interests.sent(), Event("s", {"x": 1, "y": 9}))
    assert matches(interests.sent(), Event("s", {"x": 9, "y": 9}))


def test_an_unknown_id_and_an_unknown_mode_are_refused() -> None:
    with pytest.raises(KeyError):
        InterestSet().update({}, ["x"])
    with pytest.raises(ConfigurationError, match="unknown mode"):
        InterestSet("most")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="precision_min"):
        InterestSet("adaptive", precision_min=2.0)


def matches(interests: list[Interest], event: Event) -> bool:
    return any(
        each.subject in (None, event.subject) and evaluate(to_node((each.conjunction,)), event) is True
        for each in interests
    )


class InterestSetModel(RuleBasedStateMachine):
    """Changes of an interest set, against a dictionary of filters that is evaluated."""

    @initialize(mode=st.sampled_from(MODES), seed=st.integers(0, 2**32))
    def begin(self, mode: InterestMode, seed: int) -> None:
        self.mode = mode
        self.rng = random.Random(seed)
        self.interests = InterestSet(mode, precision_min=0.5)
        self.local: dict[int, tuple[str | None, Filter]] = {}
        self.sent: set[Interest] = set()

    def updated(self, added: dict[int, tuple[str | None, Filter]], removed: list[int]) -> None:
        covered = all(self.is_covered(subject, each) for subject, each in added.values()) and not removed
        replaced = any(id in self.local for id in added)
        change = self.interests.update({id: each for id, each in added.items()}, removed)  # noqa: C416
        for id in removed:
            self.local.pop(id)
        self.local |= added
        if covered and not replaced:
            assert not change, "a covered subscription sends nothing"
        self.apply(change)

    def apply(self, change: InterestChange) -> None:
        assert self.sent.isdisjoint(change.added)
        assert self.sent.issuperset(change.removed)
        self.sent = (self.sent | set(change.added)) - set(change.removed)

    def is_covered(self, subject: str | None, each: Filter) -> bool:
        from wanderbus.filters.normalising import normal_form

        return all(any(one.covers(Interest(subject, its)) for one in self.sent) for its in normal_form(each))

    @rule(count=st.integers(1, 4), subject=st.sampled_from(SUBJECTS), id=st.integers(0, 20), alike=st.booleans())
    def add(self, count: int, subject: str | None, id: int, alike: bool) -> None:
        nodes = random_alike(self.rng, count) if alike else random_nodes(self.rng)[:count]
        self.updated({id + n: (subject, of_node(each)) for n, each in enumerate(nodes)}, [])

    @rule(data=st.data())
    def remove(self, data: Any) -> None:
        ids = data.draw(st.lists(st.sampled_from(sorted(self.local)), unique=True)) if self.local else []
        self.updated({}, ids)

    @rule(subject=st.sampled_from(SUBJECTS), precision=st.sampled_from((0.0, 0.5, 1.0)))
    def set_precision(self, subject: str | None, precision: float) -> None:
        if self.mode == "adaptive":
            self.apply(self.interests.set_precision([subject], precision))

    @invariant()
    def what_is_sent_is_what_the_changes_add_up_to(self) -> None:
        assert set(self.interests.sent()) == self.sent

    @invariant()
    def nothing_that_is_wanted_is_missed_and_nothing_else_is_sent_without_loss(self) -> None:
        wanted = [filter for _, filter in self.local.values()]
        for event in random_events(self.rng, [each.root for each in wanted], 10) if wanted else []:
            for subject in ("s", "t", "u"):
                copy = Event(subject, event.attributes)
                asked = any(its in (None, subject) and each.matches(copy) for its, each in self.local.values())
                sent = matches(list(self.sent), copy)
                assert sent >= asked
                if self.mode in ("none", "perfect"):
                    assert sent == asked

    @invariant()
    def no_sent_interest_covers_another(self) -> None:
        for one in self.sent:
            assert not any(one is not other and one.covers(other) for other in self.sent)

    @invariant()
    def merging_again_merges_nothing(self) -> None:
        if self.mode in ("perfect", "imperfect"):
            for subject in SUBJECTS:
                sent = [each.conjunction for each in self.sent if each.subject == subject]
                assert len(merge_conjunctions(sent, self.mode)) == len(sent)

    def teardown(self) -> None:
        if hasattr(self, "local"):
            self.updated({}, list(self.local))
            assert not self.sent


TestInterestSetModel = InterestSetModel.TestCase
TestInterestSetModel.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
