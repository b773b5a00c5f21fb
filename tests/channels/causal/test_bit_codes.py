"""Numbers in bits come out as they went in, and small ones are short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanderbus.channels.causal.bit_codes import BitReader, BitWriter
from wanderbus.errors import RemoteProtocolError

orders = st.integers(0, 4)


@given(st.lists(st.tuples(st.integers(-(2**60), 2**60), orders)))
def test_numbers_come_out_as_they_went_in(numbers: list[tuple[int, int]]) -> None:
    out = BitWriter()
    for number, order in numbers:
        out.put_signed(number, order)
        out.put_number(abs(number), order)
    reader = BitReader(out.data())
    for number, order in numbers:
        assert reader.take_signed(order) == number
        assert reader.take_number(order) == abs(number)
    assert reader.is_at_end()


@pytest.mark.parametrize(
    ("number", "order", "bits"), [(0, 0, 1), (1, 0, 3), (2, 0, 3), (3, 0, 5), (3, 2, 3), (4, 2, 5)]
)
def test_a_number_has_the_bits_of_its_code(number: int, order: int, bits: int) -> None:
    """Lengths of Exp-Golomb codes: 2 floor(log2(n / 2^k + 1)) + 1 + k bits."""
    out = BitWriter()
    for _ in range(8):
        out.put_number(number, order)
    assert len(out.data()) == bits


@pytest.mark.parametrize("data", [b"", b"\x00", bytes(9) + b"\xff" * 9])
def test_an_endless_number_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="causal header"):
        BitReader(data).take_number()


def test_a_row_of_bits_ends_within_its_last_byte() -> None:
    reader = BitReader(b"\x80\x00")
    assert reader.take(1)
    assert not reader.is_at_end()
    assert reader.take(7) == 0
    assert not reader.is_at_end()
    assert reader.take(1) == 0
    assert reader.is_at_end()
