"""States, inputs and timers of the four transaction machines of RFC 3261 17, and the parties of transactions."""

from __future__ import annotations

from enum import Enum, StrEnum, auto
from typing import Final

import msgspec


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


TRYING_AFTER_S = 0.2
"""The layer sends a 100 for an INVITE without a response for this long (RFC 3261 17.2.1)."""

TIMER_D_MIN_S = 32.0
"""Least time to absorb repeated refusals of an INVITE over UDP, whatever our T1 is (RFC 3261 17.1.1.2)."""


class BaseTimers(msgspec.Struct, frozen=True):
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


DEFAULT_TIMERS: Final = BaseTimers()

ABSORBING: Final = frozenset({Trigger.TIMER_D, Trigger.TIMER_I, Trigger.TIMER_J, Trigger.TIMER_K})
"""Timers that wait for retransmissions of the peer; over a stream they expire at once (RFC 3261 table 4)."""


class RequestSender(msgspec.Struct, frozen=True):
    """Sender of a request: an IPv4 address or a /64 of IPv6, and whether a user has logged in there recently."""

    network: str
    known: bool


class Judgement(Enum):
    """Decision on a request."""

    ADMITTED = auto()
    REFUSED = auto()
    """Respond 503 with Retry-After (RFC 3261 21.5.4)."""
    DROPPED = auto()
