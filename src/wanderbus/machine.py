"""Interface of every pure machine: ``step(inputs, now) -> outputs``.

A machine receives a batch of inputs and the monotonic time, changes its own state and returns outputs, which the
driver carries out. It never touches a socket, a clock, a disk or a source of randomness: time arrives as ``now``,
randomness comes from a :class:`RandomSource`, and timers come back as :class:`TimerFired`.

A machine made of smaller machines connects them by :mod:`wanderbus.composition`. It wraps the timers of their outputs
with :func:`scoped`, so that one heap in the driver holds all timers of a process.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final, Literal, Protocol, TypeVar

import msgspec

Address = tuple[str, int]
"""An IP address in text form and a port."""


def shown(address: Address) -> str:
    """Return ``address`` as text, with an IPv6 address in brackets (RFC 3986 3.2.2)."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Input(msgspec.Struct, frozen=True):
    """Base of all inputs of a machine."""


class Output(msgspec.Struct, frozen=True):
    """Base of all outputs of a machine: requests and reports."""


class SetTimer(Output, frozen=True):
    """Request :class:`TimerFired` with this ``key`` at monotonic second ``at``; replaces an earlier request."""

    key: Hashable
    at: float


class CancelTimer(Output, frozen=True):
    """Cancel the timer with this ``key``; does nothing if there is none."""

    key: Hashable


AnyOutput = TypeVar("AnyOutput")

_TIMERS: Final = frozenset((SetTimer, CancelTimer))


class TimerFired(Input, frozen=True):
    """The timer ``key`` is due."""

    key: Hashable


class DatagramReceived(Input, frozen=True):
    """``data`` arrived from ``source`` on the local socket named ``socket``."""

    socket: str
    source: Address
    data: bytes


class SendDatagram(Output, frozen=True):
    """Send ``data`` to ``destination`` from the local socket named ``socket``; delivery is not guaranteed."""

    socket: str
    destination: Address
    data: bytes


class StreamTarget(Protocol):
    """Target of an outgoing stream; equal targets share a connection."""

    @property
    def transport(self) -> str:
        """``TCP`` or ``TLS``."""
        ...

    @property
    def address(self) -> Address:
        """Address of the peer."""
        ...

    @property
    def server_name(self) -> str | None:
        """The name that the peer's certificate must contain; its IP address when None."""
        ...

    @property
    def fingerprint(self) -> bytes | None:
        """SHA-256 of the certificate that the peer must show, independent of its signer (RFC 8122 5).

        None if an authority must have signed the certificate.
        """
        ...

    @property
    def sip_domain(self) -> str | None:
        """The SIP domain that the certificate must name, in place of ``server_name`` (RFC 5922 7)."""
        ...


class StreamReceived(Input, frozen=True):
    """``data`` arrived from ``source`` on a connection of the local socket named ``socket``, in order.

    ``connection`` is a number that is unique among the connections of one socket and never reused. ``target`` is the
    target that we opened it to, None if the peer opened it. ``peer_domains`` are the SIP domains that the verified
    certificate of the peer names.
    """

    socket: str
    connection: int
    source: Address
    data: bytes
    transport: Literal["TCP", "TLS"] = "TCP"
    target: StreamTarget | None = None
    peer_domains: tuple[str, ...] = ()


class StreamClosed(Input, frozen=True):
    """A connection is closed, or could not be opened; data that was sent on it may be lost.

    ``target`` is the target that we opened it to, None if the peer opened it. ``reason`` is a text for people.
    """

    socket: str
    connection: int
    reason: str
    target: StreamTarget | None = None


class SendOnStream(Output, frozen=True):
    """Send ``data`` on ``connection`` if it is open, else on the connection to ``target``, which is opened if needed.

    :class:`StreamClosed` reports a failure. With ``reopen`` false, ``data`` is sent on ``connection`` only, or lost.
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
    """Source of tags, branches, identifiers and jitter for a machine, which never uses the system's randomness."""

    def token(self, n_bytes: int) -> bytes:
        """Return ``n_bytes`` unpredictable bytes."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """Return a number from ``low`` up to ``high``."""
        ...


class Machine(Protocol):
    """Interface of a machine for the driver and the simulator."""

    def step(self, inputs: Iterable[Input], now: float) -> Sequence[Output]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        ...


def scoped(scope: str | tuple[Hashable, ...], outputs: list[AnyOutput]) -> list[AnyOutput]:
    """Return ``outputs`` with each timer key ``k`` turned into ``(scope, k)``; the rest unchanged."""
    if _TIMERS.isdisjoint(map(type, outputs)):
        return outputs
    several: list[Any] = outputs
    wrapped: list[Any] = []
    for output in several:
        if type(output) is SetTimer:
            wrapped.append(SetTimer((scope, output.key), output.at))
        elif type(output) is CancelTimer:
            wrapped.append(CancelTimer((scope, output.key)))
        else:
            wrapped.append(output)
    return wrapped
