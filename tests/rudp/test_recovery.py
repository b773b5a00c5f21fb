"""The estimate of the round trip and its timeout, with literal times (SPEC F-04, F-05, F-10; RFC 6298)."""

from __future__ import annotations

import pytest

from wanderbus.parameters.transports import RudpConfig
from wanderbus.rudp.recovery import RoundTrip


def estimate(*samples_s: float, **options: float) -> RoundTrip:
    round_trip = RoundTrip(RudpConfig(**options))  # type: ignore[arg-type]
    for at, rtt_s in enumerate(samples_s):
        round_trip.sample(rtt_s, float(at))
    return round_trip


def test_before_any_sample_the_initial_timeout_holds() -> None:
    round_trip = estimate(initial_timeout_s=0.7)
    assert (round_trip.smoothed_s, round_trip.timeout_s, round_trip.measured_at) == (None, 0.7, None)
    assert round_trip.loss_delay_s == 0.7


def test_rfc6298_2_2_first_sample() -> None:
    round_trip = estimate(0.1)
    assert (round_trip.smoothed_s, round_trip.measured_at) == (0.1, 0.0)
    assert round_trip.timeout_s == pytest.approx(0.1 + 4 * 0.05)


def test_rfc6298_2_3_second_sample() -> None:
    round_trip = estimate(0.1, 0.2)
    assert round_trip.smoothed_s == pytest.approx(0.875 * 0.1 + 0.125 * 0.2)
    assert round_trip.measured_at == 0.0
    assert round_trip.timeout_s == pytest.approx(0.1125 + 4 * (0.75 * 0.05 + 0.25 * 0.1))


def test_f10_gains_take_effect() -> None:
    round_trip = estimate(0.1, 0.2, rtt_gain=0.5, rtt_deviation_gain=1.0)
    assert round_trip.smoothed_s == pytest.approx(0.15)
    assert round_trip.timeout_s == pytest.approx(0.15 + 4 * 0.1)


def test_f10_timeout_stays_within_its_bounds() -> None:
    assert estimate(0.0001, timeout_min_s=0.05).timeout_s == 0.05
    assert estimate(*[9.0] * 50, timeout_max_s=3.0).timeout_s == 3.0


@pytest.mark.parametrize("rtt_s", [0.06, 0.4, 1.5])
def test_f04_timeout_settles_near_a_steady_round_trip(rtt_s: float) -> None:
    assert estimate(*[rtt_s] * 60).timeout_s == pytest.approx(9 / 8 * rtt_s), "an eighth is left"


def test_f05_backoff_is_geometric_up_to_the_bound() -> None:
    round_trip = estimate(initial_timeout_s=0.1, backoff_factor=3.0, timeout_max_s=2.0)
    assert [round_trip.backed_off_s(n) for n in range(5)] == pytest.approx([0.1, 0.3, 0.9, 2.0, 2.0])


def test_backoff_of_many_retries_does_not_overflow() -> None:
    assert estimate().backed_off_s(100_000) == 4.0


def test_rfc9002_6_1_2_the_loss_delay_follows_the_larger_of_the_estimates() -> None:
    assert estimate(0.1, 0.2).loss_delay_s == pytest.approx(9 / 8 * 0.2)
    assert estimate(0.2, 0.1).loss_delay_s == pytest.approx(9 / 8 * (0.2 - 0.0125))
    assert estimate(0.00001).loss_delay_s == 0.001
