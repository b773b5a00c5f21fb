"""The estimate of the round trip and its timeout, with literal times (SPEC F-04, F-05, F-10; RFC 6298)."""

from __future__ import annotations

import pytest

from wanderbus.rudp import RudpConfig
from wanderbus.rudp.recovery import RoundTrip


def test_before_any_sample_the_initial_timeout_holds() -> None:
    round_trip = RoundTrip(RudpConfig(initial_timeout_s=0.7))
    assert (round_trip.smoothed_s, round_trip.timeout_s) == (None, 0.7)


def test_rfc6298_2_2_first_sample() -> None:
    round_trip = RoundTrip(RudpConfig())
    round_trip.sample(0.1)
    assert round_trip.smoothed_s == 0.1
    assert round_trip.timeout_s == pytest.approx(0.1 + 4 * 0.05)


def test_rfc6298_2_3_second_sample() -> None:
    round_trip = RoundTrip(RudpConfig())
    round_trip.sample(0.1)
    round_trip.sample(0.2)
    assert round_trip.smoothed_s == pytest.approx(0.875 * 0.1 + 0.125 * 0.2)
    assert round_trip.timeout_s == pytest.approx(0.1125 + 4 * (0.75 * 0.05 + 0.25 * 0.1))


def test_f10_gains_take_effect() -> None:
    round_trip = RoundTrip(RudpConfig(rtt_gain=0.5, rtt_deviation_gain=1.0))
    round_trip.sample(0.1)
    round_trip.sample(0.2)
    assert round_trip.smoothed_s == pytest.approx(0.15)
    assert round_trip.timeout_s == pytest.approx(0.15 + 4 * 0.1)


def test_f10_timeout_stays_within_its_bounds() -> None:
    round_trip = RoundTrip(RudpConfig(timeout_min_s=0.05, timeout_max_s=3.0))
    round_trip.sample(0.0001)
    assert round_trip.timeout_s == 0.05
    for _ in range(50):
        round_trip.sample(9.0)
    assert round_trip.timeout_s == 3.0


@pytest.mark.parametrize("rtt_s", [0.06, 0.4, 1.5])
def test_f04_timeout_settles_near_a_steady_round_trip(rtt_s: float) -> None:
    round_trip = RoundTrip(RudpConfig())
    for _ in range(60):
        round_trip.sample(rtt_s)
    assert rtt_s < round_trip.timeout_s < rtt_s * 1.01


def test_f05_backoff_is_geometric_up_to_the_bound() -> None:
    round_trip = RoundTrip(RudpConfig(initial_timeout_s=0.1, backoff_factor=3.0, timeout_max_s=2.0))
    assert [round_trip.backed_off_s(n) for n in range(5)] == pytest.approx([0.1, 0.3, 0.9, 2.0, 2.0])


def test_backoff_of_many_retries_does_not_overflow() -> None:
    assert RoundTrip(RudpConfig()).backed_off_s(100_000) == 4.0


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_min_s": 0.0},
        {"initial_timeout_s": 0.01},
        {"initial_timeout_s": 5.0},
        {"rtt_gain": 0.0},
        {"rtt_deviation_gain": 1.5},
        {"backoff_factor": 0.9},
        {"retries_max": -1},
        {"packets_in_flight_max": 0},
        {"reorder_frames_max": 0},
        {"message_bytes_max": 0},
        {"datagram_bytes_max": 36},
        {"datagram_bytes_max": 65_508},
    ],
)
def test_f10_impossible_parameters_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        RudpConfig(**options)  # type: ignore[arg-type]
