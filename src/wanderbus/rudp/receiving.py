"""The receiving half of a connection: gaps, duplicates, order, whole messages (SPEC F-02, F-08, X16).

Packets are only looked at for gaps in their numbers. What is delivered depends on DATA numbers alone, so a frame
that comes again in a later packet, because its ACK was lost, is recognised.
"""

from __future__ import annotations

from wanderbus.rudp.config import RudpConfig
from wanderbus.rudp.frames import DataFrame
from wanderbus.rudp.interface import Counters


class Receiver:
    """Puts frames in order and messages together, in bounded memory.

    It holds at most ``reorder_frames_max`` frames ahead of the one due and one partial message.
    """

    def __init__(self, config: RudpConfig, counters: Counters) -> None:
        self._counters = counters
        self._window = config.reorder_frames_max
        self._message_bytes_max = config.message_bytes_max
        self._due = 0
        self._ahead: dict[int, DataFrame] = {}
        self._partial = bytearray()
        self._skipping = False
        self._packet_due = 0

    @property
    def held_bytes(self) -> int:
        """Payload bytes kept until something else arrives."""
        return len(self._partial) + sum(len(frame[2]) for frame in self._ahead.values())

    def note_packet(self, number: int) -> tuple[int, int] | None:
        """Take a packet number; return the first and last number that it shows to be missing, if any.

        A gap is reported once, when it appears; late packets fill it without another word.
        """
        due = self._packet_due
        if number < due:
            return None
        self._packet_due = number + 1
        return (due, number - 1) if number > due else None

    def has_room(self, frames: list[DataFrame]) -> bool:
        """Tell whether the frames of one packet, in rising order, can all be held.

        A packet without room must not be acknowledged, so that it comes again.
        """
        return not frames or frames[-1][0] < self._due + self._window

    def take(self, frames: list[DataFrame]) -> list[bytes]:
        """Take the frames of one packet; return the messages that are now whole, in order."""
        messages: list[bytes] = []
        for frame in frames:
            number = frame[0]
            if number == self._due:
                self._append(frame, messages)
                while self._ahead and (held := self._ahead.pop(self._due, None)) is not None:
                    self._append(held, messages)
            elif number < self._due or number in self._ahead:
                self._counters.duplicates += 1
            elif number < self._due + self._window:
                self._ahead[number] = frame
        return messages

    def _append(self, frame: DataFrame, messages: list[bytes]) -> None:
        """Take the frame that is due; a message beyond the bound is passed over, up to its last frame."""
        _, more, payload = frame
        self._due += 1
        partial = self._partial
        if not more and not partial and not self._skipping and len(payload) <= self._message_bytes_max:
            messages.append(payload)
            return
        if len(partial) + len(payload) > self._message_bytes_max:
            self._skipping = True
            partial.clear()
        elif not self._skipping:
            partial += payload
        if more:
            return
        if self._skipping:
            self._skipping = False
            self._counters.oversized += 1
        else:
            messages.append(bytes(partial))
            partial.clear()
