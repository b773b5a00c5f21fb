"""Builder of a user agent's SIP messages from their main parameters (SPEC C-09, RFC 3261 8.1.1, 10.2, 13.2.1)."""

from __future__ import annotations

from typing import Final

from wanderbus.errors import SIPParseError
from wanderbus.hosts import is_ip_address
from wanderbus.machine import Address, RandomSource
from wanderbus.mobility.properties import MIN_SE_S, Properties
from wanderbus.mobility.session.offer_answer import SDP_TYPE, all_media_in, data_channel_in
from wanderbus.mobility.session.session import SIPSession
from wanderbus.mobility.session.session_timers import TOO_SMALL, TOO_SMALL_REASON, SessionTimer, asking, granting
from wanderbus.sip.message.checks import USER_AGENT_METHODS
from wanderbus.sip.message.message import Message, Request, Response, make_response
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription
from wanderbus.sip.message.targets import uri_at
from wanderbus.sip.message.uri import SIPUri

_ALLOW: Final = ("Allow", ", ".join(USER_AGENT_METHODS))
"""Methods that a user agent serves."""

_MAX_FORWARDS: Final = ("Max-Forwards", "70")


class Composer:
    """Builds messages with our identity and address; ``contact`` changes with every move."""

    def __init__(self, properties: Properties, contact: Address, random: RandomSource) -> None:
        self.properties = properties
        self.contact = contact
        self._random = random

    def move(self, contact: Address) -> Address:
        """Use ``contact`` as our address from now on; return the previous one."""
        former, self.contact = self.contact, contact
        return former

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
        """Our contact URI: our user at our address, over our transport."""
        return uri_at(self.properties.user, self.contact, self.properties.transport)

    @property
    def contact_header(self) -> tuple[str, str]:
        """Return Contact with the id of this device (RFC 5626 4.1)."""
        instance = self.properties.instance
        device = "" if instance is None else f';+sip.instance="{instance}"'
        return ("Contact", f"<{self.contact_uri}>{device}")

    def is_elsewhere(self, uri: str) -> bool:
        """Return whether ``uri`` is in another domain than ours."""
        host = SIPUri.parse(uri).host.lower()
        return not is_ip_address(host) and host != SIPUri.parse(self.properties.uri).host.lower()

    def media_in(self, description: SessionDescription) -> MediaDescription:
        """Return the media of ``description`` for our owner; SIPParseError 488 if there are none."""
        return (all_media_in if self.properties.any_media else data_channel_in)(description)

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
                _ALLOW,
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
        refreshing = self.refreshing(request, session)
        headers = (*refreshing.headers, ("Content-Type", SDP_TYPE))
        return Request(request.method, request.uri, headers, self._description(session).encode())

    def refreshing(self, request: Request, session: SIPSession) -> Request:
        """Return ``request`` with our Contact and session interval, without offer (RFC 3311 5.1, RFC 4028 7.4)."""
        ours = self.properties
        least_s = max(session.min_se_s, ours.min_se_s if ours.min_se_s > MIN_SE_S else 0)
        timer = asking(ours.session_expires_s, least_s, session.timer)
        headers = (*request.headers, self.contact_header, _ALLOW, *timer)
        return Request(request.method, request.uri, headers)

    def accepting(self, request: Request, tag: str, session: SIPSession, timer: SessionTimer | None) -> Response:
        """Return the 200 to ``request`` with our side of ``session``, answer or offer (RFC 3261 13.3.1.4)."""
        body = self._description(session).encode()
        headers = [self.contact_header, _ALLOW, *granting(timer), ("Content-Type", SDP_TYPE)]
        return make_response(request, 200, to_tag=tag, headers=headers, body=body)

    def refreshed(self, request: Request, timer: SessionTimer | None) -> Response:
        """Return the 200 to an UPDATE without offer (RFC 3311 5.2)."""
        return make_response(request, 200, headers=[self.contact_header, _ALLOW, *granting(timer)])

    def ringing(self, request: Request, tag: str) -> Response:
        """Return the 180 that creates an early dialog (RFC 3261 12.1.1, 13.3.1.1)."""
        return make_response(request, 180, to_tag=tag, headers=[self.contact_header, _ALLOW])

    def interval_too_small(self, request: Request) -> Response:
        """Return the refusal of a session interval below ours (RFC 4028 8.1, 9)."""
        least = ("Min-SE", str(self.properties.min_se_s))
        return self.refusal(request, TOO_SMALL, least, reason=TOO_SMALL_REASON)

    def options_answer(self, request: Request) -> Response:
        """Return the response to OPTIONS with our capabilities (RFC 3261 11.2)."""
        headers = [self.contact_header, _ALLOW, ("Accept", SDP_TYPE), *granting(None)]
        return make_response(request, 200, to_tag=self.fresh_tag(), headers=headers)

    def refusal(self, request: Request, status: int, *headers: tuple[str, str], reason: str | None = None) -> Response:
        """Return a refusal of ``request`` outside any dialog of ours."""
        return make_response(request, status, reason, to_tag=self.fresh_tag(), headers=headers)

    def _description(self, session: SIPSession) -> SessionDescription:
        """Return our slots of ``session`` as a description; there is at least one."""
        used = next((line for line in session.slots if line.port), session.slots[0])
        version = session.description_version
        return SessionDescription(self.properties.user, session.description_id, version, used.address, session.slots)


def takes_update(message: Message, before: bool) -> bool:
    """Return whether the sender of ``message`` allows UPDATE (RFC 3311 4); ``before`` if it has no Allow."""
    try:
        allowed = message.headers_all("Allow")
    except SIPParseError:
        return before
    return "UPDATE" in allowed if allowed else before
