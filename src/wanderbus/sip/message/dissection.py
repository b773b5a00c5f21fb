"""Conversion of a message to plain values, for display and for scripts (RFC 3261 7, 20).

Reading is lenient: a part that cannot be read is None, also if the bytes are not a message.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from wanderbus.errors import SIPParseError
from wanderbus.limits import SIP_MESSAGE_BYTES_MAX
from wanderbus.sip.message.checks import SDP_TYPE, media_type_of
from wanderbus.sip.message.headers import TOKEN, NameAddr, Params, Via
from wanderbus.sip.message.message import Request, parse_message, take_apart
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription

_STATUS_DIGITS_MAX: Final = 15
"""Largest number of digits of a status code shown as a number: JSON readers keep no more digits exactly."""

_RESPONSE: Final = re.compile(r"SIP/[^ ]*+ ++([0-9]++)(?: (.*))?", re.IGNORECASE | re.DOTALL)
_REQUEST: Final = re.compile(rf"({TOKEN.pattern}) ++(.*?) *+(?:SIP/[^ ]*+) *+", re.IGNORECASE | re.DOTALL)

Read = TypeVar("Read")


def dissect(data: bytes) -> dict[str, Any]:
    """Return the parts of ``data`` by name, always the same names; never raises.

    ``kind`` is "request", "response" or None. ``headers`` is a list of [name, value] in order, names in their long
    form, values unfolded. ``sdp`` is the session description, if there is a readable one.
    """
    data = data[: SIP_MESSAGE_BYTES_MAX + 1]
    start, fields, body = _taken_apart(data)
    loose = Request("", "", fields, body)
    with contextlib.suppress(SIPParseError):
        body = parse_message(data).body
    is_sdp = media_type_of(loose.header("Content-Type")) == SDP_TYPE
    return {
        **_start_line(start),
        "headers": [[name, value] for name, value in fields],
        "via": _read(lambda: [_via(via) for via in loose.vias]) or [],
        "from": _read(lambda: _address(loose.from_)),
        "to": _read(lambda: _address(loose.to)),
        "call_id": _read(lambda: loose.call_id),
        "cseq": _read(lambda: {"number": loose.cseq.number, "method": loose.cseq.method}),
        "contact": _read(lambda: [_address(contact) for contact in loose.contacts]) or [],
        "max_forwards": _read(lambda: loose.max_forwards),
        "expires": _read(lambda: loose.expires),
        "content_type": loose.header("Content-Type"),
        "body_length": len(body),
        "sdp": _read(lambda: _description(SessionDescription.parse(body))) if is_sdp and body else None,
    }


def _taken_apart(data: bytes) -> tuple[str, tuple[tuple[str, str], ...], bytes]:
    """Return start line, fields and the rest; no fields if they cannot be separated."""
    try:
        return take_apart(data)
    except SIPParseError:
        first = data.lstrip(b"\r\n").partition(b"\n")[0].rstrip(b"\r")
        return first.decode(errors="replace"), (), b""


def _start_line(start: str) -> dict[str, Any]:
    parts: dict[str, Any] = dict.fromkeys(("kind", "method", "uri", "status_code", "reason_phrase"))
    if response := _RESPONSE.fullmatch(start):
        status = int(response[1]) if len(response[1]) <= _STATUS_DIGITS_MAX else None
        parts |= {"kind": "response", "status_code": status, "reason_phrase": response[2] or ""}
    elif request := _REQUEST.fullmatch(start):
        parts |= {"kind": "request", "method": request[1], "uri": request[2]}
    return parts


def _read(read: Callable[[], Read]) -> Read | None:
    try:
        return read()
    except SIPParseError:
        return None


def _via(via: Via) -> dict[str, Any]:
    return {"transport": via.transport, "host": via.host, "port": via.port, "params": _params(via.params)}


def _address(address: NameAddr) -> dict[str, Any]:
    star = address.uri.scheme == "*"
    return {
        "display": address.display,
        "uri": "*" if star else str(address.uri),
        "tag": address.tag,
        "params": _params(address.params),
    }


def _params(params: Params) -> dict[str, str | None]:
    return dict(params)


def _description(description: SessionDescription) -> dict[str, Any]:
    return {
        "username": description.username,
        "session_id": description.session_id,
        "version": description.version,
        "address": description.address,
        "media": [_medium(medium) for medium in description.media],
    }


def _medium(medium: MediaDescription) -> dict[str, Any]:
    return {
        "media": medium.media,
        "address": medium.address,
        "port": medium.port,
        "protocol": medium.protocol,
        "formats": list(medium.formats),
        "attributes": [list(attribute) for attribute in medium.attributes],
    }
