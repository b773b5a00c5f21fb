"""Answers no larger than what they answer, so that a forged source gains nothing by asking us (SPEC C-20).

Over UDP the source of a request nobody vouched for may be somebody else's address. What such a request gets is cut
down until it has no more bytes than the request: first what is merely good to know goes, then the long way of
writing, then one after the other of several challenges or contacts. What is still too large is not sent at all.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.sip.authentication.digest_values import Challenge
from wanderbus.sip.message.header_access import canonical_name
from wanderbus.sip.message.message import Response, encode_message

_GOOD_TO_KNOW: Final = ("Server", "Supported", "Accept-Language", "Accept-Encoding", "Accept", "Warning", "Timestamp")
"""Header fields that an answer can do without, the least useful first."""

_CHALLENGES: Final = ("WWW-Authenticate", "Proxy-Authenticate")

_NAMES: Final = {
    "Via": "v",
    "From": "f",
    "To": "t",
    "Call-ID": "i",
    "Contact": "m",
    "Supported": "k",
    "Content-Length": "l",
    "Content-Type": "c",
}
"""Compact forms (RFC 3261 7.3.3)."""

_ALLOW_NEEDED: Final = 405
"""The status that means nothing without Allow (RFC 3261 21.4.6)."""


def fitted(response: Response, bytes_max: int, keep: Collection[str] = ()) -> bytes | None:
    """Return ``response`` encoded in at most ``bytes_max`` bytes, None if it cannot be cut down to that.

    No header field named in ``keep`` is left out.
    """
    for candidate in _ever_shorter(response, keep):
        if len(candidate) <= bytes_max:
            return candidate
    return None


def _ever_shorter(response: Response, keep: Collection[str]) -> Iterator[bytes]:
    yield encode_message(response)
    for name in _GOOD_TO_KNOW:
        if response.header(name) is not None and name not in keep:
            response = response.without(name)
            yield encode_message(response)
    if response.status != _ALLOW_NEEDED and "Allow" not in keep:
        response = response.without("Allow")
    response = _without_plain_received(response)
    yield _compact(response, reason=response.reason)
    yield _compact(response)
    if not {*_CHALLENGES, "Contact"} & set(keep):
        yield from (_compact(fewer) for fewer in _fewer_choices(response))


def _fewer_choices(response: Response) -> Iterator[Response]:
    """Yield ``response`` with ever fewer choices.

    Of contacts the first stay, which are to be tried first. Of challenges the last stay: a client that knows the
    better algorithms knows that of the last one too, and one that knows a single algorithm knows that.
    """
    for name in _CHALLENGES:
        values = response.headers_all(name)
        yield from (_with_values(response, name, values[first:]) for first in range(1, len(values)))
    contacts = response.headers_all("Contact")
    yield from (_with_values(response, "Contact", contacts[:count]) for count in range(len(contacts) - 1, 0, -1))


def _with_values(response: Response, name: str, values: list[str]) -> Response:
    kept = tuple(field for field in response.headers if field[0].lower() != name.lower())
    return msgspec.structs.replace(response, headers=(*kept, *((name, value) for value in values)))


def _compact(response: Response, reason: str = "") -> bytes:
    """Encode ``response`` with compact names and, in as few bytes as can be, an empty reason phrase (RFC 3261 25.1)."""
    lines = [f"SIP/2.0 {response.status} {reason}"]
    for name, value in response.headers:
        short = _short_challenge(value) if name in _CHALLENGES else value
        lines.append(f"{_NAMES.get(canonical_name(name), name)}:{short}")
    lines.append(f"l:{len(response.body)}")
    return "\r\n".join([*lines, "", ""]).encode() + response.body


@functools.lru_cache(maxsize=16)
def _short_challenge(value: str) -> str:
    try:
        return Challenge.parse(value).shortest
    except SIPParseError:
        return value


def _without_plain_received(response: Response) -> Response:
    """Take ``received`` off the top Via where it says what stands there anyway (RFC 3261 18.2.1, not RFC 3581 4)."""
    via = response.via
    if via.received != via.host:
        return response
    params = tuple(param for param in via.params if param[0].lower() != "received")
    plain = msgspec.structs.replace(via, params=params)
    return response.without_first("Via").with_first("Via", str(plain))
