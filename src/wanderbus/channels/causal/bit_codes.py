"""Codes of whole numbers in bits: short for small numbers, without a largest one (Elias 1975; Exp-Golomb codes).

A number of order k has its k lowest bits, and before them the rest plus one as an Elias gamma code: as many zeros as
that has bits after its first one, and then these bits.
"""

from __future__ import annotations

from typing import Final

from wanderbus.errors import RemoteProtocolError

NUMBER_BITS_MAX: Final = 64
"""Bits of the largest number that is accepted, without those of its order."""


class BitWriter:
    """Appends numbers to a row of bits, most significant bit first."""

    __slots__ = ("_count", "_value")

    def __init__(self) -> None:
        # The first one keeps leading zeros.
        self._value = 1
        self._count = 0

    def put(self, value: int, count: int) -> None:
        """Append the ``count`` lowest bits of ``value``, which has no others."""
        self._value = self._value << count | value
        self._count += count

    def put_number(self, value: int, order: int = 0) -> None:
        """Append a number from 0 on; the greater the ``order``, the longer the small and the shorter the large."""
        # The zeros are the upper bits of a field that is wider than the number. The last bits are those of the value.
        shifted = value + (1 << order)
        count = 2 * shifted.bit_length() - 1 - order
        self._value = self._value << count | shifted
        self._count += count

    def put_signed(self, value: int, order: int = 0) -> None:
        """Append a number that may be negative."""
        self.put_number(value << 1 if value >= 0 else (-value << 1) - 1, order)

    def bits(self) -> tuple[int, int]:
        """Return the bits as a number, and their count."""
        return self._value - (1 << self._count), self._count

    def data(self) -> bytes:
        """Return the bytes; the last one is filled with zeros."""
        missing = -self._count % 8
        size = (self._count + missing) // 8
        return ((self._value << missing) - (1 << 8 * size)).to_bytes(size, "big")


class BitReader:
    """Reads what :class:`BitWriter` has written; :class:`RemoteProtocolError` if the bytes end or a number is long."""

    __slots__ = ("_left", "_value")

    def __init__(self, data: bytes) -> None:
        self._left = 8 * len(data)
        self._value = int.from_bytes(data, "big")

    def take(self, count: int) -> int:
        """Return the next ``count`` bits."""
        self._left -= count
        if self._left < 0:
            raise RemoteProtocolError("causal header: it ends too early")
        value = self._value >> self._left
        self._value &= (1 << self._left) - 1
        return value

    def take_number(self, order: int = 0) -> int:
        """Return a number from 0 on."""
        length = self._value.bit_length()
        zeros = self._left - length
        left = length - zeros - 1 - order
        if zeros >= NUMBER_BITS_MAX or left < 0:
            raise RemoteProtocolError("causal header: it ends within a number, or the number is too long")
        shifted = self._value >> left
        self._value ^= shifted << left
        self._left = left
        return shifted - (1 << order)

    def take_signed(self, order: int = 0) -> int:
        """Return a number that may be negative."""
        value = self.take_number(order)
        return -(value + 1 >> 1) if value & 1 else value >> 1

    def is_at_end(self) -> bool:
        """Return whether only the filling is left."""
        return self._left < 8 and not self._value
