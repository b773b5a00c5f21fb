"""Builds the SIP messages of a user agent from their main parameters only (SPEC C-09, RFC 3261 8.1.1, 10.2, 13.2.1)."""

from __future__ import annotations

from typing import Final

from wanderbus.machine import Address, RandomSource
from wanderbus.mobility.descriptions import SDP_TYPE, answer_to, describe
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.session import SIPSession
from wanderbus.sip.message import Request, Response, make_response
from wanderbus.sip.sdp import SessionDescription
from wanderbus.sip.uri import SIPUri

METHODS: Final = ("INVITE", "ACK", "BYE", "CANCEL", "OPTIONS")
"""What a user agent serves, as it stands in Allow."""

_ALLOW: Final = ("Allow", ", ".join(METHODS))
_MAX_FORWARDS: Final = ("Max-Forwards", "70")


class Composer:
    """Knows who we are and where we are reached; ``contact`` changes with every move."""

    def __init__(self, properties: Properties, contact: Address, random: RandomSource) -> None:
        self.properties = properties
        self.contact = contact
        self._random = random

    def fresh_tag(self) -> str:
        """Return a new tag, 64 unpredictable bits (RFC 3261 19.3 asks for 32)."""
        return self._random.token(8).hex()

    def fresh_call_id(self) -> str:
        """Return a new Call-ID (RFC 3261 8.1.1.4)."""
        return self._random.token(16).hex()

    def fresh_description_id(self) -> int:
        """Return a new id for the origin of our SDP (RFC 4566 5.2: numeric)."""
        return int.from_bytes(self._random.token(7))

    @property
    def contact_uri(self) -> str:
        """Where requests for us go: our user at our address."""
        host, port = self.contact
        return f"sip:{self.properties.user}@{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def contact_header(self) -> tuple[str, str]:
        """Contact with the device that it belongs to (RFC 5626 4.1)."""
        instance = self.properties.instance
        device = "" if instance is None else f';+sip.instance="{instance}"'
        return ("Contact", f"<{self.contact_uri}>{device}")

    def register(self, call_id: str, tag: str, cseq: int, expires_s: int) -> Request:
        """Return a REGISTER for our one contact (RFC 3261 10.2.1); 0 seconds remove it (10.2.2)."""
        uri = self.properties.uri
        return Request(
            "REGISTER",
            f"sip:{SIPUri.parse(uri).host}",
            (
                _MAX_FORWARDS,
                ("From", f"<{uri}>;tag={tag}"),
                ("To", f"<{uri}>"),
                ("Call-ID", call_id),
                ("CSeq", f"{cseq} REGISTER"),
                self.contact_header,
                ("Expires", str(expires_s)),
            ),
        )

    def invite(self, session: SIPSession) -> Request:
        """Return the INVITE that offers ``session`` with its present CSeq, tag and description (RFC 3261 13.2.1)."""
        request = Request(
            "INVITE",
            session.remote_uri,
            (
                _MAX_FORWARDS,
                ("From", f"<{session.owner_uri}>;tag={session.local_tag}"),
                ("To", f"<{session.remote_uri}>"),
                ("Call-ID", session.id),
                ("CSeq", f"{session.local_cseq} INVITE"),
            ),
        )
        return self.offering(request, session)

    def offering(self, request: Request, session: SIPSession) -> Request:
        """Return ``request`` with our Contact and our description of ``session`` (RFC 3261 14.1 for a re-INVITE)."""
        headers = (*request.headers, self.contact_header, _ALLOW, ("Content-Type", SDP_TYPE))
        return Request(request.method, request.uri, headers, self._description(session).encode())

    def accepting(self, request: Request, tag: str, session: SIPSession, offer: SessionDescription) -> Response:
        """Return the 200 that answers the ``offer`` in ``request`` with our side of ``session`` (RFC 3261 13.3.1.4)."""
        body = answer_to(offer, self._description(session)).encode()
        headers = [self.contact_header, _ALLOW, ("Content-Type", SDP_TYPE)]
        return make_response(request, 200, to_tag=tag, headers=headers, body=body)

    def options_answer(self, request: Request) -> Response:
        """Return what we can do (RFC 3261 11.2)."""
        headers = [self.contact_header, _ALLOW, ("Accept", SDP_TYPE)]
        return make_response(request, 200, to_tag=self.fresh_tag(), headers=headers)

    def refusal(self, request: Request, status: int, *headers: tuple[str, str], reason: str | None = None) -> Response:
        """Return a refusal of ``request`` outside of any dialog of ours."""
        return make_response(request, status, reason, to_tag=self.fresh_tag(), headers=headers)

    def not_allowed(self, request: Request) -> Response:
        """Return the refusal of a method that we do not serve (RFC 3261 8.2.1)."""
        return self.refusal(request, 405, _ALLOW)

    def _description(self, session: SIPSession) -> SessionDescription:
        assert session.local_media is not None
        return describe(self.properties.user, session.description_id, session.description_version, session.local_media)
