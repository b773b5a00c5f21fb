"""The way between us and the server: kept open, and found again when it breaks (RFC 5626 4.4, 4.5).

On a stream the double CRLF of a keep-alive is answered with a single one. Over UDP it has no answer and only keeps a
NAT's mapping: STUN, which RFC 5626 4.4.2 asks for there, is left out. So a UDP flow that died in silence shows at
the next REGISTER, after a third of the registration's lifetime, and one that breaks aloud by
:class:`wanderbus.mobility.messages.FlowFailed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wanderbus.machine import CancelTimer, DatagramReceived, RandomSource, SendDatagram, SetTimer
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.session.calls import Effect
from wanderbus.sip.message.targets import Transport
from wanderbus.sip.transaction.transaction_layer import SendPing

KEEP_ALIVE: Final = b"\r\n\r\n"

KEEP_ALIVE_S: Final[Mapping[Transport, float]] = {"UDP": 25.0, "TCP": 120.0, "TLS": 120.0}
"""Periods that keep a NAT open: a mapping for UDP may last 30 s, a connection minutes (RFC 5626 4.4.1 and 4.4.2)."""

_SPREAD: Final = 0.8
"""A keep-alive comes after this part of its period at the earliest, so that not all come at once (RFC 5626 4.4)."""

RECOVER_S_MIN: Final = 0.5
RECOVER_S_MAX: Final = 8.0
"""Longest pause before a broken flow is registered anew, in seconds: doubled from the first to the second.

RFC 5626 4.5 has 30 s and 1,800 s. A device on the move cannot wait that long, and its server is its own (SPEC D-12).
"""

STABLE_S: Final = 120.0
"""A flow that held for this long has no past (RFC 5626 4.5 flow recovery, ``min-regtime``)."""

PONG_WITHIN_S: Final = 10.0
"""How long a server may take to answer a keep-alive on a stream (RFC 5626 4.4.1)."""

_TIMER: Final = "keep-alive"


def is_keep_alive(item: DatagramReceived) -> bool:
    """Tell whether a datagram is nothing but line ends: it is for the NAT, and gets no answer over UDP."""
    return not item.data.strip(b"\r\n")


class KeepAlive:
    """Sends keep-alives to the server while the user agent is started, if its properties ask for that."""

    def __init__(self, properties: Properties, random: RandomSource, socket: str) -> None:
        self._properties = properties
        self._random = random
        self._socket = socket
        self._running = False
        self._unanswered = False

    def start(self, now: float) -> list[Effect]:
        """Begin, with one period of silence."""
        self._running = self._properties.keep_alive_s is not None
        self._unanswered = False
        return self._next(now)

    def stop(self) -> list[Effect]:
        """Send no more."""
        self._running = False
        return [CancelTimer(_TIMER)] if self._properties.keep_alive_s is not None else []

    def answered(self, now: float) -> list[Effect]:
        """The server answered on a stream: all is well until the next period is over."""
        if not self._unanswered:
            return []
        self._unanswered = False
        return self._next(now)

    def timer_fired(self, now: float) -> tuple[bool, list[Effect]]:
        """Send one; or find that the last one on a stream was not answered, so that the flow is lost."""
        if not self._running:
            return False, []
        if self._unanswered:
            self._unanswered = False
            return True, self._next(now)
        server = self._properties.server_target
        if not server.reliable:
            return False, [SendDatagram(self._socket, server.address, KEEP_ALIVE), *self._next(now)]
        self._unanswered = True
        return False, [SendPing(server), SetTimer(_TIMER, now + PONG_WITHIN_S)]

    def _next(self, now: float) -> list[Effect]:
        period_s = self._properties.keep_alive_s
        if not self._running or period_s is None:
            return []
        return [SetTimer(_TIMER, now + self._random.uniform(_SPREAD * period_s, period_s))]


class Recovery:
    """How long to wait before a broken flow is registered anew (RFC 5626 4.5)."""

    def __init__(self, random: RandomSource) -> None:
        self._random = random
        self._failures = 0
        self._formed_at: float | None = None

    def formed(self, now: float) -> None:
        """The registrar answered over the flow."""
        if self._formed_at is None:
            self._formed_at = now

    def pause_s(self, now: float) -> float:
        """Count a failure; return the pause, between half of its bound and all of it."""
        if self._formed_at is not None and now - self._formed_at >= STABLE_S:
            self._failures = 0
        self._formed_at = None
        bound_s = min(RECOVER_S_MIN * 2 ** min(self._failures, 16), RECOVER_S_MAX)
        self._failures += 1
        return self._random.uniform(bound_s / 2, bound_s)

    def forget(self) -> None:
        """Begin afresh: the address has changed, and with it the flow."""
        self._failures = 0
        self._formed_at = None
