"""Connection to the server: keep-alives, and recovery after a failure (RFC 5626 4.4, 4.5).

On a stream the double CRLF of a keep-alive is answered with a single CRLF. Over UDP it has no response and only keeps a
NAT's mapping: STUN (RFC 5626 4.4.2) is not implemented. So a UDP flow that fails without an error is detected at the
next REGISTER, after a third of the registration's lifetime. A failure with an error is reported by
:class:`wanderbus.mobility.messages.FlowFailed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wanderbus.machine import CancelTimer, DatagramReceived, RandomSource, SendDatagram, SetTimer
from wanderbus.mobility.messages import Effect
from wanderbus.mobility.properties import Properties
from wanderbus.sip.message.targets import Transport
from wanderbus.sip.transaction.transaction_layer import SendPing

KEEP_ALIVE: Final = b"\r\n\r\n"

KEEP_ALIVE_S: Final[Mapping[Transport, float]] = {"UDP": 25.0, "TCP": 120.0, "TLS": 120.0}
"""Keep-alive periods for a NAT: a mapping for UDP may last 30 s, a connection minutes (RFC 5626 4.4.1 and 4.4.2)."""

_SPREAD: Final = 0.8
"""Shortest keep-alive interval as a part of its period: random intervals avoid bursts (RFC 5626 4.4)."""

RECOVER_S_MIN: Final = 0.5
RECOVER_S_MAX: Final = 8.0
"""Longest pause before a failed flow is registered again, in seconds: doubled from the first to the second.

RFC 5626 4.5 has 30 s and 1,800 s. A moving device cannot wait that long, and its server belongs to it (SPEC D-12).
"""

STABLE_S: Final = 120.0
"""Age in seconds after which a flow's earlier failures are forgotten (RFC 5626 4.5 flow recovery, ``min-regtime``)."""

PONG_WITHIN_S: Final = 10.0
"""Timeout of a server's response to a keep-alive on a stream, in seconds (RFC 5626 4.4.1)."""

_TIMER: Final = "keep-alive"


def is_keep_alive(item: DatagramReceived) -> bool:
    """Return whether a datagram has only line ends: it is a keep-alive, without a response over UDP."""
    return not item.data.strip(b"\r\n")


class KeepAlive:
    """Sends keep-alives to the server while the user agent is started, if its properties enable them."""

    def __init__(self, properties: Properties, random: RandomSource, socket: str) -> None:
        self._properties = properties
        self._random = random
        self._socket = socket
        self._running = False
        self._unanswered = False

    def start(self, now: float) -> list[Effect]:
        """Start, with one period without a keep-alive."""
        self._running = self._properties.keep_alive_s is not None
        self._unanswered = False
        return self._next(now)

    def stop(self) -> list[Effect]:
        """Stop sending."""
        self._running = False
        return [CancelTimer(_TIMER)] if self._properties.keep_alive_s is not None else []

    def answered(self, now: float) -> list[Effect]:
        """Handle the server's response on a stream: wait until the next period."""
        if not self._unanswered:
            return []
        self._unanswered = False
        return self._next(now)

    def timer_fired(self, now: float) -> tuple[bool, list[Effect]]:
        """Send a keep-alive; if the last one on a stream was not answered, report the flow as failed."""
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
    """Pauses before a failed flow is registered again (RFC 5626 4.5)."""

    def __init__(self, random: RandomSource) -> None:
        self._random = random
        self._failures = 0
        self._formed_at: float | None = None

    def formed(self, now: float) -> None:
        """Handle a response of the registrar over the flow."""
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
        """Reset: the address has changed, and with it the flow."""
        self._failures = 0
        self._formed_at = None
