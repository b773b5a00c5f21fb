"""Admission of requests to a server's user agent: limited by source, and from authenticated users (SPEC C-20)."""

from __future__ import annotations

from collections.abc import Sequence

from wanderbus.machine import DatagramReceived, StreamClosed, StreamReceived
from wanderbus.mobility.admission import Admission, MakeAdmission
from wanderbus.mobility.composer import Composer
from wanderbus.mobility.messages import Effect, UserAgentOutput
from wanderbus.mobility.request_flood import RequestFlood
from wanderbus.mobility.session.callers import Callers
from wanderbus.parameters.signalling import FloodLimits
from wanderbus.sip.authentication.digest import Authenticator
from wanderbus.sip.message.message import Response
from wanderbus.sip.transaction.transaction_layer import RequestReceived, TransactionLayer


class CheckedAdmission(Admission):
    """Limits the requests of each source, and authenticates their senders with ``authenticator``."""

    def __init__(
        self, composer: Composer, layer: TransactionLayer, authenticator: Authenticator, flood: FloodLimits | None
    ) -> None:
        self.proves = True
        self._peers = layer.peers
        self._callers = Callers(composer, authenticator)
        self._flood = None if flood is None else RequestFlood(composer.properties.server, layer, flood)

    def note(self, item: StreamReceived | StreamClosed) -> None:
        """Record a connection to the server."""
        self._callers.note(item)

    def flooded(self, item: DatagramReceived, now: float) -> Sequence[UserAgentOutput] | None:
        """See :meth:`Admission.flooded`."""
        return None if self._flood is None else self._flood.refused(item, now)

    def flooded_on_stream(self, received: RequestReceived, now: float) -> list[Effect] | None:
        """See :meth:`Admission.flooded_on_stream`."""
        return None if self._flood is None else self._flood.refused_on_stream(received, now)

    def refusal(self, received: RequestReceived, now: float, peer: str | None = None) -> Response | None:
        """See :meth:`Admission.refusal`; a source with an authenticated user becomes a known peer."""
        refusal = self._callers.refusal(received, now, peer)
        if refusal is None:
            self._peers.note(received.source[0], now)
        return refusal

    def take_reports(self, now: float) -> list[UserAgentOutput]:
        """See :meth:`Admission.take_reports`."""
        limited = [] if self._flood is None else self._flood.take_limited(now)
        return [*self._callers.take_refusals(), *limited]


def checked(authenticator: Authenticator | None, flood: FloodLimits | None = None) -> MakeAdmission:
    """Return the maker of a user agent's admission; without ``authenticator`` every request is admitted."""
    if authenticator is None:
        return Admission
    return lambda composer, layer: CheckedAdmission(composer, layer, authenticator, flood)
