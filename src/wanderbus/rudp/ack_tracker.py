"""Received packet numbers: detection of gaps and replays, and generation of ACKs (SPEC F-02, F-03; RFC 9000 13.2)."""

from __future__ import annotations

from typing import Final

from wanderbus.rudp.frames import MARKS, encode_ack

REPLAY_WINDOW_PACKETS: Final = 1_024
"""Distance below the newest packet at which a packet is still recognized as new; the maximum of DATA in flight."""

_SEEN_MASK: Final = (1 << REPLAY_WINDOW_PACKETS) - 1
_MARKS_MASK: Final = (1 << MARKS) - 1


class PacketNumbers:
    """The packet numbers of one connection at its receiver."""

    __slots__ = ("_acknowledged", "_due", "_seen", "newest")

    def __init__(self) -> None:
        self.newest = -1
        """Highest packet number received."""
        self._seen = 0
        """Bitmap: bit i is set if packet ``newest - i`` has arrived."""
        self._due: list[int] = []
        self._acknowledged = -1

    def is_new(self, number: int) -> bool:
        """Return whether packet ``number`` is new, as far as is known."""
        age = self.newest - number
        return age < 0 or (age < REPLAY_WINDOW_PACKETS and not self._seen >> age & 1)

    def take(self, number: int) -> tuple[int, int] | None:
        """Record a new packet; return the first and last number of the gap before it, if there is one.

        A gap is reported once, when it appears; late packets fill it without another report.
        """
        ahead = number - self.newest
        if ahead == 1:
            self._seen = (self._seen << 1 | 1) & _SEEN_MASK
        elif ahead <= 0:
            self._seen |= 1 << -ahead
            return None
        else:
            self._seen = (self._seen << ahead | 1) & _SEEN_MASK if ahead < REPLAY_WINDOW_PACKETS else 1
        self.newest = number
        return (number - ahead + 1, number - 1) if ahead > 1 else None

    def acknowledge(self, number: int) -> None:
        """Acknowledge packet ``number`` at the end of the batch."""
        self._due.append(number)

    def acknowledge_again(self) -> None:
        """Repeat the last ACK, if none is due."""
        if not self._due and self._acknowledged >= 0:
            self._due.append(self._acknowledged)

    @property
    def due(self) -> int:
        """Number of packets to be acknowledged."""
        return len(self._due)

    def take_acks(self) -> tuple[int, list[bytes]]:
        """Return the number of packets acknowledged now, and the ACK frames, oldest first.

        With this order the sender does not declare older packets lost if the frames need several datagrams.
        """
        due = self._due
        if not due:
            return 0, []
        self._due = []
        due.sort()
        self._acknowledged = max(self._acknowledged, due[-1])
        count, frames, start = len(due), [], 0
        while start < count:
            end = count
            if due[-1] - due[start] > MARKS:
                end = next(i for i in range(start, count) if due[i] - due[start] > MARKS)
            frames.append(self._ack(due[start:end]))
            start = end
        return count, frames

    def _ack(self, numbers: list[int]) -> bytes:
        """Return the frame that marks ``numbers`` as fresh, and earlier packets that fit beside them again."""
        newest = numbers[-1]
        fresh = (1 << len(numbers) - 1) - 1
        if newest - numbers[0] != len(numbers) - 1:
            fresh = sum(1 << newest - 1 - number for number in numbers[:-1])
        again = self._seen >> self.newest - newest + 1 & _MARKS_MASK & ~fresh
        return encode_ack(newest, fresh, again)
