"""Subscriptions and restrictions are plain data that survive the log, the store and the wire (SPEC A-04, H-01)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.subscription import Custom, Daily, Frequency, Interval, QueuePolicy, Subscription

when = st.sampled_from(["always", "away"])
restrictions = st.one_of(
    st.builds(Frequency, st.floats(1e-6, 1e9), when),
    st.builds(Interval, st.integers(0, 2**62), st.integers(0, 2**62), when),
    st.builds(Daily, st.just("22:00"), st.just("06:00:30"), st.none() | st.just("America/Sao_Paulo"), when),
    st.builds(Custom, st.text(max_size=8), st.dictionaries(st.text(max_size=4), st.text(max_size=4) | st.booleans())),
)
subscriptions = st.builds(
    Subscription,
    *[st.text(max_size=8)] * 5,
    st.none() | st.integers(0, 2**62),
    st.lists(restrictions, max_size=4).map(tuple),
    st.none() | st.text(max_size=8),
    st.builds(
        QueuePolicy,
        *[st.none() | st.integers(1, 100)] * 3,
        st.sampled_from([None, "drop_oldest", "drop_newest"]),
    ),
)


@given(subscription=subscriptions)
def test_a04_h01_a_subscription_survives_with_its_restrictions_in_order(subscription: Subscription) -> None:
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(subscription), type=Subscription) == subscription
    assert msgspec.json.decode(msgspec.json.encode(subscription), type=Subscription) == subscription


def test_a_restriction_is_known_by_its_name() -> None:
    assert msgspec.json.encode(Frequency(15.0)) == b'{"type":"frequency","period_s":15.0,"when":"always"}'
    assert msgspec.to_builtins(Interval(1, 2))["type"] == "interval"
    assert msgspec.to_builtins(Daily("16:00", "17:00"))["type"] == "daily"


def test_h02_only_always_and_away_are_known() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"type":"frequency","period_s":15.0,"when":"sometimes"}', type=Frequency)
