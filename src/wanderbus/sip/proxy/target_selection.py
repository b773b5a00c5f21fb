"""Selection of the targets of a request, or of the response that refuses it (RFC 3261 16.5; SPEC D-07, I-03, X11).

The routing script decides first. If it leaves the choice to the proxy, the location service finds a user of the domain.
The name of another domain is a target if other domains are served at all; :mod:`.domain_crossing` decides who may send
there. Any other Request-URI is followed only within a dialog, and only if it is a contact registered here or if a Route
of ours led the request here, so that this is no open relay.

A device behind NAT is reached by the alias in its contact (:mod:`.nat_contacts`). The alias in a Request-URI may be as
old as the dialog, and that of the registration as old as its last refresh: if the two differ, and only one device
matches, the registration is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wanderbus.hosts import is_ip_address
from wanderbus.machine import Address
from wanderbus.sip.message.message import Request
from wanderbus.sip.message.targets import Target
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy import nat_contacts
from wanderbus.sip.proxy.anchoring import RelayCalls, wants_relay
from wanderbus.sip.proxy.bindings import Binding, Domain
from wanderbus.sip.proxy.decisions import Aim, Arrived, Refusal, Targets
from wanderbus.sip.proxy.location import LocationService
from wanderbus.sip.proxy.routing_script import (
    TARGETS_MAX,
    Forward,
    Redirect,
    Reject,
    RoutingContext,
    RoutingFailed,
    RoutingScript,
    consult,
)


class TargetSelector:
    """Chooses targets for the requests of one domain.

    ``knows`` returns whether a user exists, ``connected`` the open connection from an address behind NAT; ``relay``
    names the calls that pass a media relay, None if there is none; ``crosses`` is true if other domains are served.
    """

    def __init__(
        self,
        domain: Domain,
        location: LocationService,
        knows: Callable[[str], bool],
        routing: RoutingScript,
        connected: Callable[[Target], int | None],
        relay: RelayCalls | None,
        *,
        crosses: bool = False,
    ) -> None:
        self._relay = relay
        self._crosses = crosses
        self._domain = domain
        self._connected = connected
        self._location = location
        self._knows = knows
        self._routing = routing

    def select(self, arrived: Arrived, source: Address, now: float) -> Targets | Refusal:
        """Return the targets of the request at monotonic second ``now``, or its refusal.

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
            case Forward() as verdict:
                return self._forwarded(request, context, verdict)

    def _forwarded(self, request: Request, context: RoutingContext, verdict: Forward) -> Targets | Refusal:
        targets = verdict.targets
        aims = self._default_targets(request, context) if targets is None else self._found(targets, context.now)
        if isinstance(aims, Refusal):
            return aims
        # With a Route left the request goes there only, as one branch.
        aims = (Aim(aims[0].uri),) if request.routes else self._followed(aims)
        needed = (self._relay == "all" or context.behind_nat) if verdict.relay is None else verdict.relay
        relay = context.relay and (needed or (verdict.relay is None and context.wants_relay))
        return Targets(aims, verdict.stay_on_path or relay, relay, relay and not needed) if aims else Refusal(480)

    def _context(self, arrived: Arrived, source: Address, now: float) -> RoutingContext:
        uri = SIPUri.parse(arrived.request.uri)
        user = SIPUri.parse(uri.address_of_record).user if self._domain.serves(uri) else None
        contacts = self._location.contacts(self._domain.address_of_record(user), now) if user is not None else ()
        return RoutingContext(
            source=source,
            now=now,
            domain=self._domain.name,
            user=user,
            contacts=contacts,
            in_dialog=arrived.request.to.tag is not None,
            on_path=arrived.on_path,
            relay=self._relay is not None,
            wants_relay=wants_relay(arrived.request),
            behind_nat=self._is_behind_nat(arrived.request, source, contacts if user is not None else (uri,)),
        )

    def _is_behind_nat(self, request: Request, source: Address, peers: Sequence[str | SIPUri]) -> bool:
        """Return whether one side of ``request`` is behind NAT and this proxy has to handle that."""
        if nat_contacts.came_straight(request) and nat_contacts.is_behind_nat(request, source):
            return True
        uris = (peer if isinstance(peer, SIPUri) else SIPUri.parse(peer) for peer in peers)
        return not request.routes and any(nat_contacts.alias_target(uri) is not None for uri in uris)

    def _default_targets(self, request: Request, context: RoutingContext) -> tuple[Aim, ...] | Refusal:
        """Return the default targets of a request, if the script leaves the choice to the proxy."""
        uri = SIPUri.parse(request.uri)
        if not self._domain.serves(uri):
            binding = self._binding_at(uri, context.now) if context.in_dialog else None
            if binding is not None:
                return (Aim(nat_contacts.redirected(uri, SIPUri.parse(binding.contact)), binding.connection),)
            is_domain = self._crosses and uri.is_sip and not is_ip_address(uri.host)
            return (Aim(uri),) if context.on_path or is_domain else Refusal(403)
        if context.user is None or not self._knows(context.user):
            return Refusal(404)
        aims = self._devices(uri, context.user, context.now)
        return aims or Refusal(480)

    def _binding_at(self, uri: SIPUri, now: float) -> Binding | None:
        """Return the binding that ``uri`` names, or the one of its user that differs from it by the alias alone.

        Anybody can register the contact of another user, who would then be reached elsewhere: so a binding of another
        user counts only if it leads to the address in ``uri``.
        """
        target = nat_contacts.alias_target(uri)
        for binding in self._location.bindings_at(uri, now):
            if nat_contacts.alias_target(SIPUri.parse(binding.contact)) == target:
                return binding
        aor = self._domain.address_of_record(uri.user or "")
        same = [each for each in self._location.bindings(aor, now) if nat_contacts.is_same_device(uri, each.contact)]
        return same[0] if len(same) == 1 else None

    def _followed(self, aims: Sequence[Aim]) -> tuple[Aim, ...]:
        """Return ``aims`` with their aliases followed, without those that need a closed connection."""
        followed = []
        for aim in aims:
            target = nat_contacts.alias_target(aim.uri)
            connection = self._connected(target) if target is not None and target.reliable else None
            if target is None:
                followed.append(aim)
            elif connection is not None or not target.reliable:
                followed.append(Aim(nat_contacts.without_alias(aim.uri), connection, target))
        return tuple(followed)

    def _found(self, targets: Sequence[str], now: float) -> tuple[Aim, ...] | Refusal:
        """Return the targets of a script; a user of the domain means all devices of that user."""
        aims: dict[str, Aim] = {}
        for uri in map(SIPUri.parse, targets):
            user = SIPUri.parse(uri.address_of_record).user if self._domain.serves(uri) else None
            found = (Aim(uri),) if user is None else self._devices(uri, user, now)
            aims |= {str(aim.uri): aim for aim in found}
        return tuple(aims.values())[:TARGETS_MAX] or Refusal(480)

    def _devices(self, uri: SIPUri, user: str, now: float) -> tuple[Aim, ...]:
        """Return the contacts of ``user``, with TLS if ``uri`` asks for that (RFC 3261 26.2.2)."""
        bindings = self._location.bindings(self._domain.address_of_record(user), now)
        aims = tuple(Aim(SIPUri.parse(binding.contact), binding.connection) for binding in bindings)
        return tuple(aim for aim in aims if aim.uri.scheme == "sips" or uri.scheme != "sips")

    def _redirected(self, request: Request, context: RoutingContext, contacts: Sequence[str] | None) -> Refusal:
        if contacts is None:
            aims = self._default_targets(request, context)
            if isinstance(aims, Refusal):
                return aims
            contacts = [str(nat_contacts.without_alias(aim.uri)) for aim in aims]
        return Refusal(302, contacts=tuple(f"<{contact}>" for contact in contacts))
