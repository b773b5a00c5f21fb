"""Where a request goes, or why it goes nowhere (RFC 3261 16.5; SPEC D-07, I-03, X11).

The routing script has the first word. Where it leaves the choice to the proxy, a user of the domain is found through
the location service; any other Request-URI is followed only within a dialog, and only if it is a contact registered
here or a Route of ours brought the request, so that this is no open relay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from wanderbus.machine import Address
from wanderbus.sip.location import Domain, LocationService
from wanderbus.sip.message import Request
from wanderbus.sip.request_preparation import Arrived
from wanderbus.sip.routing import (
    TARGETS_MAX,
    Forward,
    Redirect,
    Reject,
    RoutingContext,
    RoutingFailed,
    RoutingScript,
    consult,
)
from wanderbus.sip.uri import SIPUri


class Aim(msgspec.Struct, frozen=True):
    """One target, and the ``connection`` that its device keeps open to us, if any (RFC 5626)."""

    uri: SIPUri
    connection: int | None = None


class Targets(msgspec.Struct, frozen=True):
    """Send the request to all ``aims``, at least one; ``stay_on_path`` asks for a Record-Route."""

    aims: tuple[Aim, ...]
    stay_on_path: bool


class Refusal(msgspec.Struct, frozen=True):
    """Answer the request here; ``failure`` is the script's, if that is why."""

    status: int
    reason: str | None = None
    contacts: tuple[str, ...] = ()
    failure: RoutingFailed | None = None


class TargetSelector:
    """Chooses targets for the requests of one domain; ``knows`` says whether a user exists."""

    def __init__(
        self, domain: Domain, location: LocationService, knows: Callable[[str], bool], routing: RoutingScript
    ) -> None:
        self._domain = domain
        self._location = location
        self._knows = knows
        self._routing = routing

    def select(self, arrived: Arrived, source: Address, now: float) -> Targets | Refusal:
        """Return where the request goes at monotonic second ``now``.

        Raises:
            SIPParseError: Request-URI or To cannot be read.
        """
        request = arrived.request
        if request.routes and not arrived.on_path:
            return Refusal(403)
        context = self._context(arrived, source, now)
        match consult(self._routing, request, context):
            case RoutingFailed() as failure:
                return Refusal(500, failure=failure)
            case Reject(status=status, reason=reason):
                return Refusal(status, reason)
            case Redirect(contacts=contacts):
                return self._redirected(request, context, contacts)
            case Forward(targets=targets, stay_on_path=stay_on_path):
                aims = self._usual(request, context) if targets is None else self._found(targets, now)
                if isinstance(aims, Refusal):
                    return aims
                # With a Route left the request goes there, and there once.
                return Targets((Aim(aims[0].uri),) if request.routes else aims, stay_on_path)

    def _context(self, arrived: Arrived, source: Address, now: float) -> RoutingContext:
        uri = SIPUri.parse(arrived.request.uri)
        user = SIPUri.parse(uri.address_of_record).user if self._domain.serves(uri) else None
        return RoutingContext(
            source=source,
            now=now,
            domain=self._domain.name,
            user=user,
            contacts=self._location.contacts(self._domain.address_of_record(user), now) if user is not None else (),
            in_dialog=arrived.request.to.tag is not None,
            on_path=arrived.on_path,
        )

    def _usual(self, request: Request, context: RoutingContext) -> tuple[Aim, ...] | Refusal:
        """Return the targets of a request about which the script said nothing."""
        uri = SIPUri.parse(request.uri)
        if not self._domain.serves(uri):
            binding = self._location.binding_at(uri, context.now) if context.in_dialog else None
            if binding is not None:
                return (Aim(uri, binding.connection),)
            return (Aim(uri),) if context.on_path else Refusal(403)
        if context.user is None or not self._knows(context.user):
            return Refusal(404)
        aims = self._devices(uri, context.user, context.now)
        return aims or Refusal(480)

    def _found(self, targets: Sequence[str], now: float) -> tuple[Aim, ...] | Refusal:
        """Return the targets of a script; one that is a user of the domain stands for the devices of that user."""
        aims: dict[str, Aim] = {}
        for uri in map(SIPUri.parse, targets):
            user = SIPUri.parse(uri.address_of_record).user if self._domain.serves(uri) else None
            found = (Aim(uri),) if user is None else self._devices(uri, user, now)
            aims |= {str(aim.uri): aim for aim in found}
        return tuple(aims.values())[:TARGETS_MAX] or Refusal(480)

    def _devices(self, uri: SIPUri, user: str, now: float) -> tuple[Aim, ...]:
        """Return where ``user`` is reached, safely if ``uri`` asks for that (RFC 3261 26.2.2)."""
        bindings = self._location.bindings(self._domain.address_of_record(user), now)
        aims = tuple(Aim(SIPUri.parse(binding.contact), binding.connection) for binding in bindings)
        return tuple(aim for aim in aims if aim.uri.scheme == "sips" or uri.scheme != "sips")

    def _redirected(self, request: Request, context: RoutingContext, contacts: Sequence[str] | None) -> Refusal:
        if contacts is None:
            aims = self._usual(request, context)
            if isinstance(aims, Refusal):
                return aims
            contacts = [str(aim.uri) for aim in aims]
        return Refusal(302, contacts=tuple(f"<{contact}>" for contact in contacts))
