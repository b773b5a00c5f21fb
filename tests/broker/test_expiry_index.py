"""Index of subscriptions by owner and expiry, against a dictionary that is scanned in full."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.broker.state.expiry_index import ExpiryIndex

USERS = st.sampled_from(["alice", "bob"])
IDS = st.sampled_from([f"wb-{n}" for n in range(8)])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), IDS, st.none() | st.integers(0, 50)),
        st.tuples(st.just("drop"), IDS, st.none()),
        st.tuples(st.just("due"), st.integers(0, 50), st.integers(1, 5)),
    ),
    max_size=80,
)


def user_of(identity: str) -> str:
    return "alice" if identity < "wb-4" else "bob"


@given(steps=STEPS)
def test_it_finds_what_a_look_at_all_of_them_finds(steps: list[tuple[str, int | str, int | None]]) -> None:
    roster = ExpiryIndex()
    until: dict[str, int | None] = {}
    for step, what, number in steps:
        if step == "put":
            assert isinstance(what, str)
            until[what] = number
            roster.put(what, user_of(what), number)
        elif step == "drop":
            assert isinstance(what, str)
            until.pop(what, None)
            roster.drop(what, user_of(what))
        else:
            assert isinstance(what, int)
            assert number is not None
            up = sorted((time, each) for each, time in until.items() if time is not None and time <= what)
            found = roster.due(what, number)
            assert found == [each for _, each in up[:number]]
            for each in found:
                roster.drop(each, user_of(each))
                del until[each]
        for user in ("alice", "bob"):
            assert list(roster.of_user(user)) == [each for each in until if user_of(each) == user]


def test_nobody_has_none() -> None:
    assert list(ExpiryIndex().of_user("alice")) == []
    ExpiryIndex().drop("wb-1", "alice")


@pytest.mark.parametrize("until_us", [None, 5])
def test_repeated_renewals_take_constant_memory(until_us: int | None) -> None:
    roster = ExpiryIndex()
    for time in range(10_000):
        roster.put("wb-1", "alice", time)
        roster.put(f"wb-{time}", "alice", time)
        roster.drop(f"wb-{time}", "alice")
    roster.put("wb-1", "alice", until_us)
    assert len(roster._heap) < 100
    assert roster.due(10**9, 10) == ([] if until_us is None else ["wb-1"])
