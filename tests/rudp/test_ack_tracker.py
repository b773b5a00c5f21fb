"""Packet numbers on the receiving side: replays, gaps, and the marks of ACK frames (SPEC F-02, F-03)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.rudp.conftest import fresh_marks, marked
from wanderbus.rudp.ack_tracker import REPLAY_WINDOW_PACKETS, PacketNumbers
from wanderbus.rudp.frames import AckFrame, decode_frames


def take(arrivals: PacketNumbers, *numbers: int) -> None:
    """Take new packets that are to be acknowledged."""
    for number in numbers:
        assert arrivals.is_new(number)
        arrivals.take(number)
        arrivals.acknowledge(number)


def acks(arrivals: PacketNumbers) -> list[AckFrame]:
    _, frames = arrivals.take_acks()
    return decode_frames(b"".join(frames)).acks


def test_a_batch_shares_a_frame() -> None:
    arrivals = PacketNumbers()
    take(arrivals, 0, 1, 2, 5)
    assert acks(arrivals) == [(5, 0b11100, 0)]
    assert acks(arrivals) == []


def test_earlier_packets_are_marked_again_and_not_as_fresh() -> None:
    arrivals = PacketNumbers()
    take(arrivals, 0, 2)
    acks(arrivals)
    take(arrivals, 4, 1)
    assert acks(arrivals) == [(4, 0b0100, 0b1010)]
    take(arrivals, 3)
    assert acks(arrivals) == [(3, 0, 0b111)], "newest is always fresh, and what is above it is not named"


def test_64_marks_and_the_newest_share_a_frame_and_more_do_not() -> None:
    arrivals = PacketNumbers()
    take(arrivals, *range(65))
    assert acks(arrivals) == [(64, 2**64 - 1, 0)]
    take(arrivals, *range(100, 167))
    assert acks(arrivals) == [(164, 2**64 - 1, 0), (166, 1, 2**62 - 1 << 1 | 1 << 63)], "oldest first"


def test_the_replay_window_has_the_stated_length() -> None:
    arrivals = PacketNumbers()
    take(arrivals, 2 * REPLAY_WINDOW_PACKETS)
    assert arrivals.is_new(REPLAY_WINDOW_PACKETS + 1)
    assert not arrivals.is_new(REPLAY_WINDOW_PACKETS), "too old to know"


def test_the_largest_numbers_cost_no_memory() -> None:
    arrivals = PacketNumbers()
    take(arrivals, 2**64 - 1)
    assert arrivals.take(2**64 - 2) is None
    assert not arrivals.is_new(0)
    assert arrivals._seen.bit_length() <= REPLAY_WINDOW_PACKETS
    assert acks(arrivals) == [(2**64 - 1, 0, 1)]


@given(st.lists(st.lists(st.integers(0, 1500), max_size=100), max_size=8))
def test_f03_every_packet_is_fresh_once_and_never_taken_twice(batches: list[list[int]]) -> None:
    """Compared with plain sets; every ``again`` mark is of a packet that did arrive."""
    arrivals, taken, fresh = PacketNumbers(), set[int](), list[int]()
    for batch in batches:
        for number in batch:
            new = number not in taken and (not taken or number > max(taken) - REPLAY_WINDOW_PACKETS)
            assert arrivals.is_new(number) == new
            if new:
                gap = arrivals.take(number)
                before = max(taken, default=-1)
                assert gap == ((before + 1, number - 1) if number > before + 1 else None)
                arrivals.acknowledge(number)
                taken.add(number)
        frames = acks(arrivals)
        fresh += fresh_marks(frames)
        for newest, now, again in frames:
            assert now & again == 0
            assert set(marked(newest, again)) <= taken
    assert sorted(fresh) == sorted(taken)
