"""Hierarchies of subjects (SPEC J-13)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.hierarchy import DEPTH_MAX, Hierarchy
from wanderbus.errors import ConfigurationError

TWO_LEVELS = {"Departure": "Flight", "Arrival": "Flight", "Flight": "Traffic", "Train": "Traffic"}

forests = st.lists(st.integers(-1, 30), max_size=30).map(
    lambda above: {f"s{child}": f"s{parent % child}" for child, parent in enumerate(above) if child and parent >= 0}
)
"""Parents, each with a lower number than its child, so that there is no cycle."""


def test_j13_an_event_is_heard_by_its_subject_and_by_all_above_it() -> None:
    hierarchy = Hierarchy(TWO_LEVELS)
    assert hierarchy.lineage("Departure") == ("Departure", "Flight", "Traffic")
    assert hierarchy.lineage("Traffic") == ("Traffic",)
    assert hierarchy.lineage("Stock") == ("Stock",)


def test_j13_a_subscription_to_a_parent_updates_one_channel_group() -> None:
    """The cost of a table update is that of a single channel, at each level."""
    groups = ChannelGroups(b"key", parents=TWO_LEVELS)
    for subject in ("Traffic", "Flight", "Departure"):
        assert groups.groups_of([subject]) == {groups.group_of("Arrival")}


@given(forests)
def test_events_of_a_child_are_in_the_group_of_every_ancestor(parents: dict[str, str]) -> None:
    depths = {f"s{number}": 0 for number in range(31)}
    for child in sorted(parents, key=lambda name: int(name[1:])):
        depths[child] = depths[parents[child]] + 1
    if max(depths.values()) >= DEPTH_MAX:
        with pytest.raises(ConfigurationError, match="more than 15 ancestors"):
            Hierarchy(parents)
        return
    groups = ChannelGroups(b"key", parents=parents)
    for child, parent in parents.items():
        assert groups.hierarchy.lineage(child) == (child, *groups.hierarchy.lineage(parent))
        assert groups.group_of(child) in groups.groups_of([parent])


@pytest.mark.parametrize(
    ("parents", "error"),
    [
        ({"a": "a"}, "'a' is its own ancestor"),
        ({"a": "b", "b": "c", "c": "b"}, "'b' is its own ancestor"),
        ({"a": "*"}, r"'\*' means every subject"),
        ({"*": "a"}, r"'\*' means every subject"),
    ],
)
def test_impossible_hierarchies_are_refused(parents: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        Hierarchy(parents)


def test_j13_below_a_subject_are_all_whose_events_it_hears() -> None:
    hierarchy = Hierarchy(TWO_LEVELS)
    assert hierarchy.below("Flight") == ("Flight", "Departure", "Arrival")
    assert set(hierarchy.below("Traffic")) == {"Traffic", "Flight", "Departure", "Arrival", "Train"}
    assert hierarchy.below("Stock") == ("Stock",)
