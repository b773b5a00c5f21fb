"""The one shape of every pure machine: ``step(inputs, now) -> outputs``.

A machine takes a batch of inputs and the monotonic time, changes its own state and returns what the
world must do. It never touches a socket, a clock, a disk or a source of randomness: time arrives as
``now``, randomness through a :class:`RandomSource`, timers come back as :class:`TimerFired`.

A machine made of smaller ones hands each its part of the input and wraps the timers it gets back with
:func:`scoped`, so that one heap in the driver holds every timer of a process.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Protocol

import msgspec

Address = tuple[str, int]
"""An IP address in text form and a port."""


class Input(msgspec.Struct, frozen=True):
    """Base of everything a machine may be told."""


class Output(msgspec.Struct, frozen=True):
    """Base of everything a machine may ask for or report."""


class SetTimer(Output, frozen=True):
    """Ask for :class:`TimerFired` with this ``key`` at monotonic second ``at``; replaces an earlier one."""

    key: Hashable
    at: float


class CancelTimer(Output, frozen=True):
    """Forget the timer with this ``key``; no harm if there is none."""

    key: Hashable


class TimerFired(Input, frozen=True):
    """The timer ``key`` is due."""

    key: Hashable


class DatagramReceived(Input, frozen=True):
    """``data`` arrived from ``source`` on the local socket named ``socket``."""

    socket: str
    source: Address
    data: bytes


class SendDatagram(Output, frozen=True):
    """Send ``data`` to ``destination`` from the local socket named ``socket``; no promise of arrival."""

    socket: str
    destination: Address
    data: bytes


class ClockRead(Input, frozen=True):
    """The wall clock, in microseconds since the Unix epoch, as read when this batch began."""

    wall_us: int


class RandomSource(Protocol):
    """Where a machine gets tags, branches, identifiers and jitter from (never from the ambient system)."""

    def token(self, n_bytes: int) -> bytes:
        """Return ``n_bytes`` unpredictable bytes."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """Return a number from ``low`` up to ``high``."""
        ...


class Machine(Protocol):
    """What the driver and the simulator can run."""

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        ...


def unscoped(given: Any) -> Any:
    """Return the input for the smaller machine: a timer without the scope that :func:`scoped` gave it."""
    match given:
        case TimerFired(key=(_, key)):
            return TimerFired(key)
        case _:
            return given


def scoped(scope: Hashable, outputs: Iterable[Any]) -> list[Any]:
    """Return ``outputs`` with each timer key ``k`` turned into ``(scope, k)``; the rest unchanged."""
    wrapped: list[Any] = []
    for output in outputs:
        match output:
            case SetTimer(key=key, at=at):
                wrapped.append(SetTimer((scope, key), at))
            case CancelTimer(key=key):
                wrapped.append(CancelTimer((scope, key)))
            case _:
                wrapped.append(output)
    return wrapped
