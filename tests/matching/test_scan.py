"""The reference index against direct evaluation (SPEC A-03, B-01)."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from wanderbus.event import Event
from wanderbus.filters import Filter, parse
from wanderbus.matching import ScanIndex

TEXTS = ["", "p < 3", "not p < 3", "p == 1 or q == x", "q == x and p != 2", "t == true", "p >= 1 and not q == y"]
EVENTS = [
    Event(subject, attributes)
    for subject in ("A", "B", "C")
    for attributes in (
        {},
        {"p": 1},
        {"p": 2.0, "q": "x"},
        {"p": [1, 5], "q": ["y", 3]},
        {"p": "1", "q": "x", "t": True},
        {"t": 1, "q": []},
    )
]


def test_same_attributes_under_another_subject_do_not_match() -> None:
    """SPEC A-03."""
    index = ScanIndex()
    index.add("one", "StockExchange", parse("(Stock == PETR4) and (Price < 25)"))
    quote = {"Stock": "PETR4", "Price": 24}
    assert index.match([Event("StockExchange", quote), Event("Weather", quote)]) == [["one"], []]


def test_ids_come_in_order_of_addition() -> None:
    index = ScanIndex()
    for id in ("z", "a", "m"):
        index.add(id, "A", parse(""))
    index.remove("z")
    index.add("z", "A", parse("p == 1"))
    assert index.match([Event("A", {"p": 1}), Event("A", {})]) == [["a", "m", "z"], ["a", "m"]]


def test_add_replaces_and_may_change_the_subject() -> None:
    index = ScanIndex()
    index.add("one", "A", parse(""))
    index.add("one", "B", parse(""))
    assert index.match([Event("A", {}), Event("B", {})]) == [[], ["one"]]
    assert len(index) == 1


def test_remove_of_an_unknown_id_is_harmless() -> None:
    index = ScanIndex()
    index.remove("nobody")
    assert index.match([Event("A", {})]) == [[]]
    assert index.match([]) == []


class IndexAgainstEvaluate(RuleBasedStateMachine):
    """Adds, removals and matches in any order give the results of evaluating every filter."""

    def __init__(self) -> None:
        super().__init__()
        self.index = ScanIndex()
        self.naive: dict[str, tuple[str, Filter]] = {}

    @rule(id=st.sampled_from("abcdef"), subject=st.sampled_from("AB"), text=st.sampled_from(TEXTS))
    def add(self, id: str, subject: str, text: str) -> None:
        self.naive.pop(id, None)
        self.naive[id] = (subject, parse(text))
        self.index.add(id, subject, parse(text))

    @rule(id=st.sampled_from("abcdef"))
    def remove(self, id: str) -> None:
        self.naive.pop(id, None)
        self.index.remove(id)

    @invariant()
    def matches_alike(self) -> None:
        expected = [
            [id for id, (subject, interest) in self.naive.items() if subject == e.subject and interest.matches(e)]
            for e in EVENTS
        ]
        assert self.index.match(EVENTS) == expected
        assert len(self.index) == len(self.naive)


IndexAgainstEvaluate.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestIndexAgainstEvaluate = IndexAgainstEvaluate.TestCase
