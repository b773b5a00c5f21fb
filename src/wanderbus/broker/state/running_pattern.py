"""Pattern of a subscription with the state of its automaton (SPEC T-07)."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from wanderbus import records
from wanderbus.broker.state.rows import PatternRow, PatternStep
from wanderbus.patterns import NEVER_US, Pattern, PatternState, Seen
from wanderbus.patterns.state import BEFORE_ALL_US, Complete
from wanderbus.patterns.turns import RecordedTurn, Turn

STEPS_SIZE: Final = 16
"""Size of the steps that the row of a small state may have; one for each step, and one for each KiB of its event."""

STEPS_WORK: Final = 50_000_000
"""Units of work of these steps, which a restart repeats: half a second."""

_PATIENCE: Final = 4
"""Times that size after which a state is written at once."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(PatternStep).decode


class RunningPattern(msgspec.Struct):
    """A pattern at work for one subscription."""

    owner: str
    pattern: Pattern
    state: PatternState
    latest_us: int = BEFORE_ALL_US
    read_us: int | None = None
    """Time up to which its events were read from the log; None if it takes them as they come."""
    kept: int = 0
    stored: bytes = b""
    """A former state as it is stored; empty if the next row has the whole state."""
    since: list[msgspec.Raw] = []
    """Steps since that state."""
    since_size: int = 0
    """Size of these steps."""
    since_work: float = 0
    """Work that a restart repeats for them."""

    def take(self, seen: Seen, at_us: int) -> None:
        """Let an event wait that was received at ``at_us``."""
        self._do(PatternStep(seen, max(BEFORE_ALL_US, self.pattern.watermark_us(self._latest_us(at_us)))))

    def repeat(self, record: records.Detected) -> None:
        """Match as far as a record says."""
        self._do(PatternStep(None, record.watermark_us, record.steps, record.taken, record.left_out))

    def reach(self, watermark_us: int, turn: Turn) -> list[Complete]:
        """Match the events below a watermark as far as ``turn`` allows; return the complete matches in order.

        It is no step yet: a record that is repeated has to follow.
        """
        self.state = self.pattern.add(self.state, (), watermark_us)
        before = turn.units
        matches = self.pattern.match(self.state, turn)
        self.since_work += before - turn.units
        return matches

    def row(self, size: int) -> PatternRow:
        """Return the state as it is stored: a former one and the steps since.

        To write the state itself takes time for everything that is kept, and each event changes a part of it. It is
        written if there are many steps and at most ``size`` is kept, or very many.
        """
        if not self.stored or (self.since_size > self._steps_size and self.kept <= size):
            self.stored = self.pattern.save(self.state)
            self._forget_steps()
        return PatternRow(self.pattern.text, self.owner, self.latest_us, self.stored, tuple(self.since), self.read_us)

    def whole_row(self) -> PatternRow:
        """Return the state as it is, without steps."""
        return PatternRow(
            self.pattern.text, self.owner, self.latest_us, self.pattern.save(self.state), read_us=self.read_us
        )

    @property
    def _steps_size(self) -> int:
        return max(STEPS_SIZE, self.kept)

    def _do(self, step: PatternStep) -> None:
        self._apply(step)
        if self.stored:
            self.since.append(msgspec.Raw(_encode(step)))
            self.since_size += 1 if step.seen is None else step.seen.units
            if self.since_size > _PATIENCE * self._steps_size or self.since_work > STEPS_WORK:
                self.stored = b""
                self._forget_steps()

    def _forget_steps(self) -> None:
        self.since, self.since_size, self.since_work = [], 0, 0

    def _apply(self, step: PatternStep) -> None:
        if step.seen is not None:
            self.state = self.pattern.add(self.state, (step.seen,), BEFORE_ALL_US, late_below_us=step.bound_us)
        else:
            self.state = self.pattern.add(self.state, (), step.bound_us)
            self.pattern.match(self.state, RecordedTurn(step.steps, step.taken, step.left_out))

    @classmethod
    def of_row(cls, row: PatternRow, pattern: Pattern) -> RunningPattern:
        """Return the pattern of a row."""
        found = cls(row.owner, pattern, pattern.load(row.state), row.latest_us, row.read_us, stored=row.state)
        for step in row.since:
            found._do(_decode(step))
        return found

    @property
    def goes_by_receipt(self) -> bool:
        """Return whether the time of an event is that of its receipt."""
        return self.pattern.declaration.time_source == "receipt"

    def watermark_us(self, now_us: int) -> int:
        """Return the time below which all events have come, by the broker's clock ``now_us``.

        As long as it reads the log, that of what was read: time goes on, and what it has not read yet would be late.
        """
        latest_us = self._latest_us(now_us)
        return self.pattern.watermark_us(latest_us if self.read_us is None else min(latest_us, self.read_us))

    def _latest_us(self, now_us: int) -> int:
        return now_us if self.goes_by_receipt else self.latest_us

    @property
    def due_us(self) -> int | None:
        """Return the time of the broker's clock from which on there is something to match, None if there is nothing."""
        due_us = self.state.due_us
        if self.goes_by_receipt and self.read_us is None:
            return None if due_us == NEVER_US else due_us + self.pattern.lateness_us + 1
        return 0 if self.watermark_us(NEVER_US) > due_us else None


class Advance(NamedTuple):
    """A turn of a pattern: its watermark, its complete matches, and how far it went if not everything was matched."""

    pattern: Pattern
    watermark_us: int
    matches: list[Complete]
    steps: int | None
    taken: int | None
