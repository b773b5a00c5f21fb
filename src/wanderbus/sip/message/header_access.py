"""Access to the header fields of a message, and changes to them (RFC 3261 7.3).

Names are compared without regard to case, in their compact or long form. For a message from ``parse_message``, the
typed shortcuts and ``headers_all`` never raise: parsing has tried them all.
"""

from __future__ import annotations

from typing import Any, Final, Self

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.limits import SIP_HEADERS_MAX
from wanderbus.sip.message.headers import CONTACT_STAR, DELTA_SECONDS_MAX, CSeq, NameAddr, Via, split_list
from wanderbus.sip.message.uri import parse_number

Headers = tuple[tuple[str, str], ...]
"""Header fields in order: name, and value unfolded and stripped."""

MAX_FORWARDS_MAX: Final = 255
"""Largest Max-Forwards (RFC 3261 20.22)."""

_COMPACT: Final = {
    "a": "Accept-Contact",
    "b": "Referred-By",
    "c": "Content-Type",
    "d": "Request-Disposition",
    "e": "Content-Encoding",
    "f": "From",
    "i": "Call-ID",
    "j": "Reject-Contact",
    "k": "Supported",
    "l": "Content-Length",
    "m": "Contact",
    "n": "Identity-Info",
    "o": "Event",
    "r": "Refer-To",
    "s": "Subject",
    "t": "To",
    "u": "Allow-Events",
    "v": "Via",
    "x": "Session-Expires",
    "y": "Identity",
}
_LISTS: Final = (
    "Accept Accept-Encoding Accept-Language Alert-Info Allow Allow-Events Call-Info Contact Content-Encoding "
    "Content-Language Error-Info In-Reply-To P-Asserted-Identity Path Proxy-Require Record-Route Require Route "
    "Service-Route Supported Unsupported Via Warning"
)
_SINGLE: Final = (
    "Authentication-Info Authorization Call-ID Content-Disposition Content-Length Content-Type CSeq Date Event Expires "
    "From Max-Forwards MIME-Version Min-Expires Organization Priority Proxy-Authenticate Proxy-Authorization Refer-To "
    "Referred-By Reply-To Retry-After Server Session-Expires Subject Timestamp To User-Agent WWW-Authenticate"
)
LIST_FIELDS: Final = frozenset(_LISTS.split())
"""Fields with a comma-separated list as value (RFC 3261 7.3.1), by their usual names."""

_LIST_NAMES: Final = frozenset(name.lower() for name in LIST_FIELDS)
_CANONICAL: Final = {name.lower(): name for name in (*_COMPACT.values(), *_LISTS.split(), *_SINGLE.split())} | _COMPACT


def canonical_name(name: str) -> str:
    """Return the long form of a header name in its usual case; an unknown name as it is."""
    return _CANONICAL.get(name.lower(), name)


class HeaderAccess:
    """Methods common to Request and Response; every change returns a new message."""

    __slots__ = ()

    headers: Headers
    body: bytes

    @property
    def content_bytes(self) -> int:
        """Size of the message on a stream, without punctuation and the start line."""
        return sum(len(name) + len(value) for name, value in self.headers) + len(self.body)

    def header(self, name: str) -> str | None:
        """Return the whole value of the first field of that name (not split at commas), None if absent."""
        wanted = canonical_name(name).lower()
        return next((value for key, value in self.headers if key.lower() == wanted), None)

    def headers_all(self, name: str) -> list[str]:
        """Return every value of that name in order; list fields are split at their commas (7.3.1).

        SIPParseError if a quote or < in a list is not closed, or if it has more than SIP_HEADERS_MAX values.
        """
        wanted = canonical_name(name).lower()
        values = [value for key, value in self.headers if key.lower() == wanted]
        if wanted in _LIST_NAMES:
            values = [item for value in values for item in split_list(value)]
        if len(values) > SIP_HEADERS_MAX:
            raise SIPParseError(f"{canonical_name(name)}: more than {SIP_HEADERS_MAX} values")
        return values

    @property
    def via(self) -> Via:
        """The topmost Via; SIPParseError if there is none."""
        values = self.headers_all("Via")
        if not values:
            raise SIPParseError("Via is missing")
        return Via.parse(values[0])

    @property
    def vias(self) -> list[Via]:
        """Every Via from the top; SIPParseError."""
        return [Via.parse(value) for value in self.headers_all("Via")]

    @property
    def from_(self) -> NameAddr:
        """From; SIPParseError if it is missing or malformed."""
        return NameAddr.parse(self._mandatory("From"))

    @property
    def to(self) -> NameAddr:
        """To; SIPParseError if it is missing or malformed."""
        return NameAddr.parse(self._mandatory("To"))

    @property
    def call_id(self) -> str:
        """Call-ID; SIPParseError if it is missing or holds white space."""
        value = self._mandatory("Call-ID")
        if not value or " " in value or "\t" in value:
            raise SIPParseError("Call-ID: empty, or holds white space")
        return value

    @property
    def cseq(self) -> CSeq:
        """CSeq; SIPParseError if it is missing or malformed."""
        return CSeq.parse(self._mandatory("CSeq"))

    @property
    def contact(self) -> NameAddr | None:
        """The first Contact, CONTACT_STAR for ``*``, None if absent; SIPParseError."""
        contacts = self.contacts
        return contacts[0] if contacts else None

    @property
    def contacts(self) -> list[NameAddr]:
        """Every Contact, CONTACT_STAR alone for ``*``; SIPParseError, also for ``*`` beside others (10.3 step 6)."""
        values = self.headers_all("Contact")
        if values == ["*"]:
            return [CONTACT_STAR]
        return [NameAddr.parse(value) for value in values]

    @property
    def routes(self) -> list[NameAddr]:
        """Every Route in order; SIPParseError."""
        return [NameAddr.parse(value) for value in self.headers_all("Route")]

    @property
    def record_routes(self) -> list[NameAddr]:
        """Every Record-Route in order; SIPParseError."""
        return [NameAddr.parse(value) for value in self.headers_all("Record-Route")]

    @property
    def max_forwards(self) -> int | None:
        """Max-Forwards, hops left, None if absent; SIPParseError above 255 (20.22)."""
        value = self.header("Max-Forwards")
        return None if value is None else parse_number(value, MAX_FORWARDS_MAX, "Max-Forwards")

    @property
    def expires(self) -> int | None:
        """Expires in seconds, None if absent; SIPParseError above 2**32-1 (20.19)."""
        value = self.header("Expires")
        return None if value is None else parse_number(value, DELTA_SECONDS_MAX, "Expires")

    def with_header(self, name: str, value: str) -> Self:
        """Return the message with the field added at the end."""
        return self._with_headers((*self.headers, (canonical_name(name), value)))

    def with_first(self, name: str, value: str) -> Self:
        """Return the message with the field added before all others."""
        return self._with_headers(((canonical_name(name), value), *self.headers))

    def replacing(self, name: str, value: str) -> Self:
        """Return the message with this as the only field of its name, in place of the first one, else at the end."""
        wanted = canonical_name(name).lower()
        for index, (key, _) in enumerate(self.headers):
            if key.lower() == wanted:
                rest = tuple(field for field in self.headers[index + 1 :] if field[0].lower() != wanted)
                return self._with_headers((*self.headers[:index], (canonical_name(name), value), *rest))
        return self.with_header(name, value)

    def without(self, name: str) -> Self:
        """Return the message without any field of that name."""
        wanted = canonical_name(name).lower()
        return self._with_headers(tuple(field for field in self.headers if field[0].lower() != wanted))

    def without_first(self, name: str) -> Self:
        """Return the message without the first value of that name; further values of the same list remain.

        SIPParseError if a quote or < in a list is not closed.
        """
        wanted = canonical_name(name).lower()
        for index, (key, value) in enumerate(self.headers):
            if key.lower() == wanted:
                left = split_list(value)[1:] if wanted in _LIST_NAMES else []
                kept = ((key, ", ".join(left)),) if left else ()
                return self._with_headers((*self.headers[:index], *kept, *self.headers[index + 1 :]))
        return self

    def _mandatory(self, name: str) -> str:
        value = self.header(name)
        if value is None:
            raise SIPParseError(f"{name} is missing")
        return value

    def _with_headers(self, headers: Headers) -> Self:
        message: Any = self
        changed: Self = msgspec.structs.replace(message, headers=headers)
        return changed
