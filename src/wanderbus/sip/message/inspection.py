"""Verdict on received bytes: accept, refuse or discard (RFC 3261 8.2, 10.3, 16.3, 18.3; RFC 4475).

It uses ``parse_message`` and the checks of :mod:`.checks`, as the elements do, but no state of an element: bindings,
dialogs, transactions and passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.sip.message import checks
from wanderbus.sip.message.message import Message, Request, parse_message, read_for_reply, take_apart


class ElementRole(StrEnum):
    """Kind of element that receives the message."""

    UAS = "uas"
    REGISTRAR = "registrar"
    PROXY = "proxy"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Verdict of a ``role`` on a message.

    ``valid``: the message can be served; if not, ``reason`` names the fault. ``status`` is the status of the response;
    None means discard, or no response needed. A valid message has a status too if the response describes the element
    alone: 405 or 501 for a method that it does not serve, 401 for unreadable credentials. ``warnings`` then gives the
    cause, and lists the tolerated faults. ``message`` is None if the bytes cannot be parsed.
    """

    role: ElementRole
    valid: bool
    reason: str | None = None
    status: int | None = None
    warnings: tuple[str, ...] = ()
    message: Message | None = None

    def __str__(self) -> str:
        """Return "valid", "valid 405" (valid, but refused), "400" (refused as faulty) or "drop"."""
        answer = None if self.status is None else str(self.status)
        if self.valid:
            return "valid" if answer is None else f"valid {answer}"
        return answer or "drop"


_GMT_DATE: Final = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-9]{2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [0-9]{4} "
    r"[0-9]{2}:[0-9]{2}:[0-9]{2} GMT"
)


def inspect(data: bytes, role: ElementRole | None = None) -> Verdict:
    """Check one datagram as ``role`` would; never raises, whatever the bytes.

    Without a role, a REGISTER is checked as a registrar would, anything else as a user agent would.
    """
    try:
        message = parse_message(data)
    except SIPParseError as error:
        request = read_for_reply(data)
        role = role or (
            ElementRole.REGISTRAR if request is not None and request.method == "REGISTER" else ElementRole.UAS
        )
        status = None if request is None else error.status
        return Verdict(role=role, valid=False, reason=str(error), status=status)
    if isinstance(message, Request):
        role = role or (ElementRole.REGISTRAR if message.method == "REGISTER" else ElementRole.UAS)
        return _request_verdict(message, role, tuple(_tolerated(message, data)))
    role = role or ElementRole.UAS
    fault = checks.unforwardable(message) if role is ElementRole.PROXY else checks.misrouted(message)
    warnings = tuple(_tolerated(message, data))
    return Verdict(role=role, valid=fault is None, reason=fault, warnings=warnings, message=message)


def _request_verdict(request: Request, role: ElementRole, warnings: tuple[str, ...]) -> Verdict:
    match role:
        case ElementRole.UAS:
            refusal = checks.user_agent_refusal(request)
        case ElementRole.REGISTRAR:
            refusal = checks.registrar_refusal(request)
        case ElementRole.PROXY:
            refusal = checks.proxy_refusal(request)
    if refusal is None:
        return Verdict(role=role, valid=True, warnings=warnings, message=request)
    status = None if request.method == "ACK" else refusal.status
    if not refusal.faulty:
        return Verdict(role=role, valid=True, status=status, warnings=(*warnings, refusal.reason), message=request)
    return Verdict(role=role, valid=False, reason=refusal.reason, status=status, warnings=warnings, message=request)


def _tolerated(message: Message, data: bytes) -> Iterator[str]:
    """Yield the faults that are tolerated."""
    if not message.via.names_transaction:
        yield "Via: the branch is no transaction identifier; the rules of RFC 2543 identify the transaction"
    if message.from_.tag is None:
        yield "From: no tag (a sender older than RFC 3261)"
    if isinstance(message, Request) and message.max_forwards is None:
        yield "Max-Forwards is missing (a sender older than RFC 3261)"
    date = message.header("Date")
    if date is not None and not _GMT_DATE.fullmatch(date):
        yield "Date: not a date in GMT; it is not used"
    unread = len(take_apart(data)[2]) - len(message.body)
    if unread:
        yield f"{unread} bytes after the body were not read"
