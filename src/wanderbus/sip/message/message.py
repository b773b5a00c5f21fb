"""SIP messages: parsing, encoding, and responses to a request (RFC 3261 7, 8.2.6, 18.3, 25.1).

Parsing is strict where ambiguity could be exploited (framing, repeated single fields, quotes) and lenient where RFC
4475 demands it (folding, compact forms, white space, unknown parts). A parsed message has been checked: its typed
shortcuts do not raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from wanderbus.errors import LocalProtocolError, SIPParseError
from wanderbus.limits import SIP_HEAD_BYTES_MAX, SIP_HEADERS_MAX, SIP_MESSAGE_BYTES_MAX
from wanderbus.sip.message.header_access import LIST_FIELDS, HeaderAccess, Headers, canonical_name
from wanderbus.sip.message.headers import TOKEN, NameAddr, names_a_hop
from wanderbus.sip.message.uri import SIPUri, parse_number
from wanderbus.sip.message.words import REASONS, shared

_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_LINE_END: Final = re.compile(r"\r?\n")
_LINE_END_BYTES: Final = re.compile(rb"\r?\n")
_STRAY_RETURN: Final = re.compile(rb"\r(?!\n)")
_NAME_SHOWN_MAX: Final = 32
_VERSION: Final = re.compile(r"SIP/[0-9]{1,9}+\.[0-9]{1,9}+", re.IGNORECASE)
_STATUS: Final = re.compile(r"[1-6][0-9][0-9]")
_URI_PASSWORD: Final = re.compile(r"([^:]*+:[^:@]*+:)[^@]*+@")
_ONLY_ONCE: Final = ("From", "To", "Call-ID", "CSeq", "Max-Forwards", "Content-Length", "Content-Type", "Expires")
_STRUCTURED_LISTS: Final = {"Via", "Contact", "Route", "Record-Route"}
_DIALOG_MAKING: Final = ("INVITE", "SUBSCRIBE", "REFER")

METHODS: Final = (
    *("ACK", "BYE", "CANCEL", "INFO", "INVITE", "MESSAGE", "NOTIFY"),
    *("OPTIONS", "PRACK", "PUBLISH", "REFER", "REGISTER", "SUBSCRIBE", "UPDATE"),
)
"""Every registered method: an element recognizes them, whether or not it serves them (RFC 3261 8.2.1, 27.4)."""

NOT_IMPLEMENTED: Final = 501
VERSION_NOT_SUPPORTED: Final = 505
MESSAGE_TOO_LARGE: Final = 513


class Request(HeaderAccess, msgspec.Struct, frozen=True):
    """A request. ``uri`` is the Request-URI as written; Content-Length is not kept in ``headers``."""

    method: str
    uri: str
    headers: Headers
    body: bytes = b""

    def __repr__(self) -> str:
        secret = _URI_PASSWORD.match(self.uri)
        uri = self.uri if secret is None else f"{secret[1]}***@{self.uri[secret.end() :]}"
        return f"Request({self.method} {uri}, {_summary(self)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("message", repr(self))]


class Response(HeaderAccess, msgspec.Struct, frozen=True):
    """A response. ``reason`` may be empty; Content-Length is not kept in ``headers``."""

    status: int
    reason: str
    headers: Headers
    body: bytes = b""

    def __repr__(self) -> str:
        return f"Response({self.status} {self.reason}, {_summary(self)})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("message", repr(self))]


Message = Request | Response


def parse_message(data: bytes) -> Message:
    """Parse one datagram (RFC 3261 18.3).

    A body shorter than its Content-Length is an error; bytes beyond it are ignored. Raises SIPParseError with the
    status of the response (400, 501, 505, 513), or None if no response is due: to a response, to an ACK, to an empty
    datagram.
    """
    if len(data) > SIP_MESSAGE_BYTES_MAX:
        raise SIPParseError(f"message: more than {SIP_MESSAGE_BYTES_MAX} bytes", MESSAGE_TOO_LARGE)
    try:
        _check_head_size(data)
        message = _assemble(*take_apart(data))
        _check(message)
    except SIPParseError as error:
        if data.lstrip(b"\r\n")[:4].upper() in (b"SIP/", b"ACK ", b""):
            error.status = None
        raise
    return message


def _check_head_size(data: bytes) -> None:
    if len(data) > SIP_HEAD_BYTES_MAX and _HEAD_END.search(data, 0, SIP_HEAD_BYTES_MAX) is None:
        raise SIPParseError(f"message: more than {SIP_HEAD_BYTES_MAX} bytes of header fields", MESSAGE_TOO_LARGE)


def read_for_reply(data: bytes) -> Request | None:
    """Parse only as much of a faulty request as a response needs (RFC 3261 8.2.6.2, 16.3); None if too little is
    readable.

    The top Via must name a hop, and CSeq must be present: the sender finds its transaction by them. An ACK gives None.
    From, To or Call-ID may be missing (RFC 4475 3.3.1). Other fields may be unreadable, also the parameters of the Via
    (3.1.2.1): then ``request.via`` raises SIPParseError, and only the source of the datagram is known. Lines that are
    not header fields are left out.
    """
    data = data[:SIP_MESSAGE_BYTES_MAX].lstrip(b"\r\n")
    found = _HEAD_END.search(data)
    if not found:
        return None
    start, fields, _ = legible(data[: found.start()])
    method, _, uri = start.partition(" ")
    request = Request(method, uri.partition(" ")[0], fields)
    if method == "ACK" or not TOKEN.fullmatch(method) or request.header("CSeq") is None:
        return None
    return request if names_a_hop(request.header("Via") or "") else None


def take_apart(data: bytes) -> tuple[str, Headers, bytes]:
    """Return the start line, the unfolded fields under their usual names, and all bytes after the empty line.

    SIPParseError if there is no empty line, or if the text before it is not a list of header fields.
    """
    data = data.lstrip(b"\r\n")
    found = _HEAD_END.search(data)
    if not found:
        raise SIPParseError("message: no empty line after the header fields")
    raw = data[: found.start()]
    if stray := _STRAY_RETURN.search(raw):
        raise SIPParseError(f"{_line_at(raw, stray.start())}: a carriage return within the line")
    try:
        head = raw.decode()
    except UnicodeDecodeError as error:
        raise SIPParseError(f"{_line_at(raw, error.start)}: not UTF-8") from None
    start, *lines = _LINE_END.split(head)
    groups = _grouped(lines)
    if len(groups) > SIP_HEADERS_MAX:
        raise SIPParseError(f"message: more than {SIP_HEADERS_MAX} header fields")
    return start, tuple(map(_field, groups)), data[found.end() :]


def legible(head: bytes) -> tuple[str, Headers, tuple[str, ...]]:
    """Return the start line, the readable fields, and the lines that are not fields.

    ``head`` is the text before the empty line. Of a field, only the name is checked.
    """
    start, *lines = (_decoded(line) for line in _LINE_END_BYTES.split(head))
    fields: list[tuple[str, str]] = []
    others: list[str] = []
    for group in _grouped(lines, strict=False)[:SIP_HEADERS_MAX]:
        try:
            fields.append(_field(group))
        except SIPParseError:
            others += group
    return start, tuple(fields), tuple(others)


def encode_message(message: Message) -> bytes:
    """Write a message, with its Content-Length. LocalProtocolError if a field would break its line."""
    match message:
        case Request(method=method, uri=uri):
            start = f"{method} {uri} SIP/2.0"
        case Response(status=status, reason=reason):
            start = f"SIP/2.0 {status} {reason}"
    lines = [start]
    lines += [f"{name}: {value}" for name, value in message.headers if canonical_name(name) != "Content-Length"]
    lines.append(f"Content-Length: {len(message.body)}")
    head = "\r\n".join(lines)
    if head.count("\r") != len(lines) - 1 or head.count("\n") != len(lines) - 1:
        raise LocalProtocolError("message: a line break within a header field")
    return f"{head}\r\n\r\n".encode() + message.body


def make_response(
    request: Request,
    status: int,
    reason: str | None = None,
    *,
    to_tag: str | None = None,
    headers: Sequence[tuple[str, str]] = (),
    body: bytes = b"",
) -> Response:
    """Make a response to a request (RFC 3261 8.2.6.2): Via, From, To, Call-ID and CSeq are copied.

    ``to_tag`` is added unless the request has one or the status is 100. Record-Route is copied if the response creates
    a dialog (12.1.1), Timestamp if it is a 100 (8.2.6.1).
    """
    copied = ["Via", "From", "To", "Call-ID", "CSeq"]
    if request.method in _DIALOG_MAKING and 100 < status < 300:
        copied.append("Record-Route")
    if status == 100:
        copied.append("Timestamp")
    fields = [(name, value) for name, value in request.headers if canonical_name(name) in copied]
    if to_tag is not None and status != 100:
        fields = [(name, _tagged(value, to_tag) if canonical_name(name) == "To" else value) for name, value in fields]
    fields += [(canonical_name(name), value) for name, value in headers]
    return Response(status, REASONS.get(status, "") if reason is None else reason, tuple(fields), body)


def _grouped(lines: list[str], *, strict: bool = True) -> list[list[str]]:
    """Return the lines of each header field, which may be folded (RFC 3261 7.3.1)."""
    groups: list[list[str]] = []
    for line in lines:
        if line[:1] not in (" ", "\t"):
            groups.append([line])
        elif groups:
            groups[-1].append(line)
        elif strict:
            raise SIPParseError("message: the start line is folded")
        else:
            groups.append([line])
    return groups


def _field(group: list[str]) -> tuple[str, str]:
    """Return one field under its usual name; SIPParseError quotes the text at the place of the name."""
    name, colon, first = group[0].partition(":")
    name = name.rstrip(" \t")
    if not colon or not TOKEN.fullmatch(name):
        raise SIPParseError(f"{_shown(name)}: not a header field")
    parts = [part.strip(" \t") for part in (first, *group[1:])]
    return canonical_name(name), " ".join(part for part in parts if part)


def _shown(line: str) -> str:
    """Return the first token of ``line``, which may be a field name, and nothing of the text after it."""
    word = TOKEN.match(line)
    return "a line" if word is None else canonical_name(word[0][:_NAME_SHOWN_MAX])


def _line_at(head: bytes, position: int) -> str:
    line = head[:position].rpartition(b"\n")[2]
    return _shown(line.decode(errors="replace"))


def _decoded(line: bytes) -> str:
    """Return ``line`` as text; a line that is not UTF-8 is marked as no field, and remains a continuation line."""
    try:
        text, readable = line.decode(), b"\r" not in line
    except UnicodeDecodeError:
        text, readable = line.decode(errors="replace"), False
    if readable:
        return text
    text = text.replace("\r", "?")
    return f" ?{text}" if text[:1] in (" ", "\t") else f"?{text}"


def _assemble(start: str, fields: Headers, body: bytes) -> Message:
    lengths = [value for name, value in fields if name == "Content-Length"]
    if len(lengths) > 1:
        raise SIPParseError("Content-Length is given more than once")
    if lengths:
        length = parse_number(lengths[0], SIP_MESSAGE_BYTES_MAX, "Content-Length")
        if length > len(body):
            raise SIPParseError("Content-Length: larger than the body")
        body = body[:length]
    headers = tuple(field for field in fields if field[0] != "Content-Length")
    if start[:4].upper() == "SIP/":
        return _response(start, headers, body)
    return _request(start, headers, body)


def _request(start: str, headers: Headers, body: bytes) -> Request:
    words = start.split(" ")
    if len(words) != 3 or not TOKEN.fullmatch(words[0]):
        raise SIPParseError("Request-Line: expected a method, a URI and a version with one space between")
    method, uri, version = words
    if not _VERSION.fullmatch(version):
        raise SIPParseError("Request-Line: no SIP version")
    if version.upper() != "SIP/2.0":
        raise SIPParseError("Request-Line: not SIP/2.0", VERSION_NOT_SUPPORTED)
    if SIPUri.parse_any(uri).headers:
        raise SIPParseError("Request-URI: it must not have header fields")
    return Request(shared(method), uri, headers, body)


def _response(start: str, headers: Headers, body: bytes) -> Response:
    version, _, rest = start.partition(" ")
    status, _, reason = rest.partition(" ")
    if version.upper() != "SIP/2.0" or not _STATUS.fullmatch(status):
        raise SIPParseError("Status-Line: expected SIP/2.0 and a status of three digits")
    return Response(int(status), reason, headers, body)


def _check(message: Message) -> None:
    """Read every typed shortcut and list, and check mandatory fields (RFC 3261 8.1.1, 16.3; RFC 4475 3.3.8)."""
    for name in _ONLY_ONCE:
        if sum(key == name for key, _ in message.headers) > 1:
            raise SIPParseError(f"{name} is given more than once")
    vias = message.vias
    if not vias:
        raise SIPParseError("Via is missing")
    for via in vias:
        _ = via.rport
    for name, read in _TYPED.items():
        _named(name, read, message)
    for name in {name for name, _ in message.headers} & LIST_FIELDS - _STRUCTURED_LISTS:
        _named(name, lambda each, name=name: each.headers_all(name), message)  # type: ignore[misc]
    cseq = message.cseq
    if isinstance(message, Request) and cseq.method != message.method:
        # An unknown method may have its own rules for CSeq, so the fault is the method (RFC 4475 3.1.2.18).
        status = 400 if message.method in METHODS else NOT_IMPLEMENTED
        raise SIPParseError("CSeq: its method is not the request's", status)


_TYPED: Final[Mapping[str, Callable[[Message], object]]] = {
    "From": lambda message: message.from_,
    "To": lambda message: message.to,
    "Call-ID": lambda message: message.call_id,
    "Max-Forwards": lambda message: message.max_forwards,
    "Expires": lambda message: message.expires,
    "Contact": lambda message: message.contacts,
    "Route": lambda message: message.routes,
    "Record-Route": lambda message: message.record_routes,
}
"""The typed shortcuts of a message, except Via and CSeq."""


def _named(name: str, read: Callable[[Message], object], message: Message) -> None:
    """Call ``read``; add the name of the header field to its error."""
    try:
        read(message)
    except SIPParseError as error:
        if str(error).startswith(name):
            raise
        raise SIPParseError(f"{name}: {error}", error.status) from None


def _tagged(to: str, tag: str) -> str:
    """Add a tag to a To value as written, which may be unreadable."""
    try:
        address = NameAddr.parse(to)
    except SIPParseError:
        return to
    return to if address.tag else str(address.with_param("tag", tag))


def _summary(message: HeaderAccess) -> str:
    """Return a summary that identifies a message, without the fields that hold credentials."""
    shown = [f"{name} {message.header(name)}" for name in ("Call-ID", "CSeq")]
    return ", ".join([*shown, f"{len(message.headers)} header fields"])


class Fed(msgspec.Struct, frozen=True):
    """Result of feeding one piece of a stream.

    ``error``: the reason why nothing after ``messages`` can be read.
    """

    messages: tuple[bytes, ...] = ()
    pings: int = 0
    pongs: int = 0
    error: SIPParseError | None = None
