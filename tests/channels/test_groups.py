"""Channel groups of subjects (SPEC J-02, J-07)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.channels.groups import GROUPS, GROUPS_MAX, REMEMBERED_MAX, ChannelGroups
from wanderbus.errors import ConfigurationError

keys = st.binary(min_size=1, max_size=64)
subjects = st.text(min_size=1, max_size=30)


@given(keys, subjects, st.integers(1, GROUPS_MAX))
def test_j02_each_subject_has_one_group_at_every_server(key: bytes, subject: str, count: int) -> None:
    group = ChannelGroups(key, count).group_of(subject)
    assert group == ChannelGroups(key, count).group_of(subject)
    assert 0 <= group < count


@given(keys, subjects, st.integers(1, 200))
def test_one_group_more_takes_subjects_and_moves_no_others(key: bytes, subject: str, count: int) -> None:
    before, after = (ChannelGroups(key, each).group_of(subject) for each in (count, count + 1))
    assert after in (before, count)


@pytest.mark.parametrize("count", [1, 10, GROUPS, 100])
def test_subjects_are_spread_evenly(count: int) -> None:
    groups = ChannelGroups(b"key", count)
    loads = Counter(groups.group_of(f"subject {number}") for number in range(count * 200))
    assert set(loads) == set(range(count))
    # Five standard deviations of a binomial distribution with mean 200.
    assert all(abs(load - 200) <= 71 for load in loads.values())


def test_the_key_of_the_domain_decides() -> None:
    """Without the key nobody can choose subjects that share a group."""
    one, other = (ChannelGroups(key) for key in (b"one", b"other"))
    same = sum(one.group_of(f"s{number}") == other.group_of(f"s{number}") for number in range(640))
    assert same < 40


def test_the_groups_of_a_release_are_kept() -> None:
    """Servers of different versions in one domain have to agree: a change here is a change of the protocol."""
    groups = ChannelGroups(bytes(range(32)))
    assert [groups.group_of(each) for each in ("Departure", "Stock", "Flughafen München", "")] == [45, 46, 5, 34]


def test_pinned_subjects_and_their_children_are_in_the_group_of_the_configuration() -> None:
    groups = ChannelGroups(b"key", pins={"Flight": 7, "Stock": 0}, parents={"Departure": "Flight"})
    assert [groups.group_of(each) for each in ("Flight", "Departure", "Stock")] == [7, 7, 0]


@given(keys, st.sets(subjects.filter(lambda each: each != "*"), max_size=8))
def test_a_subscription_concerns_the_groups_of_its_subjects(key: bytes, wanted: set[str]) -> None:
    groups = ChannelGroups(key)
    assert groups.groups_of(wanted) == {groups.group_of(each) for each in wanted}
    assert groups.groups_of({*wanted, "*"}) == set(range(GROUPS))


@pytest.mark.parametrize(
    ("count", "pins", "error"),
    [
        (0, {}, "groups: 0 is out of range"),
        (GROUPS_MAX + 1, {}, "groups: 1025 is out of range"),
        (4, {"Stock": 4}, "'Stock' is pinned to 4 .expected a group, 0 to 3"),
        (4, {"Stock": -1}, "pinned to -1"),
        (4, {"*": 1}, r"'\*' means every subject"),
        (4, {"Departure": 1}, "pin 'Flight' instead"),
    ],
)
def test_impossible_groups_are_refused(count: int, pins: dict[str, int], error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        ChannelGroups(b"key", count, pins=pins, parents={"Departure": "Flight"})


def test_the_group_of_a_subject_is_computed_once_while_few_others_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = ChannelGroups(b"key")
    computed: list[str] = []

    def top(subject: str) -> str:
        computed.append(subject)
        return subject

    monkeypatch.setattr(groups.hierarchy, "top", top)
    for _ in range(3):
        groups.group_of("Trade")
    assert computed == ["Trade"]
    for number in range(REMEMBERED_MAX):
        groups.group_of(str(number))
    groups.group_of("Trade")
    assert computed.count("Trade") == 2
