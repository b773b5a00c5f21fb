"""Admission of requests to a user agent, before it serves them.

An agent serves every request: its own limits are those of its sockets. A server's user agent, which everybody can
reach, checks requests with :mod:`.checked_admission`; no agent needs to load that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wanderbus.machine import DatagramReceived, StreamClosed, StreamReceived
from wanderbus.mobility.composer import Composer
from wanderbus.mobility.messages import Effect, UserAgentOutput
from wanderbus.sip.message.message import Response
from wanderbus.sip.transaction.transaction_layer import RequestReceived, TransactionLayer


class Admission:
    """Admits every request; the base of stricter admissions."""

    def __init__(self, composer: Composer, layer: TransactionLayer) -> None:
        self.proves = False
        """True if only requests of the authenticated user in From are served."""
        layer.peers.know_everybody()

    def note(self, item: StreamReceived | StreamClosed) -> None:
        """Record a connection."""

    def flooded(self, item: DatagramReceived, now: float) -> Sequence[UserAgentOutput] | None:
        """Return the outputs that refuse a datagram unread, None if it is to be parsed."""
        return None

    def flooded_on_stream(self, received: RequestReceived, now: float) -> list[Effect] | None:
        """Return the outputs that refuse a request from a stream, None if it is to be served."""
        return None

    def refusal(self, received: RequestReceived, now: float, peer: str | None = None) -> Response | None:
        """Return the challenge or refusal of a request, None to serve it; ``peer`` is the other user of its dialog."""
        return None

    def take_reports(self, now: float) -> list[UserAgentOutput]:
        """Return the reports on refused requests since the last call."""
        return []


MakeAdmission = Callable[[Composer, TransactionLayer], Admission]
