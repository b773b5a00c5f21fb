"""Flood limits of a user agent: largest request rate of each source (SPEC C-20).

The user agent's server forwards the requests of everybody, and has limits of its own.
"""

from __future__ import annotations

from typing import Final

from wanderbus.hosts import network_of
from wanderbus.machine import Address, DatagramReceived
from wanderbus.mobility.messages import Effect
from wanderbus.parameters.signalling import FloodLimits
from wanderbus.refusals import Limited
from wanderbus.sip.message.message import make_response
from wanderbus.sip.message.targets import Origin
from wanderbus.sip.transaction.flood_limits import FloodGuard
from wanderbus.sip.transaction.transaction_layer import ForgetTransaction, RequestReceived, Respond, TransactionLayer
from wanderbus.sip.transaction.transaction_signals import LayerOutput
from wanderbus.sip.transaction.transaction_states import Judgement

RETRY_LATER: Final = ("Retry-After", "5")
"""Retry-After of a 503 to a source that sends too much, in seconds (RFC 3261 20.33)."""


class RequestFlood:
    """Limits the requests for ``layer`` before they are parsed; those of ``server`` are not limited."""

    def __init__(self, server: Address, layer: TransactionLayer, limits: FloodLimits) -> None:
        self._server = server
        self._layer = layer
        self._guard = FloodGuard(limits)

    def refused(self, item: DatagramReceived, now: float) -> list[LayerOutput] | None:
        """Return the outputs that refuse a datagram, None if it is to be parsed."""
        if item.data[:4] == b"SIP/" or item.source == self._server:
            return None
        match self._judged(item.source[0], len(item.data), now):
            case Judgement.ADMITTED:
                return None
            case Judgement.REFUSED:
                origin = Origin(item.source, datagram_bytes=len(item.data))
                return self._layer.refuse(origin, item.data, 503, [RETRY_LATER])
            case Judgement.DROPPED:
                return []

    def refused_on_stream(self, received: RequestReceived, now: float) -> list[Effect] | None:
        """Return the outputs that refuse a request from a stream, None if it is to be served."""
        if received.connection is None or received.source[0] == self._server[0]:
            return None
        request = received.request
        match self._judged(received.source[0], request.content_bytes, now):
            case Judgement.ADMITTED:
                return None
            case Judgement.REFUSED:
                response = make_response(request, 503, headers=[RETRY_LATER])
                return [Respond(received.transaction, response, stateless=True)]
            case Judgement.DROPPED:
                return [ForgetTransaction(received.transaction)]

    def take_limited(self, now: float) -> list[Limited]:
        """Return the reports on requests that were not admitted."""
        return self._guard.take_limited(now)

    def _judged(self, host: str, size: int, now: float) -> Judgement:
        known = self._layer.peers.knows(network_of(host), now)
        return self._guard.judge(host, now, size, known=known)
