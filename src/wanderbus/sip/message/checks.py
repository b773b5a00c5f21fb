"""Checks of a SIP message before an element serves it (RFC 3261 8.2, 10.3, 16.3; RFC 4475 3.3).

Each function is one check and returns None when the message passes. For each role one function runs its checks in the
order that the RFC gives. Proxy, registrar, user agent and :mod:`.inspection` use them. Checks that need the state of
the element (bindings, dialogs, loops, passwords) are not here. All functions take a message that ``parse_message``
read.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.hosts import is_single_host
from wanderbus.sip.message.headers import CONTACT_STAR
from wanderbus.sip.message.message import METHODS, Request, Response
from wanderbus.sip.message.sdp import SessionDescription
from wanderbus.sip.message.uri import SIPUri

USER_AGENT_METHODS: Final = ("INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "UPDATE")
REGISTRAR_METHODS: Final = ("REGISTER", "OPTIONS")
SDP_TYPE: Final = "application/sdp"

_DESCRIBING: Final = ("INVITE", "UPDATE")
"""Methods with a body that we read, and whose responses have a body."""

_NO_EXTENSIONS: Final = ("ACK", "CANCEL")
"""Methods in which Require and Proxy-Require are ignored (RFC 3261 8.2.2.3)."""


class Refusal(msgspec.Struct, frozen=True):
    """Refusal of a request: respond with ``status`` and ``headers``; ``reason`` is one line for people.

    ``faulty`` is false if the response describes the element, not a fault of the message: a method that it does not
    serve, or a challenge. RFC 4475 counts such messages as valid (3.1.1.2, 3.3.7).
    """

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...] = ()
    faulty: bool = True


def user_agent_refusal(
    request: Request,
    *,
    served: Collection[str] = USER_AGENT_METHODS,
    supported: Collection[str] = (),
    types: Collection[str] = (SDP_TYPE,),
) -> Refusal | None:
    """Check a request at its destination (RFC 3261 8.2).

    ``served``: methods; ``supported``: option tags; ``types``: readable media types. Max-Forwards is not checked.
    """
    return (
        unserved_method(request, served)
        or unsupported_scheme(request)
        or unsupported_extension(request, "Require", supported)
        or unsupported_body(request, types)
        or unacceptable_answer(request, types)
    )


def registrar_refusal(
    request: Request, *, served: Collection[str] = REGISTRAR_METHODS, supported: Collection[str] = ()
) -> Refusal | None:
    """Check a request as a registrar does before it reads its bindings (RFC 3261 10.3)."""
    return (
        unserved_method(request, served)
        or unsupported_scheme(request)
        or unsupported_extension(request, "Require", supported)
        or unknown_credentials(request, "Authorization")
        or unregistrable(request)
    )


def proxy_refusal(request: Request, *, supported: Collection[str] = ()) -> Refusal | None:
    """Check a request that a proxy is to forward (RFC 3261 16.3); its method and body are not checked."""
    return (
        unsupported_scheme(request)
        or too_many_hops(request)
        or unsupported_extension(request, "Proxy-Require", supported)
    )


def unserved_method(request: Request, served: Collection[str]) -> Refusal | None:
    """Refuse a method outside ``served``: 405 for a registered one, 501 for any other (RFC 3261 8.2.1, 21.5.2)."""
    if request.method in served:
        return None
    known = request.method in METHODS
    reason = f"{request.method} is not served here" if known else f"{request.method} is not a known method"
    return Refusal(405 if known else 501, reason, (("Allow", ", ".join(served)),), faulty=False)


def unsupported_scheme(request: Request) -> Refusal | None:
    """Refuse a Request-URI that is neither sip nor sips (RFC 3261 8.2.2.1, 16.3; RFC 4475 3.3.2, 3.3.3)."""
    uri = SIPUri.parse_any(request.uri)
    return None if uri.is_sip else Refusal(416, f"Request-URI: the scheme {uri.scheme} is neither sip nor sips")


def unsupported_extension(request: Request, header: str, supported: Collection[str]) -> Refusal | None:
    """Refuse an option tag in ``header`` (Require or Proxy-Require) that is not ``supported`` (RFC 3261 8.2.2.3)."""
    if request.method in _NO_EXTENSIONS:
        return None
    lacking = [tag for tag in request.headers_all(header) if tag.lower() not in {known.lower() for known in supported}]
    if not lacking:
        return None
    tags = ", ".join(lacking)
    return Refusal(420, f"{header}: {tags} is not supported", (("Unsupported", tags),))


def unsupported_body(request: Request, types: Collection[str]) -> Refusal | None:
    """Refuse a mandatory body that cannot be read (RFC 3261 8.2.3, 13.2.1; RFC 4475 3.3.6)."""
    if request.method not in _DESCRIBING or not request.body or _is_optional(request):
        return None
    if coding := [value for value in request.headers_all("Content-Encoding") if value.lower() != "identity"]:
        return Refusal(415, f"Content-Encoding: {', '.join(coding)} cannot be read", (("Accept-Encoding", "identity"),))
    media_type = media_type_of(request.header("Content-Type"))
    if media_type not in types:
        named = media_type or "no type"
        return Refusal(415, f"Content-Type: {named} cannot be read", (("Accept", ", ".join(types)),))
    if media_type == SDP_TYPE:
        try:
            SessionDescription.parse(request.body)
        except SIPParseError as error:
            return Refusal(error.status or 400, str(error))
    return None


def unacceptable_answer(request: Request, types: Collection[str]) -> Refusal | None:
    """Refuse a sender that accepts none of the response's media ``types`` (RFC 4475 3.3.15)."""
    if request.method not in _DESCRIBING or request.header("Accept") is None:
        return None
    wanted = {media_type_of(value) for value in request.headers_all("Accept")}
    for media_type in types:
        if wanted & {media_type, "*/*", media_type.partition("/")[0] + "/*"}:
            return None
    return Refusal(406, f"Accept: the answer is {', '.join(types)}, which the sender does not accept")


def too_many_hops(request: Request) -> Refusal | None:
    """Refuse a request that must not be forwarded further (RFC 3261 16.3 item 3)."""
    return Refusal(483, "Max-Forwards: 0, the request must not be forwarded") if request.max_forwards == 0 else None


def unknown_credentials(request: Request, header: str) -> Refusal | None:
    """Refuse credentials that contain no Digest scheme, as if there were no credentials (RFC 4475 3.3.7).

    The caller adds its challenge. A request without any credentials passes: the caller decides whether to demand them.
    """
    schemes = [value.partition(" ")[0] for value in request.headers_all(header)]
    if not schemes or any(scheme.lower() == "digest" for scheme in schemes):
        return None
    status = 407 if header == "Proxy-Authorization" else 401
    return Refusal(status, f"{header}: no credentials of the Digest scheme", faulty=False)


def unregistrable(request: Request) -> Refusal | None:
    """Refuse a REGISTER whose To is not a SIP URI, or with Contact * without Expires 0 (RFC 3261 10.3)."""
    if request.method != "REGISTER":
        return None
    if not request.to.uri.is_sip:
        return Refusal(400, "To: an address of record is a sip or sips URI")
    if request.contact == CONTACT_STAR and request.expires != 0:
        return Refusal(400, "Contact: * needs Expires: 0")
    return None


def misrouted(response: Response) -> str | None:
    """Return the reason why a user agent must discard a response, or None to accept it (RFC 3261 8.1.3.3)."""
    return "Via: more than one, the response is for another element" if len(response.vias) > 1 else None


def unforwardable(response: Response) -> str | None:
    """Return the reason why a proxy must not forward a response: its next hop is not one host (RFC 4475 3.3.10)."""
    vias = response.vias
    if len(vias) < 2 or is_single_host(vias[1].received or vias[1].host):
        return None
    return "Via: the next hop is not a single host"


def media_type_of(value: str | None) -> str:
    """Return ``type/subtype`` in lower case, without parameters; "" for None."""
    return (value or "").partition(";")[0].replace(" ", "").replace("\t", "").lower()


def _is_optional(request: Request) -> bool:
    """Return whether the sender allows an unreadable body to be ignored (RFC 3261 20.11)."""
    parameters = (request.header("Content-Disposition") or "").lower().replace(" ", "").replace("\t", "").split(";")[1:]
    return "handling=optional" in parameters
