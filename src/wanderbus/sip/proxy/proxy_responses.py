"""Responses of the proxy itself: to requests for the server, and to those it must not forward (RFC 3261 8.2, 16.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wanderbus.machine import RandomSource
from wanderbus.sip.message.checks import proxy_refusal, unsupported_extension
from wanderbus.sip.message.headers import Via
from wanderbus.sip.message.message import Request, Response, make_response
from wanderbus.sip.message.targets import sent_by
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy.bindings import Domain
from wanderbus.sip.proxy.request_preparation import loop_mark

ALLOWED_METHODS: Final = "INVITE, ACK, CANCEL, OPTIONS, BYE, REGISTER"

_CAPABILITIES: Final = (("Allow", ALLOWED_METHODS), ("Accept", "*/*"), ("Supported", ""))
"""Capabilities of the server (RFC 3261 11.2): any body, and no extension of its own."""

_TAG_BYTES: Final = 4


class ProxyResponses:
    """The responses of the proxy of ``domain`` itself."""

    def __init__(self, domain: Domain, random: RandomSource) -> None:
        self._domain = domain
        self._random = random

    def make(
        self, request: Request, status: int, headers: Sequence[tuple[str, str]] = (), *, reason: str | None = None
    ) -> Response:
        """Return a response with a tag of ours."""
        return make_response(request, status, reason, to_tag=self._random.token(_TAG_BYTES).hex(), headers=headers)

    def to(self, request: Request, as_it_came: Request) -> Response | None:
        """Respond to a request for this server itself or one that must not be forwarded; None for any other.

        Raises:
            SIPParseError: a header field cannot be read.
        """
        uri = SIPUri.parse(request.uri)
        if uri.user is None and self._domain.serves(uri):
            return self._as_user_agent(request)
        if refusal := proxy_refusal(request):
            return self.make(request, refusal.status, refusal.headers)
        return self.make(request, 482) if self._has_looped(as_it_came) else None

    def is_ours(self, via: Via) -> bool:
        """Return whether we wrote ``via``."""
        return self._domain.is_ours(sent_by(via))

    def _as_user_agent(self, request: Request) -> Response:
        """Respond to a request to the server itself (RFC 3261 8.2.1, 8.2.2.3, 11.2)."""
        if request.method != "OPTIONS":
            return self.make(request, 405, [("Allow", ALLOWED_METHODS)])
        if refusal := unsupported_extension(request, "Require", ()):
            return self.make(request, refusal.status, refusal.headers)
        return self.make(request, 200, _CAPABILITIES)

    def _has_looped(self, request: Request) -> bool:
        """Return whether this very request was here before, with the same target (RFC 3261 16.3 item 4, RFC 5393)."""
        mark = loop_mark(request)
        return any(self.is_ours(via) and (via.branch or "").endswith(mark) for via in request.vias)
