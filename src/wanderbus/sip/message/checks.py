"""What an element looks at before it serves a message (RFC 3261 8.2, 10.3, 16.3; RFC 4475 3.3).

One function a check, each None when there is nothing to object to, and for each role the checks in the order that the
RFC gives. Proxy, registrar and user agent ask these, and so does :mod:`.inspection`; what depends on their state
(bindings, dialogs, loops, passwords) they check themselves. All of them take a message that ``parse_message`` read.
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
"""Methods whose body we read, and whose answer has one."""

_NO_EXTENSIONS: Final = ("ACK", "CANCEL")
"""Methods in which Require and Proxy-Require are ignored (RFC 3261 8.2.2.3)."""


class Refusal(msgspec.Struct, frozen=True):
    """Answer ``status`` with ``headers``; ``reason`` is one line for people.

    ``faulty`` is false where the answer speaks of the element, not of the message: a method it does not serve, a
    challenge. RFC 4475 counts such messages among the valid ones (3.1.1.2, 3.3.7).
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
    """Judge a request as its destination (RFC 3261 8.2).

    ``served`` methods, ``supported`` option tags, media ``types`` that can be read. Max-Forwards is no matter here.
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
    """Judge a request as a registrar does before it looks at its bindings (RFC 3261 10.3)."""
    return (
        unserved_method(request, served)
        or unsupported_scheme(request)
        or unsupported_extension(request, "Require", supported)
        or unknown_credentials(request, "Authorization")
        or unregistrable(request)
    )


def proxy_refusal(request: Request, *, supported: Collection[str] = ()) -> Refusal | None:
    """Judge a request that is to be passed on (RFC 3261 16.3); its method and body are no concern of a proxy."""
    return (
        unsupported_scheme(request)
        or too_many_hops(request)
        or unsupported_extension(request, "Proxy-Require", supported)
    )


def unserved_method(request: Request, served: Collection[str]) -> Refusal | None:
    """Object to a method outside ``served``: 405 for a registered one, 501 for any other (RFC 3261 8.2.1, 21.5.2)."""
    if request.method in served:
        return None
    known = request.method in METHODS
    reason = f"{request.method} is not served here" if known else f"{request.method} is no method we know"
    return Refusal(405 if known else 501, reason, (("Allow", ", ".join(served)),), faulty=False)


def unsupported_scheme(request: Request) -> Refusal | None:
    """Object to a Request-URI that is neither sip nor sips (RFC 3261 8.2.2.1, 16.3; RFC 4475 3.3.2, 3.3.3)."""
    uri = SIPUri.parse_any(request.uri)
    return None if uri.is_sip else Refusal(416, f"Request-URI: the scheme {uri.scheme} is neither sip nor sips")


def unsupported_extension(request: Request, header: str, supported: Collection[str]) -> Refusal | None:
    """Object to an option tag in ``header``, Require or Proxy-Require, that is not ``supported`` (RFC 3261 8.2.2.3)."""
    if request.method in _NO_EXTENSIONS:
        return None
    lacking = [tag for tag in request.headers_all(header) if tag.lower() not in {known.lower() for known in supported}]
    if not lacking:
        return None
    tags = ", ".join(lacking)
    return Refusal(420, f"{header}: {tags} is not supported", (("Unsupported", tags),))


def unsupported_body(request: Request, types: Collection[str]) -> Refusal | None:
    """Object to a body that has to be read and cannot be (RFC 3261 8.2.3, 13.2.1; RFC 4475 3.3.6)."""
    if request.method not in _DESCRIBING or not request.body or _is_optional(request):
        return None
    if coding := [value for value in request.headers_all("Content-Encoding") if value.lower() != "identity"]:
        return Refusal(415, f"Content-Encoding: {', '.join(coding)} cannot be read", (("Accept-Encoding", "identity"),))
    media_type = media_type_of(request.header("Content-Type"))
    if media_type not in types:
        named = media_type or "no type at all"
        return Refusal(415, f"Content-Type: {named} cannot be read", (("Accept", ", ".join(types)),))
    if media_type == SDP_TYPE:
        try:
            SessionDescription.parse(request.body)
        except SIPParseError as error:
            return Refusal(error.status or 400, str(error))
    return None


def unacceptable_answer(request: Request, types: Collection[str]) -> Refusal | None:
    """Object to a sender that takes none of the ``types`` in which it would be answered (RFC 4475 3.3.15)."""
    if request.method not in _DESCRIBING or request.header("Accept") is None:
        return None
    wanted = {media_type_of(value) for value in request.headers_all("Accept")}
    for media_type in types:
        if wanted & {media_type, "*/*", media_type.partition("/")[0] + "/*"}:
            return None
    return Refusal(406, f"Accept: the answer is {', '.join(types)}, which is not among them")


def too_many_hops(request: Request) -> Refusal | None:
    """Object to a request that may not go further (RFC 3261 16.3 item 3)."""
    return Refusal(483, "Max-Forwards: 0, so it may not be passed on") if request.max_forwards == 0 else None


def unknown_credentials(request: Request, header: str) -> Refusal | None:
    """Object to credentials of which none is of the Digest scheme, as if there were none (RFC 4475 3.3.7).

    The caller adds its challenge. A request without any credentials passes: who is asked for some is not said here.
    """
    schemes = [value.partition(" ")[0] for value in request.headers_all(header)]
    if not schemes or any(scheme.lower() == "digest" for scheme in schemes):
        return None
    status = 407 if header == "Proxy-Authorization" else 401
    return Refusal(status, f"{header}: no credentials of the Digest scheme", faulty=False)


def unregistrable(request: Request) -> Refusal | None:
    """Object to a REGISTER that names no user of SIP, or asks for * in a way that has no meaning (RFC 3261 10.3)."""
    if request.method != "REGISTER":
        return None
    if not request.to.uri.is_sip:
        return Refusal(400, "To: an address of record is a sip or sips URI")
    if request.contact == CONTACT_STAR and request.expires != 0:
        return Refusal(400, "Contact: * needs Expires: 0")
    return None


def misrouted(response: Response) -> str | None:
    """Say why a user agent has to discard a response, None if it is for it (RFC 3261 8.1.3.3)."""
    return "Via: more than one, so it is for somebody else" if len(response.vias) > 1 else None


def unforwardable(response: Response) -> str | None:
    """Say why a proxy must not pass a response on: its next hop is many hosts or none (RFC 4475 3.3.10)."""
    vias = response.vias
    if len(vias) < 2 or is_single_host(vias[1].received or vias[1].host):
        return None
    return "Via: the next hop is no single host"


def media_type_of(value: str | None) -> str:
    """Return ``type/subtype`` in small letters, without parameters; "" for None."""
    return (value or "").partition(";")[0].replace(" ", "").replace("\t", "").lower()


def _is_optional(request: Request) -> bool:
    """Whether the sender lets a body that is not understood be ignored (RFC 3261 20.11)."""
    parameters = (request.header("Content-Disposition") or "").lower().replace(" ", "").replace("\t", "").split(";")[1:]
    return "handling=optional" in parameters
