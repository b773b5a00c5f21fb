"""Receiving half of a connection: duplicates, order, reassembly, flow control (SPEC F-08, X16).

Delivery depends only on DATA numbers, so a frame that is repeated in a later packet, because its ACK was lost, is
recognized as a duplicate.
"""

from __future__ import annotations

from collections import deque

from wanderbus.parameters.transports import INITIAL_WINDOW_FRAMES, RudpConfig
from wanderbus.rudp.frames import DATA_LAST, FINISH, HALF, DataFrame, whole_of
from wanderbus.rudp.interface import Counters


class Receiver:
    """Orders frames and reassembles messages, in bounded memory.

    It holds at most ``receive_window_frames`` frames that are out of order, halved or not consumed, and one partial
    message of at most ``message_bytes_max``.
    """

    def __init__(self, config: RudpConfig, counters: Counters) -> None:
        self.finished = False
        """True if the peer's last message was delivered."""
        self._counters = counters
        self._window = config.receive_window_frames
        self._message_bytes_max = config.message_bytes_max
        self._due = 0
        self._granted = INITIAL_WINDOW_FRAMES
        self._ahead: dict[int, DataFrame] = {}
        self._halves: dict[int, DataFrame] = {}
        """Halves of frames whose other half has not arrived."""
        self._partial = bytearray()
        self._partial_frames = 0
        """Frames of the incomplete message."""
        self._skipping = False
        self._unconsumed: deque[int] | None = None if config.consume_at_once else deque()
        self._unconsumed_frames = 0

    @property
    def held_bytes(self) -> int:
        """Return the payload bytes of incomplete messages and of frames out of order."""
        held = *self._ahead.values(), *self._halves.values()
        return len(self._partial) + sum(len(frame[2]) for frame in held)

    def has_room(self, frames: list[DataFrame]) -> bool:
        """Return whether all frames of one packet, in rising order, were granted.

        A packet beyond the grant must not be acknowledged. After FINISH nothing new is granted.
        """
        return frames[-1][0] < self._granted

    def take(self, frames: list[DataFrame]) -> list[bytes]:
        """Accept the frames of one packet; return the messages that are now complete, in order."""
        messages: list[bytes] = []
        ahead, most, unconsumed = self._ahead, self._message_bytes_max, self._unconsumed
        for frame in frames:
            number, kind, payload = frame
            if kind >= HALF:
                joined = self._join(frame)
                if joined is None:
                    continue
                number, kind, payload = frame = joined
            if number == self._due:
                # The common case, without a call for speed: a whole message, and no earlier one incomplete.
                if kind == DATA_LAST and not ahead and not self._partial_frames and len(payload) <= most:
                    self._due = number + 1
                    messages.append(payload)
                    if unconsumed is not None:
                        unconsumed.append(1)
                        self._unconsumed_frames += 1
                    continue
                self._append(frame, messages)
                while ahead and (held := ahead.pop(self._due, None)) is not None:
                    self._append(held, messages)
            elif number < self._due or number in ahead:
                self._counters.duplicates += 1
            else:
                ahead[number] = frame
        if self._halves:
            self._halves = {number: half for number, half in self._halves.items() if number >= self._due}
        return messages

    def _join(self, half: DataFrame) -> DataFrame | None:
        """Return the frame that ``half`` completes; keep the half and return None if the other one has not arrived."""
        number = half[0]
        if number < self._due or number in self._ahead:
            self._counters.duplicates += 1
            return None
        joined = whole_of(half, self._halves.pop(number, None))
        if joined is None:
            self._halves[number] = half
        return joined

    @property
    def is_grant_due(self) -> bool:
        """Return whether half of the window was consumed since the last grant."""
        return not self.finished and self._limit - self._granted >= self._window // 2

    def next_grant(self) -> int | None:
        """Return the DATA number of the new grant if one is due (RFC 9000 4.2)."""
        if not self.is_grant_due:
            return None
        self._granted = self._limit
        return self._granted

    @property
    def _limit(self) -> int:
        return self._due - self._unconsumed_frames + self._window

    def consume(self, messages: int) -> None:
        """Record that the owner has consumed ``messages`` more messages; the number is capped at those delivered."""
        if self._unconsumed is not None:
            for _ in range(min(messages, len(self._unconsumed))):
                self._unconsumed_frames -= self._unconsumed.popleft()

    def _append(self, frame: DataFrame, messages: list[bytes]) -> None:
        """Process the next frame in order; discard a message that is too long, up to its last frame."""
        _, kind, payload = frame
        self._due += 1
        if kind == DATA_LAST and not self._partial_frames and len(payload) <= self._message_bytes_max:
            messages.append(payload)
            if self._unconsumed is not None:
                self._note_unconsumed(1)
        elif kind == FINISH:
            self._finish()
        else:
            self._append_part(kind == DATA_LAST, payload, messages)

    def _append_part(self, last: bool, payload: bytes, messages: list[bytes]) -> None:
        partial = self._partial
        self._partial_frames += 1
        if self._skipping or len(partial) + len(payload) > self._message_bytes_max:
            self._skipping = True
            partial.clear()
        else:
            partial += payload
        if not last:
            return
        if self._skipping:
            self._counters.oversized += 1
        else:
            messages.append(bytes(partial))
            self._note_unconsumed(self._partial_frames)
        partial.clear()
        self._partial_frames, self._skipping = 0, False

    def _note_unconsumed(self, frames: int) -> None:
        if self._unconsumed is not None:
            self._unconsumed.append(frames)
            self._unconsumed_frames += frames

    def _finish(self) -> None:
        """Deliver nothing more; discard an incomplete message."""
        self.finished = True
        self._granted = self._due
        self._ahead.clear()
        self._halves.clear()
        if self._partial_frames:
            self._counters.oversized += 1
            self._partial.clear()
