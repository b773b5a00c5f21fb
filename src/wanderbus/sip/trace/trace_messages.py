"""Messages of a trace for display: numbered, with a short label, selected by call and by user (SPEC U-06).

Reading is lenient, because traced bytes may not be a message at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.machine import Address
from wanderbus.sip.message.checks import SDP_TYPE, media_type_of
from wanderbus.sip.message.header_access import Headers
from wanderbus.sip.message.headers import TOKEN, CSeq
from wanderbus.sip.message.message import Request, take_apart
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.trace.trace import in_order
from wanderbus.sip.trace.trace_entry import TraceEntry

LABEL_CHARACTERS_MAX: Final = 48
"""Characters of one label; the rest is cut off."""

_STATUS: Final = re.compile(r"SIP/[^ ]*+ [1-9][0-9]{2}(?![0-9])", re.IGNORECASE)

Read = TypeVar("Read")


class Sketch(msgspec.Struct, frozen=True):
    """The readable parts of a message; None and empty if unreadable.

    ``label`` is one printable line: the method or the status, and the CSeq. ``method`` is that of a request, ``status``
    that of a response.
    """

    label: str
    start_line: str
    headers: Headers = ()
    body: bytes = b""
    method: str | None = None
    status: int | None = None
    call_id: str | None = None
    cseq: CSeq | None = None
    from_uri: SIPUri | None = None
    to_uri: SIPUri | None = None
    hops: int = 0
    """Number of Via fields: one means that the message has not left its sender yet."""


class TracedMessage(msgspec.Struct, frozen=True):
    """One message of a trace: ``number`` from 1 by time; ``again`` if the same bytes took the same path before."""

    number: int
    entry: TraceEntry
    sketch: Sketch
    again: bool = False

    @property
    def label(self) -> str:
        """The label of the message, marked if it is repeated."""
        return self.sketch.label + (" again" if self.again else "")


def traced_messages(entries: Iterable[TraceEntry]) -> list[TracedMessage]:
    """Return the messages of a trace by time, each once (see :func:`~wanderbus.sip.trace.trace.in_order`)."""
    found: list[TracedMessage] = []
    seen: set[tuple[Address, Address, bytes]] = set()
    for number, entry in enumerate(in_order(entries), 1):
        key = (entry.source, entry.destination, entry.data)
        found.append(TracedMessage(number, entry, sketch(entry.data), key in seen))
        seen.add(key)
    return found


def select(
    found: Iterable[TracedMessage],
    *,
    call_id: str | None = None,
    user: str | None = None,
    since_us: int | None = None,
    until_us: int | None = None,
) -> list[TracedMessage]:
    """Return the messages that meet every given condition; they keep their numbers.

    :param call_id: prefix of their Call-ID
    :param user: canonical URI of the user in From or To
    :param since_us: the earliest, in microseconds since the Unix epoch
    :param until_us: the latest
    """
    return [
        each
        for each in found
        if (call_id is None or (each.sketch.call_id or "").startswith(call_id))
        and (user is None or user in _users(each.sketch))
        and (since_us is None or each.entry.at_us >= since_us)
        and (until_us is None or each.entry.at_us <= until_us)
    ]


def sketch(data: bytes) -> Sketch:
    """Read the readable parts of one message; never raises."""
    try:
        start, headers, body = take_apart(data)
    except SIPParseError:
        first = printable(data.lstrip(b"\r\n").partition(b"\n")[0].rstrip(b"\r").decode(errors="replace"))
        return Sketch(f"{len(data)} bytes that are no message", first)
    loose = Request("", "", headers, body)
    cseq = _read(lambda: loose.cseq)
    method, status = _kind(start)
    has_sdp = bool(body) and media_type_of(loose.header("Content-Type")) == SDP_TYPE
    return Sketch(
        label=_label(start, method, status, cseq) + (" SDP" if has_sdp else ""),
        start_line=printable(start),
        headers=headers,
        body=body,
        method=method,
        status=status,
        call_id=_read(lambda: loose.call_id),
        cseq=cseq,
        from_uri=_read(lambda: loose.from_.uri),
        to_uri=_read(lambda: loose.to.uri),
        hops=len(_read(lambda: loose.headers_all("Via")) or ()),
    )


def printable(text: str) -> str:
    """Return ``text`` with characters escaped that a terminal would not show, or would execute."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "surrogatepass").decode() for letter in text
    )


def _users(sketched: Sketch) -> set[str]:
    return {uri.address_of_record for uri in (sketched.from_uri, sketched.to_uri) if uri is not None}


def _kind(start: str) -> tuple[str | None, int | None]:
    """Return the method or the status of a start line."""
    first, _, rest = start.partition(" ")
    if _STATUS.match(start):
        return None, int(rest[:3])
    return (first if rest and TOKEN.fullmatch(first) else None), None


def _label(start: str, method: str | None, status: int | None, cseq: CSeq | None) -> str:
    if status is not None:
        label = start.partition(" ")[2].strip() + (f" ({cseq.method} {cseq.number})" if cseq else "")
    elif method is not None:
        label = method + (f" {cseq.number}" if cseq else "")
    else:
        label = "a faulty message"
    label = printable(label)
    return label if len(label) <= LABEL_CHARACTERS_MAX else label[: LABEL_CHARACTERS_MAX - 3] + "..."


def _read(read: Callable[[], Read]) -> Read | None:
    try:
        return read()
    except SIPParseError:
        return None
