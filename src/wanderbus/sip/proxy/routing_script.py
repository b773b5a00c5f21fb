"""Programmable routing: what the proxy does with a request is up to a script in Python (SPEC I-03).

A script is any object with a method ``route``. It is asked for every request that is not for the server itself, also
for those within a dialog, and once more for the ACK of an INVITE::

    class NightService:
        def route(self, request: Request, context: RoutingContext) -> Verdict:
            if context.user == "office" and not context.contacts:
                return Forward(targets=("sip:guard@192.0.2.7",))
            return Forward()

It runs within the server's loop, so it has to decide at once, from what it is given. A script that fails costs that
request a 500 and is reported; it never harms the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from wanderbus.errors import SIPParseError
from wanderbus.machine import Address, Output
from wanderbus.sip.message.message import Request
from wanderbus.sip.message.targets import target_of
from wanderbus.sip.message.uri import SIPUri

TARGETS_MAX: Final = 16
"""Targets of one verdict, as many as one user may have contacts."""

ERROR_CHARACTERS_MAX: Final = 200
"""Characters kept of a script's error."""


class Forward(msgspec.Struct, frozen=True):
    """Send the request on to all ``targets`` at once, SIP URIs; None: to where the location service finds the user.

    A target that is a user of the domain stands for the devices of that user. Any other needs an IP address as host, or
    the name of another domain if other domains are served and the sender is a user of ours.

    With ``stay_on_path`` the proxy adds Record-Route, so that the later requests of the dialog come by as well
    (RFC 3261 16.6 item 4); without it the two sides talk directly (SPEC D-09).

    ``relay`` says whether the data that this request agrees on go by a media relay, None leaves it to the settings:
    where one side is behind NAT or asks for it, or always. Where there is no relay it says nothing; where there is one
    that takes the call, the proxy stays on the path whatever ``stay_on_path`` says.
    """

    targets: tuple[str, ...] | None = None
    stay_on_path: bool = False
    relay: bool | None = None


class Redirect(msgspec.Struct, frozen=True):
    """Answer 302 with ``contacts``, SIP URIs; None: with those the location service has (RFC 3261 8.3, SPEC X11)."""

    contacts: tuple[str, ...] | None = None


class Reject(msgspec.Struct, frozen=True):
    """Answer ``status``, 300 to 699; ``reason`` None: the usual phrase."""

    status: int
    reason: str | None = None


Verdict = Forward | Redirect | Reject


class RoutingContext(msgspec.Struct, frozen=True):
    """What the proxy knows about a request beyond its text.

    ``source`` is where it came from and ``now`` the monotonic second. ``user`` is the user of ``domain`` that the
    Request-URI names, None for any other Request-URI; ``contacts`` are that user's live contacts, in the order to be
    tried; one behind NAT has the way back to it as ``alias`` (:mod:`.nat_contacts`). ``in_dialog`` says that To has a
    tag, ``on_path`` that a Route of ours brought the request here, ``behind_nat`` that one of its two sides is behind
    NAT, ``relay`` that there are media relays, ``wants_relay`` that the sender asks for one.
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
    """Decides what becomes of a request."""

    def route(self, request: Request, context: RoutingContext) -> Verdict:
        """Return what to do with ``request``."""
        ...


class DefaultRouting:
    """Every request goes to where the user is now, and the proxy steps aside where it can (SPEC D-07, D-09).

    It stays where one side is behind NAT, which only the proxy can reach; where there is a relay, for a side that moves
    behind NAT later; and where the two sides speak over different transports, of which each may lack the other's.
    """

    def route(self, request: Request, context: RoutingContext) -> Verdict:
        """Forward, whatever it is."""
        joins = _joins_transports(request, context.contacts)
        return Forward(stay_on_path=context.behind_nat or context.relay or joins)


class OnPathRouting:
    """The same, but the proxy stays on the path of every dialog.

    Most telephones need that over TCP and TLS: they take no connections, or name their end of the one to us as Contact.
    """

    def route(self, request: Request, context: RoutingContext) -> Verdict:
        """Forward, and be passed by the later requests of the dialog too."""
        return Forward(stay_on_path=True)


def _joins_transports(request: Request, contacts: Sequence[str]) -> bool:
    """Say whether ``request`` came over another transport than it leaves by for one of ``contacts``."""
    came = request.vias[0].transport.upper()
    return any(target_of(SIPUri.parse(contact)).transport != came for contact in contacts)


class RoutingFailed(Output, frozen=True):
    """The routing script raised, or returned what is no verdict, for a ``method`` request; it got a 500."""

    method: str
    error: str


def consult(script: RoutingScript, request: Request, context: RoutingContext) -> Verdict | RoutingFailed:
    """Return the verdict of ``script``, checked, or how it failed."""
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
