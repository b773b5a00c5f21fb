"""The parameters: invalid values are refused by name; other tests show the effect of each (F-10)."""

from __future__ import annotations

import pytest

from wanderbus.parameters.transports import DATAGRAM_BYTES_MIN, RudpConfig
from wanderbus.rudp.frames import ACK_BYTES, DATA_HEADER_BYTES, HEADER_BYTES, TOKEN_BYTES
from wanderbus.rudp.sealing import SEAL_BYTES


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_min_s": 0.0},
        {"initial_timeout_s": 0.01},
        {"initial_timeout_s": 5.0},
        {"timeout_max_s": 0.1},
        {"timeout_max_s": float("nan")},
        {"rtt_gain": 0.0},
        {"rtt_deviation_gain": 1.5},
        {"backoff_factor": 0.9},
        {"backoff_factor": float("nan")},
        {"retries_max": -1},
        {"packets_in_flight_max": 1},
        {"receive_window_frames": 1_023},
        {"message_bytes_max": 0},
        {"messages_per_datagram_max": 0},
        {"send_queue_bytes_max": 65_535},
        {"datagram_bytes_max": 68},
        {"datagram_bytes_max": 65_508},
        {"keepalive_s": 0.0},
        {"ack_delay_s": -0.001},
        {"ack_delay_s": float("nan")},
        {"rekey_packets": 0},
        {"rekey_packets": 2**23 + 1},
    ],
    ids=str,
)
def test_f10_impossible_parameters_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        RudpConfig(**options)  # type: ignore[arg-type]


def test_f10_the_least_and_the_most_that_are_possible() -> None:
    RudpConfig(
        initial_timeout_s=0.001,
        timeout_min_s=0.001,
        timeout_max_s=0.001,
        rtt_gain=1.0,
        rtt_deviation_gain=1.0,
        backoff_factor=1.0,
        retries_max=0,
        packets_in_flight_max=2,
        datagram_bytes_max=69,
        message_bytes_max=1,
        receive_window_frames=1_024,
        send_queue_bytes_max=1,
        messages_per_datagram_max=1,
        keepalive_s=0.001,
        rekey_packets=2**23,
    )


def test_the_smallest_datagram_fits_every_frame() -> None:
    frame_bytes = max(DATA_HEADER_BYTES + 1, ACK_BYTES, 1 + TOKEN_BYTES)
    assert HEADER_BYTES + SEAL_BYTES + frame_bytes == DATAGRAM_BYTES_MIN
