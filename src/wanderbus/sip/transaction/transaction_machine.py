"""Common base of the four transaction machines of RFC 3261 17: states, inputs, timers and transition tables.

A machine is data: ``table`` maps (state, input) to the next state and follows a figure of the RFC; ``running`` lists
the timers of each state. ``_act`` sends and reports for each transition. An input that the table does not list for the
present state is absorbed. UDP reports no transport errors: timer B, F or H detects a dead path. A stream does report
them, and needs no retransmissions and no time to absorb them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Final

import msgspec

from wanderbus.machine import CancelTimer, Output, SetTimer
from wanderbus.sip.message.message import Message


class State(StrEnum):
    """States of the four machines, under the names of RFC 3261 17 and RFC 6026."""

    CALLING = "Calling"
    TRYING = "Trying"
    PROCEEDING = "Proceeding"
    COMPLETED = "Completed"
    CONFIRMED = "Confirmed"
    ACCEPTED = "Accepted"
    TERMINATED = "Terminated"


class Trigger(StrEnum):
    """Inputs of the four machines. Members whose name begins with TIMER are timers; their values are timer keys."""

    REQUEST = "request"
    ACK = "ACK"
    PROVISIONAL = "1xx"
    SUCCESS = "2xx"
    FAILURE = "300-699"
    FINAL = "200-699"
    SEND_PROVISIONAL = "send 1xx"
    SEND_SUCCESS = "send 2xx"
    SEND_FAILURE = "send 300-699"
    SEND_FINAL = "send 200-699"
    TRANSPORT_FAILED = "transport failed"
    TIMER_A = "A"
    TIMER_B = "B"
    TIMER_D = "D"
    TIMER_E = "E"
    TIMER_F = "F"
    TIMER_G = "G"
    TIMER_H = "H"
    TIMER_I = "I"
    TIMER_J = "J"
    TIMER_K = "K"
    TIMER_L = "L"
    TIMER_M = "M"
    TIMER_TRYING = "100"
    TIMER_EXPIRY = "expiry"


Table = Mapping[tuple[State, Trigger], State]
Running = Mapping[State, frozenset[Trigger]]

TRYING_AFTER_S = 0.2
"""The layer sends a 100 for an INVITE without a response for this long (RFC 3261 17.2.1)."""

TIMER_D_MIN_S = 32.0
"""Least time to absorb repeated refusals of an INVITE over UDP, whatever our T1 is (RFC 3261 17.1.1.2)."""


class Timers(msgspec.Struct, frozen=True):
    """The three base times of all timers, in seconds (RFC 3261 17.1.1.1, table 4).

    ``t1_s`` estimates the round trip, ``t2_s`` bounds the interval of retransmissions, ``t4_s`` is the largest lifetime
    of a message in the network.
    """

    t1_s: float = 0.5
    t2_s: float = 4.0
    t4_s: float = 5.0

    @property
    def timeout_s(self) -> float:
        """64*T1: timeout of a transaction that waits for the peer."""
        return 64 * self.t1_s

    def duration_s(self, timer: Trigger, *, reliable: bool = False) -> float:
        """Return the duration of ``timer`` when a state starts it (RFC 3261 table 4, RFC 6026 7.1 and 7.2)."""
        if reliable and timer in ABSORBING:
            return 0.0
        match timer:
            case Trigger.TIMER_A | Trigger.TIMER_E | Trigger.TIMER_G:
                return self.t1_s
            case Trigger.TIMER_I | Trigger.TIMER_K:
                return self.t4_s
            case Trigger.TIMER_D:
                return max(TIMER_D_MIN_S, self.timeout_s)
            case Trigger.TIMER_TRYING:
                return TRYING_AFTER_S
            case _:
                return self.timeout_s


DEFAULT_TIMERS: Final = Timers()

REPEATING: Final = frozenset({Trigger.TIMER_A, Trigger.TIMER_E, Trigger.TIMER_G})
"""Timers that retransmit; they do not run over a stream (RFC 3261 17.1.1.2, 17.1.2.2, 17.2.1)."""

ABSORBING: Final = frozenset({Trigger.TIMER_D, Trigger.TIMER_I, Trigger.TIMER_J, Trigger.TIMER_K})
"""Timers that wait for retransmissions of the peer; over a stream they expire at once (RFC 3261 table 4)."""


class TransactionMachine:
    """One transaction: a state, moved by triggers along ``table``, with the timers of ``running``.

    Timer keys in its outputs are bare trigger values; the layer scopes them. ``reliable``: it runs over a stream. Each
    new user needs several transactions, so they have slots and keep no more than they need.
    """

    __slots__ = ("name", "reliable", "state", "timers")

    table: ClassVar[Table]
    running: ClassVar[Running]
    initial: ClassVar[State]

    def __init__(self, name: str, timers: Timers, *, reliable: bool) -> None:
        self.name = name
        self.timers = timers
        self.reliable = reliable
        self.state = self.initial

    @property
    def terminated(self) -> bool:
        """True if the transaction has ended and may be removed."""
        return self.state is State.TERMINATED

    def fire(self, timer: Trigger, now: float) -> list[Output]:
        """Handle ``timer``; one that does not belong to the present state is ignored."""
        return self._advance(timer, now)

    def stop(self) -> list[Output]:
        """End at once; return the outputs that cancel its timers."""
        previous, self.state = self.state, State.TERMINATED
        return self._switch_timers(previous, 0.0)

    def _start_timers(self, now: float) -> list[Output]:
        return [self._set(timer, now) for timer in sorted(self._running_in(self.state))]

    def _running_in(self, state: State) -> frozenset[Trigger]:
        timers = self.running.get(state, frozenset())
        return timers - REPEATING if self.reliable else timers

    def _advance(self, trigger: Trigger, now: float, message: Message | None = None) -> list[Output]:
        """Follow one edge of the table: act, then stop the timers of the old state and start those of the new one."""
        following = self.table.get((self.state, trigger))
        if following is None:
            return []
        previous, self.state = self.state, following
        return self._act(trigger, previous, now, message) + self._switch_timers(previous, now)

    def _act(self, trigger: Trigger, previous: State, now: float, message: Message | None) -> list[Output]:
        """Return the outputs of the edge from ``previous`` by ``trigger``."""
        raise NotImplementedError

    def _switch_timers(self, previous: State, now: float) -> list[Output]:
        before, after = self._running_in(previous), self._running_in(self.state)
        stopped: list[Output] = [CancelTimer(timer.value) for timer in sorted(before - after)]
        return stopped + [self._set(timer, now) for timer in sorted(after - before)]

    def _set(self, timer: Trigger, now: float, after_s: float | None = None) -> SetTimer:
        duration_s = self.timers.duration_s(timer, reliable=self.reliable) if after_s is None else after_s
        return SetTimer(timer.value, now + duration_s)
