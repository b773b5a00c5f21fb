"""Proposals of schemas from observed types (SPEC T-03)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.event import TYPE_NAMES, DeclaredAttribute
from wanderbus.schema_proposals import proposal
from wanderbus.subject_schemas import next_attributes, widens

counts = st.dictionaries(st.sampled_from((*TYPE_NAMES, "List")), st.integers(0, 5), max_size=4)
observations = st.dictionaries(st.sampled_from("abcde"), counts, max_size=5)
declarations = st.lists(
    st.builds(DeclaredAttribute, st.sampled_from("abcxy"), st.sampled_from(TYPE_NAMES), st.sampled_from((None, "m"))),
    max_size=4,
    unique_by=lambda each: each.name,
)


def test_t03_types_are_the_narrowest_that_fit_every_value() -> None:
    observed = {
        "Origin": {"String": 3},
        "Delay": {"Integer": 2, "Double": 1},
        "Distance": {"Integer": 3},
        "Tags": {"String": 2, "List": 1},
        "Never": {},
    }
    found = proposal(observed)
    assert found.attributes == (
        DeclaredAttribute("Delay", "Double"),
        DeclaredAttribute("Distance", "Integer"),
        DeclaredAttribute("Origin", "String"),
    )
    assert found.unfitting == {"Tags": 3}


@pytest.mark.parametrize(
    ("fitting_min", "proposed"), [(1.0, ()), (0.9, ()), (0.75, (DeclaredAttribute("Tags", "String"),))]
)
def test_a_share_of_the_values_is_enough_if_the_caller_says_so(
    fitting_min: float, proposed: tuple[DeclaredAttribute, ...]
) -> None:
    found = proposal({"Tags": {"String": 3, "List": 1}}, (), fitting_min)
    assert (found.attributes, found.unfitting) == (proposed, {"Tags": 1 if proposed else 4})


def test_declared_attributes_stay_and_widen_only_if_more_values_fit() -> None:
    declared = (
        DeclaredAttribute("n", "Integer", "m", "length"),
        DeclaredAttribute("k", "Integer"),
        DeclaredAttribute("s", "String"),
    )
    observed = {"n": {"Double": 1}, "k": {"Integer": 5}, "s": {"Integer": 2}, "a": {"Date": 1}}
    found = proposal(observed, declared)
    assert found.attributes == (
        DeclaredAttribute("n", "Double", "m", "length"),
        DeclaredAttribute("k", "Integer"),
        DeclaredAttribute("s", "String"),
        DeclaredAttribute("a", "Date"),
    )
    assert found.unfitting == {"s": 2}


@given(observations, declarations, st.floats(0, 1))
def test_t03_a_proposal_is_always_a_version_that_may_follow(
    observed: dict[str, dict[str, int]], declared: list[DeclaredAttribute], fitting_min: float
) -> None:
    found = proposal(observed, declared, fitting_min)
    if found.attributes:
        assert next_attributes(declared, found.attributes) == found.attributes
    types = {each.name: each.type for each in found.attributes}
    for name, by_type in observed.items():
        fitting = {each for each in TYPE_NAMES if name in types and widens(each, types[name])}
        missing = sum(count for each, count in by_type.items() if each not in fitting)
        assert found.unfitting.get(name, 0) == missing
