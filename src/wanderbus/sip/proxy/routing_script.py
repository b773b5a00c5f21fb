"""Programmable routing: a Python script decides the targets of each request (SPEC I-03).

A script is any object with a method ``route``. It is called for every request that is not for the server itself, also
for those within a dialog, and once more for the ACK of an INVITE::

    class NightService:
        def route(self, request: Request, context: RoutingContext) -> Verdict:
            if context.user == "office" and not context.contacts:
                return Forward(targets=("sip:guard@192.0.2.7",))
            return Forward()

It runs within the server's loop, so it must not block. If a script fails, that request gets a 500 and the failure is
reported; the server continues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.machine import Address, Output
from wanderbus.sip.message.message import Request
from wanderbus.sip.message.uri import SIPUri

TARGETS_MAX: Final = 16
"""Largest number of targets of one verdict, as many as one user may have contacts."""

ERROR_CHARACTERS_MAX: Final = 200
"""Largest length of a script's error in reports."""


class Forward(msgspec.Struct, frozen=True):
    """Forward the request to all ``targets`` at once, SIP URIs; None: to the user's contacts in the location service.

    A target that is a user of the domain means all devices of that user, or one of the access servers if they register
    under that name (:mod:`.access_choice`). Any other needs an IP address as host, or the name of another domain if
    other domains are served and the sender is a user of ours.

    With ``stay_on_path`` the proxy adds Record-Route, so that later requests of the dialog pass it as well (RFC 3261
    16.6 item 4); without it the two sides communicate directly (SPEC D-09).

    ``relay`` decides whether the data of this request pass a media relay. None leaves it to the settings: if one side
    is behind NAT or asks for it, or always. Without a relay it has no effect; with a relay that takes the call, the
    proxy stays on the path whatever ``stay_on_path`` is.
    """

    targets: tuple[str, ...] | None = None
    stay_on_path: bool = False
    relay: bool | None = None


class Redirect(msgspec.Struct, frozen=True):
    """Respond 302 with ``contacts``, SIP URIs; None: with those of the location service (RFC 3261 8.3, SPEC X11)."""

    contacts: tuple[str, ...] | None = None


class Reject(msgspec.Struct, frozen=True):
    """Respond ``status``, 300 to 699; ``reason`` None: the usual phrase."""

    status: int
    reason: str | None = None


Verdict = Forward | Redirect | Reject


class RoutingContext(msgspec.Struct, frozen=True):
    """Facts that the proxy knows about a request beyond its text.

    ``source`` is its source address and ``now`` the monotonic second. ``user`` is the user of ``domain`` in the
    Request-URI, None for any other Request-URI; ``contacts`` are that user's live contacts, in the order to be tried;
    one behind NAT has an ``alias`` (:mod:`.nat_contacts`). ``in_dialog``: To has a tag; ``on_path``: a Route of ours
    led the request here; ``behind_nat``: one of its two sides is behind NAT; ``relay``: there are media relays;
    ``wants_relay``: the sender asks for one.
    """

    source: Address
    now: float
    domain: str
    user: str | None
    contacts: tuple[str, ...]
    in_dialog: bool
    on_path: bool
    behind_nat: bool = False
    relay: bool = False
    wants_relay: bool = False


class RoutingScript(Protocol):
    """Decides how the proxy handles a request."""

    def route(self, request: Request, context: RoutingContext) -> Verdict:
        """Return the verdict on ``request``."""
        ...


class RoutingFailed(Output, frozen=True):
    """The routing script raised, or returned an invalid verdict, for a ``method`` request; it got a 500."""

    method: str
    error: str


def consult(script: RoutingScript, request: Request, context: RoutingContext) -> Verdict | RoutingFailed:
    """Return the checked verdict of ``script``, or its failure."""
    try:
        verdict = script.route(request, context)
        fault = _fault(verdict)
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    return RoutingFailed(request.method, fault[:ERROR_CHARACTERS_MAX]) if fault else verdict


def _fault(verdict: object) -> str:
    match verdict:
        case Forward(targets=None) | Redirect(contacts=None):
            return ""
        case Forward(targets=uris) | Redirect(contacts=uris):
            return _fault_of_uris(uris or ())
        case Reject(status=int(status), reason=reason) if 300 <= status <= 699:
            return "" if reason is None or reason.isprintable() else "a reason that is not one line"
        case _:
            return f"not a verdict: {verdict!r}"


def _fault_of_uris(uris: Sequence[str]) -> str:
    if not 0 < len(uris) <= TARGETS_MAX:
        return f"{len(uris)} URIs, not 1 to {TARGETS_MAX}"
    try:
        for uri in uris:
            SIPUri.parse(uri)
    except SIPParseError as error:
        return f"{error}"
    return ""
