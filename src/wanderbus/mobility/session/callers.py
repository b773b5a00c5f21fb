"""Authentication of callers: our domain's users by digest, other users by our server's assertion (DESIGN 6.4; RFC
3325).

An asserted identity is accepted only from the server itself: on a connection that we opened to it over TLS, or from its
address if it runs on this host. Anybody else could forge the header field.
"""

from __future__ import annotations

import msgspec

from wanderbus.machine import StreamClosed, StreamReceived
from wanderbus.mobility.composer import Composer
from wanderbus.refusals import LoginRefused
from wanderbus.sip.authentication.digest import Authenticator
from wanderbus.sip.authentication.verdicts import Authenticated, Challenged
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy.asserted_identity import asserted
from wanderbus.sip.transaction.transaction_layer import RequestReceived


class Callers:
    """Authenticates the senders of requests with ``authenticator``."""

    def __init__(self, composer: Composer, authenticator: Authenticator) -> None:
        self._composer = composer
        self._properties = composer.properties
        self._authenticator = authenticator
        self._to_server: set[int] = set()
        """Our TLS-authenticated open connections to the server."""

    def note(self, item: StreamReceived | StreamClosed) -> None:
        """Record a connection to the server."""
        if isinstance(item, StreamClosed):
            self._to_server.discard(item.connection)
        elif item.transport == "TLS" and item.target == self._properties.server_target:
            self._to_server.add(item.connection)

    def take_refusals(self) -> list[LoginRefused]:
        """Return the callers whose credentials were refused since the last call."""
        return self._authenticator.take_refusals()

    def refusal(self, received: RequestReceived, now: float, peer: str | None = None) -> Response | None:
        """Challenge or refuse, unless the sender is authenticated as the user in From (RFC 3261 22.2).

        Within a dialog that user must be its ``peer``: Call-ID and tags are visible to others too.

        Raises:
            SIPParseError: From cannot be read.
        """
        sender = received.request.from_.uri
        if sender.is_sip and sender.host in self._properties.vouched_domains:
            refusal = self._unasserted(received, sender.address_of_record)
        elif sender.host != SIPUri.parse(self._properties.uri).host:
            refusal = self._composer.refusal(received.request, 403, reason="Not For Users Of Your Domain")
        else:
            refusal = self._unproved(received.request, self._authenticator, now)
        if refusal is None and peer not in (None, sender.address_of_record):
            return self._composer.refusal(received.request, 403, reason="Not Your Dialog")
        return refusal

    def _unasserted(self, received: RequestReceived, sender: str) -> Response | None:
        """Refuse, unless the server asserts that ``sender`` sent the request."""
        if self._came_from_server(received) and asserted(received.request) == sender:
            return None
        return self._composer.refusal(received.request, 403, reason="Nobody Vouches For You")

    def _came_from_server(self, received: RequestReceived) -> bool:
        if received.connection is not None:
            return received.connection in self._to_server
        return self._properties.server_is_local and received.source == self._properties.server

    def _unproved(self, request: Request, authenticator: Authenticator, now: float) -> Response | None:
        """Challenge or refuse, unless the digest authenticates the sender, a user of our own domain.

        A proxy replaces our address of record by our Contact, while the sender's digest covers the former.
        """
        verdict = authenticator.check(request, now, known_as=self._is_ours)
        if isinstance(verdict, Challenged):
            challenges = [("WWW-Authenticate", challenge) for challenge in verdict.challenges]
            return self._composer.refusal(request, 401, *challenges)
        if not isinstance(verdict, Authenticated):
            return self._composer.refusal(request, verdict.status, *verdict.headers, reason=verdict.reason)
        sender = msgspec.structs.replace(SIPUri.parse(self._properties.uri), user=verdict.username)
        if request.from_.uri.address_of_record != sender.address_of_record:
            return self._composer.refusal(request, 403, reason="Not Your Address")
        return None

    def _is_ours(self, uri: SIPUri) -> bool:
        return uri.address_of_record == self._properties.uri
