"""Structured header values: Via, name-addr and CSeq, each read with ``parse`` and written with ``str``.

RFC 3261 7.3.1, 20 and 25.1; RFC 3581 for ``rport``. Values arrive unfolded, in one line. All patterns are
possessive and each text is walked once, so that reading is linear whatever it holds.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.sip.message.uri import SIPUri, bracketed, cached, parse_host_port, parse_number

Params = tuple[tuple[str, str | None], ...]
"""Header parameters in order; a value is unquoted, None where there is none."""

CSEQ_MAX: Final = 2**31 - 1
"""Largest CSeq number (RFC 3261 8.1.1.5)."""

BRANCH_COOKIE: Final = "z9hG4bK"
"""Prefix of a branch that is unique across space and time (RFC 3261 8.1.1.7)."""

VISIT: Final = "P-Wanderbus-Visit"
"""Field with the proof of a call to another domain (:mod:`wanderbus.sip.proxy.visit_proofs`)."""

DELTA_SECONDS_MAX: Final = 2**32 - 1
"""Largest Expires and other delta-seconds (RFC 3261 20.19)."""

_TOKEN_CLASS: Final = r"A-Za-z0-9\-.!%*_+`'~"
TOKEN: Final = re.compile(rf"[{_TOKEN_CLASS}]++")
_BARE_VALUE: Final = re.compile(rf"[{_TOKEN_CLASS}\[\]:]++")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_QUOTED_PAIR: Final = re.compile(r"\\(.)", re.DOTALL)
_TO_ESCAPE: Final = re.compile(r'[\x00-\x08\x0b-\x1f\x7f"\\]')
_DISPLAY: Final = re.compile(rf"[{_TOKEN_CLASS} \t\u0080-\U0010ffff]*+")
_ITEM: Final = re.compile(r'((?:"(?:[^"\\]|\\.)*+"|<[^>]*+>|[^",<]++)*+)(?:,[, \t]*+|\Z)', re.DOTALL)
_PARAM: Final = re.compile(
    rf'[ \t]*+;[ \t]*+([{_TOKEN_CLASS}]++)(?:[ \t]*+=[ \t]*+("(?:[^"\\]|\\.)*"|[^\s;,"<>]++))?', re.DOTALL
)
_VIA: Final = re.compile(
    rf"([{_TOKEN_CLASS}]++)[ \t]*+/[ \t]*+([{_TOKEN_CLASS}]++)[ \t]*+/[ \t]*+([{_TOKEN_CLASS}]++)[ \t]++([^;]++)"
)


def names_a_hop(text: str) -> bool:
    """Return whether a Via value begins with SIP's protocol and a host, whatever its parameters are."""
    found = _VIA.match(text.strip(" \t"))
    return found is not None and found[1].upper() == "SIP"


class Via(msgspec.Struct, frozen=True):
    """One hop on the way back (RFC 3261 20.42): ``SIP/2.0/transport host[:port];params``."""

    transport: str
    host: str
    port: int | None = None
    params: Params = ()

    @classmethod
    def parse(cls, text: str) -> Via:
        """Read one Via value; SIPParseError. Any version is accepted, so that a 505 is routed (RFC 4475 3.1.2.16)."""
        return _via(text)

    @property
    def branch(self) -> str | None:
        """The branch as written; it identifies a transaction only if text follows the magic cookie (8.1.1.7)."""
        return self.param("branch") or None

    @property
    def names_transaction(self) -> bool:
        """True if the branch alone identifies the transaction; false for senders older than RFC 3261.

        The cookie alone is not an identifier (RFC 4475 3.2.1).
        """
        branch = self.branch or ""
        return branch.startswith(BRANCH_COOKIE) and len(branch) > len(BRANCH_COOKIE)

    @property
    def received(self) -> str | None:
        """The address the request came from, without brackets (RFC 3261 18.2.1)."""
        received = self.param("received")
        return received.strip("[]") if received else None

    @property
    def rport(self) -> int | None:
        """The port the request came from, if it has been filled in (RFC 3581 4)."""
        value = self.param("rport")
        return parse_number(value, 65_535, "Via rport") if value else None

    @property
    def wants_rport(self) -> bool:
        """True if ``rport`` has no value: the sender asks for it to be filled in (RFC 3581 3)."""
        return self.param("rport") == ""

    def param(self, name: str) -> str | None:
        """Return the value of a parameter, "" for one without a value, None if absent."""
        return find_param(self.params, name)

    def with_param(self, name: str, value: str | None) -> Via:
        """Return the Via with the parameter set, at its present place, else at the end."""
        return msgspec.structs.replace(self, params=set_param(self.params, name, value))

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"SIP/2.0/{self.transport} {bracketed(self.host)}{port}{format_params(self.params)}"


class NameAddr(msgspec.Struct, frozen=True):
    """A From, To, Contact, Route or Record-Route value (RFC 3261 20.10): display name, URI, header parameters."""

    display: str | None
    uri: SIPUri
    params: Params = ()

    @classmethod
    def parse(cls, text: str) -> NameAddr:
        """Read one name-addr or addr-spec; SIPParseError.

        Parameters after a bare addr-spec belong to the header, not to the URI (RFC 3261 20.10, RFC 4475 3.3.12).
        """
        return _name_addr(text)

    @property
    def tag(self) -> str | None:
        """The dialog tag (RFC 3261 19.3)."""
        return self.param("tag") or None

    def param(self, name: str) -> str | None:
        """Return the value of a header parameter, "" for one without a value, None if absent."""
        return find_param(self.params, name)

    def with_param(self, name: str, value: str | None) -> NameAddr:
        """Return the value with the parameter set, at its present place, else at the end."""
        return msgspec.structs.replace(self, params=set_param(self.params, name, value))

    def __str__(self) -> str:
        if self == CONTACT_STAR:
            return "*"
        display = "" if self.display is None else quoted(self.display) + " "
        return f"{display}<{self.uri}>{format_params(self.params)}"


@cached
def _via(text: str) -> Via:
    text = text.strip(" \t")
    found = _VIA.match(text)
    if not found:
        raise SIPParseError("Via: expected SIP/2.0/transport and a host")
    if found[1].upper() != "SIP":
        raise SIPParseError("Via: not SIP")
    host, port = parse_host_port(found[4].strip(" \t"), "Via")
    return Via(found[3].upper(), host, port, parse_params(text[found.end() :], "Via"))


@cached
def _name_addr(text: str) -> NameAddr:
    text = text.strip(" \t")
    display, address = _split_display(text)
    if not address.startswith("<"):
        bare = address.partition(";")[0]
        if "?" in bare or "," in bare:
            raise SIPParseError("address: a URI with ? or , must be enclosed in <>")
        return NameAddr(None, SIPUri.parse_any(bare.strip(" \t")), parse_params(address[len(bare) :], "address"))
    uri, bracket, rest = address[1:].partition(">")
    if not bracket:
        raise SIPParseError("address: < without >")
    return NameAddr(display, SIPUri.parse_any(uri), parse_params(rest, "address"))


CONTACT_STAR: Final = NameAddr(None, SIPUri("*", None, ""))
"""The Contact that means all bindings (RFC 3261 10.2.2); it is not an address."""


class CSeq(msgspec.Struct, frozen=True):
    """The number of a request within its dialog, and its method (RFC 3261 20.16)."""

    number: int
    method: str

    @classmethod
    def parse(cls, text: str) -> CSeq:
        """Read a CSeq; SIPParseError, also for a number of 2**31 or more (RFC 3261 8.1.1.5)."""
        words = text.replace("\t", " ").split(" ", 1)
        method = words[1].strip(" ") if len(words) == 2 else ""
        if not TOKEN.fullmatch(method):
            raise SIPParseError("CSeq: expected a number and a method")
        return cls(parse_number(words[0], CSEQ_MAX, "CSeq"), method)

    def __str__(self) -> str:
        return f"{self.number} {self.method}"


def split_list(text: str) -> list[str]:
    """Split a comma-separated list outside quotes and <>; empty items are left out (RFC 3261 7.3.1).

    SIPParseError if a quote or < is not closed.
    """
    items: list[str] = []
    position = 0
    while position < len(text):
        found = _ITEM.match(text, position)
        if not found:
            raise SIPParseError("a quote or < is not closed")
        if item := found[1].strip(" \t"):
            items.append(item)
        position = found.end()
    return items


def parse_params(text: str, what: str) -> Params:
    """Read ``*( ; name [= value] )`` to the end of ``text``; SIPParseError naming ``what``, also if a name repeats."""
    params: list[tuple[str, str | None]] = []
    text = text.rstrip(" \t")
    position = 0
    while position < len(text):
        found = _PARAM.match(text, position)
        if not found:
            raise SIPParseError(f"{what}: not a parameter")
        value = found[2]
        params.append((found[1], unquoted(value) if value is not None else None))
        position = found.end()
    if len({name.lower() for name, _ in params}) != len(params):
        raise SIPParseError(f"{what}: a parameter is given twice")
    return tuple(params)


def format_params(params: Params) -> str:
    """Return the parameters as text after a value, quoted where necessary."""
    return "".join(f";{name}" if value is None else f";{name}={_bare_or_quoted(value)}" for name, value in params)


def find_param(params: Params, name: str) -> str | None:
    """Return a parameter's value by name without regard to case: "" without a value, None if absent."""
    wanted = name.lower()
    return next((value or "" for key, value in params if key.lower() == wanted), None)


def set_param(params: Params, name: str, value: str | None) -> Params:
    """Return the parameters with one set, at its present place, else at the end."""
    if find_param(params, name) is None:
        return (*params, (name, value))
    wanted = name.lower()
    return tuple((key, value if key.lower() == wanted else old) for key, old in params)


def quoted(text: str) -> str:
    """Return ``text`` as a quoted-string (RFC 3261 25.1)."""
    return '"' + _TO_ESCAPE.sub(lambda found: "\\" + found[0], text) + '"'


def unquoted(text: str) -> str:
    """Return the content of a quoted-string, or ``text`` itself if it is not one."""
    found = _QUOTED.fullmatch(text)
    return _QUOTED_PAIR.sub(r"\1", found[1]) if found else text


def _bare_or_quoted(value: str) -> str:
    return value if _BARE_VALUE.fullmatch(value) else quoted(value)


def _split_display(text: str) -> tuple[str | None, str]:
    """Return the display name (None if absent) and the rest of the text."""
    if text.startswith('"'):
        found = _QUOTED.match(text)
        rest = text[found.end() :].lstrip(" \t") if found else ""
        if not found or not rest.startswith("<"):
            raise SIPParseError("address: a quote is not closed, or no <URI> follows it")
        return unquoted(found[0]), rest
    name = text.partition("<")[0]
    if len(name) == len(text) or ";" in name:
        return None, text
    if not _DISPLAY.fullmatch(name):
        raise SIPParseError("address: the display name must be quoted")
    return name.strip(" \t") or None, text[len(name) :]
