"""Common base of the four transaction machines of RFC 3261 17: states, inputs, timers and transition tables.

A machine is data: ``table`` maps (state, input) to the next state and follows a figure of the RFC; ``running`` lists
the timers of each state. ``_act`` sends and reports for each transition. An input that the table does not list for the
present state is absorbed. UDP reports no transport errors: timer B, F or H detects a dead path. A stream does report
them, and needs no retransmissions and no time to absorb them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from wanderbus.machine import CancelTimer, SetTimer
from wanderbus.sip.message.message import Message
from wanderbus.sip.transaction.transaction_signals import LayerOutput
from wanderbus.sip.transaction.transaction_states import (
    BaseTimers,
    State,
    Trigger,
)

Table = Mapping[tuple[State, Trigger], State]
Running = Mapping[State, frozenset[Trigger]]


REPEATING: Final = frozenset({Trigger.TIMER_A, Trigger.TIMER_E, Trigger.TIMER_G})
"""Timers that retransmit; they do not run over a stream (RFC 3261 17.1.1.2, 17.1.2.2, 17.2.1)."""


class TransactionMachine:
    """One transaction: a state, moved by triggers along ``table``, with the timers of ``running``.

    Timer keys in its outputs are bare trigger values; the layer scopes them. ``reliable``: it runs over a stream. Each
    new user needs several transactions, so they have slots and keep no more than they need.
    """

    __slots__ = ("name", "reliable", "state", "timers")

    table: ClassVar[Table]
    running: ClassVar[Running]
    initial: ClassVar[State]

    def __init__(self, name: str, timers: BaseTimers, *, reliable: bool) -> None:
        self.name = name
        self.timers = timers
        self.reliable = reliable
        self.state = self.initial

    @property
    def terminated(self) -> bool:
        """True if the transaction has ended and may be removed."""
        return self.state is State.TERMINATED

    def fire(self, timer: Trigger, now: float) -> list[LayerOutput]:
        """Handle ``timer``; one that does not belong to the present state is ignored."""
        return self._advance(timer, now)

    def stop(self) -> list[LayerOutput]:
        """End at once; return the outputs that cancel its timers."""
        previous, self.state = self.state, State.TERMINATED
        return self._switch_timers(previous, 0.0)

    def _start_timers(self, now: float) -> list[LayerOutput]:
        return [self._set(timer, now) for timer in sorted(self._running_in(self.state))]

    def _running_in(self, state: State) -> frozenset[Trigger]:
        timers = self.running.get(state, frozenset())
        return timers - REPEATING if self.reliable else timers

    def _advance(self, trigger: Trigger, now: float, message: Message | None = None) -> list[LayerOutput]:
        """Follow one edge of the table: act, then stop the timers of the old state and start those of the new one."""
        following = self.table.get((self.state, trigger))
        if following is None:
            return []
        previous, self.state = self.state, following
        return self._act(trigger, previous, now, message) + self._switch_timers(previous, now)

    def _act(self, trigger: Trigger, previous: State, now: float, message: Message | None) -> list[LayerOutput]:
        """Return the outputs of the edge from ``previous`` by ``trigger``."""
        raise NotImplementedError

    def _switch_timers(self, previous: State, now: float) -> list[LayerOutput]:
        before, after = self._running_in(previous), self._running_in(self.state)
        stopped: list[LayerOutput] = [CancelTimer(timer.value) for timer in sorted(before - after)]
        return stopped + [self._set(timer, now) for timer in sorted(after - before)]

    def _set(self, timer: Trigger, now: float, after_s: float | None = None) -> SetTimer:
        duration_s = self.timers.duration_s(timer, reliable=self.reliable) if after_s is None else after_s
        return SetTimer(timer.value, now + duration_s)
