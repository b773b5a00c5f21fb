"""Last changes of messages before they are sent: by a hook of the owner, and to a size (SPEC C-08, C-20).

Over UDP, the source of an unauthenticated request may be the address of a victim. The response to such a request is
reduced until it is no larger than the request: first the optional fields are removed, then compact names are used, then
several challenges or contacts are removed one by one. In place of a challenge for which there is no room, a short 400
says that TCP has room. Any other response that is still too large is not sent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from typing import Final, cast

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.sip.authentication.digest_values import Challenge
from wanderbus.sip.message.header_access import canonical_name
from wanderbus.sip.message.message import Message, Request, Response, encode_message

_OMITTABLE_FIELDS: Final = (
    "Server",
    "Supported",
    "Accept-Language",
    "Accept-Encoding",
    "Accept",
    "Warning",
    "Timestamp",
)
"""Header fields that a response can omit, the least useful first."""

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
"""The status that requires Allow (RFC 3261 21.4.6)."""


_CHALLENGING: Final = (401, 407)
_OF_EVERY_RESPONSE: Final = ("Via", "From", "To", "Call-ID", "CSeq")

USE_TCP: Final = "Use TCP"
"""Reason of the 400 in place of a challenge that has no room in a datagram of the request's size."""


def fitted(response: Response, bytes_max: int, keep: Collection[str] = ()) -> bytes | None:
    """Return ``response`` encoded in at most ``bytes_max`` bytes, None if it cannot be reduced to that.

    Header fields named in ``keep`` are never left out.
    """
    for candidate in _ever_shorter(response, keep):
        if len(candidate) <= bytes_max:
            return candidate
    return None


def fitted_or_refused(response: Response, bytes_max: int, keep: Collection[str] = ()) -> bytes | None:
    """Return ``response`` as :func:`fitted`; a short refusal in place of a challenge for which there is no room."""
    data = fitted(response, bytes_max, keep)
    if data is not None or response.status not in _CHALLENGING:
        return data
    needed = tuple(field for field in response.headers if canonical_name(field[0]) in _OF_EVERY_RESPONSE)
    short = msgspec.structs.replace(response, status=400, reason=USE_TCP, headers=needed, body=b"")
    return fitted(short, bytes_max)


def _ever_shorter(response: Response, keep: Collection[str]) -> Iterator[bytes]:
    yield encode_message(response)
    for name in _OMITTABLE_FIELDS:
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
    """Yield ``response`` with fewer and fewer choices.

    Of contacts the first remain, which are to be tried first. Of challenges the last remain: every client that supports
    a better algorithm also supports the last one, and so does a client with a single algorithm.
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
    """Encode ``response`` with compact names and, if that is shorter, an empty reason phrase (RFC 3261 25.1)."""
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
    """Remove ``received`` from the top Via if it equals the sent-by (RFC 3261 18.2.1, not RFC 3581 4)."""
    via = response.via
    if via.received != via.host:
        return response
    params = tuple(param for param in via.params if param[0].lower() != "received")
    plain = msgspec.structs.replace(via, params=params)
    return response.without_first("Via").with_first("Via", str(plain))


class MessageEditor:
    """Passes each message to ``edit``, which returns the message to send; without ``edit`` messages are unchanged.

    ``edit`` must not change the fields that identify transactions. ``refused`` is called with a change that is not
    sent.
    """

    __slots__ = ("_edit", "_refused")

    def __init__(
        self,
        edit: Callable[[Message], Message] = lambda message: message,
        refused: Callable[[Message, str], None] = lambda message, why: None,
    ) -> None:
        self._edit = edit
        self._refused = refused

    def request(self, request: Request) -> Request:
        """Return the request to send."""
        return cast(Request, self._edit(request))

    def response(self, response: Response, bytes_max: int | None) -> bytes | None:
        """Return the response to send, encoded; None if it cannot be reduced to ``bytes_max`` bytes.

        Fields that ``edit`` has changed are kept; if the result is too long, the response is sent without the changes.
        """
        edited = cast(Response, self._edit(response))
        if bytes_max is None:
            return encode_message(edited)
        if edited is response:
            return fitted_or_refused(response, bytes_max)
        changed = {name for name, _ in {*edited.headers} - {*response.headers}}
        data = fitted(edited, bytes_max, changed)
        if data is not None and (edited.reason == response.reason or edited.reason.encode() in data):
            return data
        self._refused(response, f"the response would be longer than the request of {bytes_max} bytes")
        return fitted_or_refused(response, bytes_max)
