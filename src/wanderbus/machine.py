"""The one shape of every pure machine: ``step(inputs, now) -> outputs``.

A machine takes a batch of inputs and the monotonic time, changes its own state and returns what the
world must do. It never touches a socket, a clock, a disk or a source of randomness: time arrives as
``now``, randomness through a :class:`RandomSource`, timers come back as :class:`TimerFired`.

A machine made of smaller ones hands each its part of the input and wraps the timers it gets back with
:func:`scoped`, so that one heap in the driver holds every timer of a process.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Literal, Protocol

import msgspec

Address = tuple[str, int]
"""An IP address in text form and a port."""


def shown(address: Address) -> str:
    """Return ``address`` as it is written: an IPv6 address in brackets (RFC 3986 3.2.2)."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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


class StreamTarget(Protocol):
    """Where a stream is opened to; equal targets share a connection."""

    @property
    def transport(self) -> str:
        """``TCP`` or ``TLS``."""
        ...

    @property
    def address(self) -> Address:
        """The other end."""
        ...

    @property
    def server_name(self) -> str | None:
        """The name that the certificate of the other end has to carry; its IP address when None."""
        ...

    @property
    def fingerprint(self) -> bytes | None:
        """SHA-256 of the certificate that the other end has to show, whoever signed it (RFC 8122 5).

        None where an authority has to vouch for it.
        """
        ...

    @property
    def sip_domain(self) -> str | None:
        """The SIP domain that the certificate has to name, in place of ``server_name`` (RFC 5922 7)."""
        ...


class StreamReceived(Input, frozen=True):
    """``data`` arrived from ``source`` on a connection of the local socket named ``socket``, in order.

    ``connection`` numbers the connections of one socket and is never used again, whoever opened it. ``target`` is
    what we opened it to, None if the other side did. ``peer_domains`` are the SIP domains that the verified certificate
    of the other side names.
    """

    socket: str
    connection: int
    source: Address
    data: bytes
    transport: Literal["TCP", "TLS"] = "TCP"
    target: StreamTarget | None = None
    peer_domains: tuple[str, ...] = ()


class StreamClosed(Input, frozen=True):
    """A connection is gone, or could not be opened: what was sent on it may not have arrived.

    ``target`` is what we opened it to, None if the other side opened it. ``reason`` is for people.
    """

    socket: str
    connection: int
    reason: str
    target: StreamTarget | None = None


class SendOnStream(Output, frozen=True):
    """Send ``data`` on ``connection`` if that is open, else on the connection to ``target``, opened if need be.

    :class:`StreamClosed` tells if that fails. With ``reopen`` false, ``data`` goes on ``connection`` or is lost.
    """

    socket: str
    target: StreamTarget
    data: bytes
    connection: int | None = None
    reopen: bool = True


class CloseStream(Output, frozen=True):
    """Close ``connection`` at once; :class:`StreamClosed` follows."""

    socket: str
    connection: int


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
