"""SIP and SIPS URIs, and the canonical form that identifies users (RFC 3261 19.1, 25.1; SPEC A-05, X2).

Every part is kept escaped as it was written, so that a URI is encoded unchanged; only scheme and host are folded to
lower case. All patterns are possessive: parsing is linear in the length of the text.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from wanderbus.errors import SIPParseError

_Value = TypeVar("_Value")

CACHE_ENTRIES_MAX: Final = 256
"""Entries in each cache of parsed URIs, addresses and Via values: each value of a message is read about six times."""

CACHED_CHARACTERS_MAX: Final = 200
"""Longest text that is cached; this limits the caches to 8 MiB, even for values made of parameters only."""

_ESCAPED: Final = "%[0-9A-Fa-f]{2}"
_UNRESERVED: Final = r"A-Za-z0-9\-_.!~*'()"
_USER: Final = re.compile(rf"(?:[{_UNRESERVED}&=+$,;?/]|{_ESCAPED})+")
_PASSWORD: Final = re.compile(rf"(?:[{_UNRESERVED}&=+$,]|{_ESCAPED})*")
_PARAM: Final = re.compile(rf"(?:[{_UNRESERVED}\[\]/:&+$]|{_ESCAPED})+")
_HEADER: Final = re.compile(rf"(?:[{_UNRESERVED}\[\]/?:+$]|{_ESCAPED})*")
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_.\-]{1,255}+")
_IPV6: Final = re.compile(r"[0-9A-Fa-f:.]{2,45}+")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*+")
_OPAQUE: Final = re.compile(r"[^\s\x00-\x1f\x7f<>\"]++")
_ESCAPE: Final = re.compile(_ESCAPED)
_LEGAL_IN_USER: Final = re.compile(rf"[{_UNRESERVED}&=+$,;?/]")

UNSUPPORTED_URI_SCHEME: Final = 416


class SIPUri(msgspec.Struct, frozen=True):
    """One URI (RFC 3261 19.1.1).

    ``host`` has no brackets around an IPv6 address. A From, To or Contact may lawfully carry a URI of another scheme:
    then ``is_sip`` is false and ``host`` is everything after the colon. ``password`` belongs to the deprecated
    ``user:password`` form; it is encoded but never logged.
    """

    scheme: str
    user: str | None
    host: str
    port: int | None = None
    params: tuple[tuple[str, str | None], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    password: str | None = None

    @classmethod
    def parse(cls, text: str) -> SIPUri:
        """Parse a SIP or SIPS URI; SIPParseError with status 416 for another scheme, else 400."""
        uri = cls.parse_any(text)
        if not uri.is_sip:
            raise SIPParseError("URI: the scheme is neither sip nor sips", UNSUPPORTED_URI_SCHEME)
        return uri

    @classmethod
    def parse_any(cls, text: str) -> SIPUri:
        """Parse a URI of any scheme; one that is not SIP is not split into parts (RFC 4475 3.3.4); SIPParseError."""
        return _parse_any(text)

    @property
    def is_sip(self) -> bool:
        """True if the scheme is sip or sips, so that the parts have their SIP meaning."""
        return self.scheme in ("sip", "sips")

    def param(self, name: str) -> str | None:
        """Return the value of a parameter as written, "" for one without a value, None if absent.

        Names compare without regard to case and escapes (RFC 3261 19.1.4).
        """
        for written, value in self.params:
            if _unescaped(written).lower() == name.lower():
                return value or ""
        return None

    def without_param(self, name: str) -> SIPUri:
        """Return the URI without a parameter, itself if it has none of that name."""
        kept = tuple(param for param in self.params if _unescaped(param[0]).lower() != name.lower())
        return self if len(kept) == len(self.params) else msgspec.structs.replace(self, params=kept)

    @property
    def address_of_record(self) -> str:
        """The canonical ``sip:user@host``: no port, parameters or needless escapes (RFC 3261 10.3 step 5).

        A URI of another scheme is its own canonical form; it never equals that of a SIP user.
        """
        if not self.is_sip:
            return str(self)
        user = "" if self.user is None else _ESCAPE.sub(_unescaped_where_legal, self.user) + "@"
        return f"sip:{user}{bracketed(self.host.lower())}"

    def __str__(self) -> str:
        if not self.is_sip:
            return f"{self.scheme}:{self.host}"
        return "".join(self._pieces(self.password))

    def __repr__(self) -> str:
        if not self.is_sip:
            return f"SIPUri({str(self)!r})"
        return f"SIPUri({''.join(self._pieces(None if self.password is None else '***'))!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("uri", repr(self))]

    def _pieces(self, password: str | None) -> Iterator[str]:
        yield self.scheme + ":"
        if self.user is not None:
            yield self.user
            yield "@" if password is None else f":{password}@"
        yield bracketed(self.host)
        if self.port is not None:
            yield f":{self.port}"
        for name, value in self.params:
            yield f";{name}" if value is None else f";{name}={value}"
        for index, (name, value) in enumerate(self.headers):
            yield f"{'&' if index else '?'}{name}={value}"


def canonical_uri(text: str) -> str:
    """Return ``sip:user@host`` for ``user@host``, ``sip:user@host`` or any longer SIP URI of a user.

    SIPParseError if the text is not such a URI, or has no user.
    """
    text = text.strip(" \t")
    scheme = text.partition(":")[0].lower()
    uri = SIPUri.parse(text if scheme in ("sip", "sips") else f"sip:{text}")
    if uri.user is None:
        raise SIPParseError("URI: no user before the host; write it as user@domain")
    return uri.address_of_record


def bracketed(host: str) -> str:
    """Return a host in its form in a URI or Via: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def parse_host_port(text: str, what: str) -> tuple[str, int | None]:
    """Parse ``host[:port]`` (RFC 3261 25.1, host without brackets, lower case); SIPParseError naming ``what``."""
    if text.startswith("["):
        literal, bracket, rest = text[1:].partition("]")
        if not bracket or not _IPV6.fullmatch(literal):
            raise SIPParseError(f"{what}: not an IPv6 address in brackets")
        try:
            host = str(ipaddress.IPv6Address(literal))
        except ValueError:
            raise SIPParseError(f"{what}: not an IPv6 address in brackets") from None
    else:
        host, colon, port = text.partition(":")
        host, rest = host.rstrip(" \t"), colon + port
        if not _HOST_NAME.fullmatch(host):
            raise SIPParseError(f"{what}: not a host name or address")
        host = host.lower()
    rest = rest.strip(" \t")
    if not rest:
        return host, None
    if not rest.startswith(":"):
        raise SIPParseError(f"{what}: the text after the host is not a port")
    port_number = parse_number(rest[1:].strip(" \t"), 65_535, f"{what} port")
    if port_number == 0:
        raise SIPParseError(f"{what} port: 0 is not a valid destination")
    return host, port_number


def parse_number(text: str, largest: int, what: str) -> int:
    """Parse 1*DIGIT not above ``largest``; SIPParseError naming ``what``. Never converts a long string."""
    if not (text.isascii() and text.isdigit()):
        raise SIPParseError(f"{what}: not a number")
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(largest)) or int(digits) > largest:
        raise SIPParseError(f"{what}: larger than {largest}")
    return int(digits)


def cached(read: Callable[[str], _Value]) -> Callable[[str], _Value]:
    """Return ``read``, whose values never change, with a cache of its latest ones; an error is not kept."""
    known = lru_cache(CACHE_ENTRIES_MAX)(read)
    return lambda text: known(text) if len(text) <= CACHED_CHARACTERS_MAX else read(text)


@cached
def _parse_any(text: str) -> SIPUri:
    scheme, colon, rest = text.partition(":")
    if not colon or not _SCHEME.fullmatch(scheme):
        raise SIPParseError("URI: no scheme")
    scheme = scheme.lower()
    if scheme in ("sip", "sips"):
        return _parse_sip(scheme, rest)
    if not _OPAQUE.fullmatch(rest):
        raise SIPParseError("URI: a character that must be escaped")
    return SIPUri(scheme, None, rest)


def _parse_sip(scheme: str, rest: str) -> SIPUri:
    userinfo, at, where = rest.partition("@")
    user: str | None = None
    password: str | None = None
    if at:
        user, colon, secret = userinfo.partition(":")
        password = secret if colon else None
        if not _USER.fullmatch(user) or not _PASSWORD.fullmatch(secret):
            raise SIPParseError("URI: the part before @ is empty or has a character that must be escaped")
    else:
        where = rest
    where, question, headers = where.partition("?")
    host_port, *params = where.split(";")
    if host_port != host_port.strip(" \t") or " " in host_port or "\t" in host_port:
        raise SIPParseError("URI: white space")
    host, port = parse_host_port(host_port, "URI")
    return SIPUri(scheme, user, host, port, _parse_params(params), _parse_headers(headers, question), password)


def _parse_params(texts: list[str]) -> tuple[tuple[str, str | None], ...]:
    params: list[tuple[str, str | None]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not _PARAM.fullmatch(name) or (equals and not _PARAM.fullmatch(value)):
            raise SIPParseError("URI: not a parameter after ;")
        params.append((name, value if equals else None))
    if len({_unescaped(name).lower() for name, _ in params}) != len(params):
        raise SIPParseError("URI: a parameter is given twice")
    return tuple(params)


def _parse_headers(text: str, question: str) -> tuple[tuple[str, str], ...]:
    if not question:
        return ()
    headers: list[tuple[str, str]] = []
    for piece in text.split("&"):
        name, equals, value = piece.partition("=")
        if not name or not equals or not _HEADER.fullmatch(name) or not _HEADER.fullmatch(value):
            raise SIPParseError("URI: not a header after ? or &")
        headers.append((name, value))
    return tuple(headers)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[0][1:], 16)), text)


def _unescaped_where_legal(found: re.Match[str]) -> str:
    character = chr(int(found[0][1:], 16))
    return character if _LEGAL_IN_USER.fullmatch(character) else found[0].upper()
