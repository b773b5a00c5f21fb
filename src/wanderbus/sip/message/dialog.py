"""Dialogs between two user agents (RFC 3261 12).

A dialog is an immutable value: each step returns a new one, and it can be stored and loaded. Tags, CSeq numbers and the
route set are from the INVITE and its response; the remote target follows the peer's Contact.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.hosts import is_ip_address, is_single_host
from wanderbus.sip.message.headers import CONTACT_STAR, NameAddr
from wanderbus.sip.message.message import Message, Request, Response
from wanderbus.sip.message.targets import Target, target_of
from wanderbus.sip.message.uri import SIPUri

MAX_FORWARDS: Final = "70"

_TARGET_REFRESHING: Final = frozenset({"INVITE", "UPDATE"})
"""Requests whose Contact replaces the remote target (RFC 3261 6, RFC 3311 5.1)."""

_WITHOUT_NEW_CSEQ: Final = frozenset({"ACK", "CANCEL"})
"""Requests that repeat the CSeq number of an INVITE (RFC 3261 12.2.1.1)."""

_NOT_IN_REQUEST_URI: Final = "method"
"""The URI parameter that a Request-URI must not have (RFC 3261 19.1.1, table 1)."""


class Dialog(msgspec.Struct, frozen=True):
    """One dialog, from our point of view.

    ``local_cseq`` and ``remote_cseq`` are the last CSeq numbers of our side and of the peer, 0 for none yet.
    URIs and ``route_set`` are kept as written in the headers; the route set is in the order of our use.
    ``secure``: the dialog was created with a SIPS Request-URI.
    """

    call_id: str
    local_tag: str
    remote_tag: str
    local_uri: str
    remote_uri: str
    remote_target: str
    route_set: tuple[str, ...]
    local_cseq: int
    remote_cseq: int
    secure: bool = False

    @classmethod
    def from_uac(cls, request: Request, response: Response) -> Dialog:
        """Return the dialog that ``response`` to our INVITE ``request`` creates (RFC 3261 12.1.2).

        Raises:
            SIPParseError: a required header field is missing or malformed; Contact is required too.
        """
        return cls(
            call_id=request.call_id,
            local_tag=request.from_.tag or "",
            remote_tag=response.to.tag or "",
            local_uri=str(request.from_.uri),
            remote_uri=str(request.to.uri),
            remote_target=contact_uri(response),
            route_set=tuple(str(route) for route in reversed(response.record_routes)),
            local_cseq=request.cseq.number,
            remote_cseq=0,
            secure=request.uri.lower().startswith("sips:"),
        )

    @classmethod
    def from_uas(cls, request: Request, response: Response) -> Dialog:
        """Return the dialog that our ``response`` to the INVITE ``request`` creates (RFC 3261 12.1.1).

        Raises:
            SIPParseError: a required header field is missing or malformed; Contact is required too.
        """
        return cls(
            call_id=request.call_id,
            local_tag=response.to.tag or "",
            remote_tag=request.from_.tag or "",
            local_uri=str(request.to.uri),
            remote_uri=str(request.from_.uri),
            remote_target=contact_uri(request),
            route_set=tuple(str(route) for route in request.record_routes),
            local_cseq=0,
            remote_cseq=request.cseq.number,
            secure=request.uri.lower().startswith("sips:"),
        )

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifier of the dialog at our side: Call-ID, local tag, remote tag (RFC 3261 12)."""
        return self.call_id, self.local_tag, self.remote_tag

    def next_request(self, method: str) -> tuple[Dialog, Request]:
        """Return the dialog with its next CSeq number, and a request with that number, without Via and Contact
        (12.2.1.1).

        Raises:
            LocalProtocolError: ``method`` is ACK or CANCEL, which repeat the number of their INVITE.
        """
        if method in _WITHOUT_NEW_CSEQ:
            raise LocalProtocolError(f"{method} has no CSeq number of its own; use that of its INVITE")
        following = msgspec.structs.replace(self, local_cseq=self.local_cseq + 1)
        return following, following._request(method, following.local_cseq)

    def ack(self, cseq: int) -> Request:
        """Return the ACK for a 2xx to our INVITE number ``cseq``, without Via (RFC 3261 13.2.2.4)."""
        return self._request("ACK", cseq)

    def accepts(self, request: Request) -> int | None:
        """Return the status to refuse ``request`` with, or None if the dialog accepts it (RFC 3261 12.2.2).

        481 if it belongs to another dialog, 500 if its CSeq number is lower than an earlier one.

        Raises:
            SIPParseError: a required header field is missing or malformed.
        """
        if (request.call_id, request.to.tag or "", request.from_.tag or "") != self.key:
            return 481
        return 500 if request.cseq.number < self.remote_cseq else None

    def received(self, request: Request) -> Dialog:
        """Return the dialog after an accepted ``request``: with its CSeq number, and its Contact if it refreshes the
        target.

        Raises:
            SIPParseError: a required header field is missing or malformed.
        """
        if request.method in _WITHOUT_NEW_CSEQ:
            return self
        counted = msgspec.structs.replace(self, remote_cseq=max(self.remote_cseq, request.cseq.number))
        if request.method in _TARGET_REFRESHING and request.contact is not None:
            return counted.retargeted(contact_uri(request))
        return counted

    def retargeted(self, contact: str) -> Dialog:
        """Return the dialog with the URI ``contact`` as remote target (RFC 3261 12.2)."""
        return msgspec.structs.replace(self, remote_target=contact)

    def next_hop(self) -> Target:
        """Return the next hop of requests in this dialog: the first route, or else the remote target (RFC 3261
        12.2.1.1).

        Raises:
            SIPParseError: that URI is malformed, not a SIP URI, or names an unsupported transport.
        """
        return target_of(NameAddr.parse(self.route_set[0]).uri if self.route_set else SIPUri.parse(self.remote_target))

    def _request(self, method: str, cseq: int) -> Request:
        uri, routes = self._routing()
        headers = [("Max-Forwards", MAX_FORWARDS), *(("Route", route) for route in routes)]
        headers += [
            ("From", _tagged(self.local_uri, self.local_tag)),
            ("To", _tagged(self.remote_uri, self.remote_tag)),
        ]
        headers += [("Call-ID", self.call_id), ("CSeq", f"{cseq} {method}")]
        return Request(method, uri, tuple(headers))

    def _routing(self) -> tuple[str, tuple[str, ...]]:
        """Return Request-URI and Route values; a first route without ``lr`` is a strict router (12.2.1.1)."""
        if not self.route_set:
            return self.remote_target, ()
        first = NameAddr.parse(self.route_set[0]).uri
        if first.param("lr") is not None:
            return self.remote_target, self.route_set
        params = tuple(param for param in first.params if param[0].lower() != _NOT_IN_REQUEST_URI)
        strict = msgspec.structs.replace(first, params=params, headers=())
        return str(strict), (*self.route_set[1:], f"<{self.remote_target}>")


def contact_uri(message: Message) -> str:
    """Return the URI of the one Contact that a dialog needs (RFC 3261 8.1.1.8, 12.1).

    Raises:
        SIPParseError: it is missing, ``*``, or not a SIP URI.
    """
    contact = message.contact
    if contact is None or contact == CONTACT_STAR or not contact.uri.is_sip:
        raise SIPParseError("Contact: a dialog needs one SIP URI")
    return str(contact.uri)


def _tagged(uri: str, tag: str) -> str:
    return f"<{uri}>;tag={tag}" if tag else f"<{uri}>"


def reachable(dialog: Dialog) -> Target:
    """Return the next hop of ``dialog``.

    Raises SIPParseError if it is not the IP address of one host. Names are not resolved: the peer could choose them,
    and a lookup would delay everybody else.
    """
    target = dialog.next_hop()
    if not is_ip_address(target.address[0]):
        raise SIPParseError(f"cannot send to {target.address[0]!r}: not an IP address")
    if not is_single_host(target.address[0]):
        raise SIPParseError(f"cannot send to {target.address[0]!r}: not the address of one host")
    return target
