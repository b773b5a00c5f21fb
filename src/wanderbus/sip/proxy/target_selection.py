"""Selection of the targets of a request, or of the response that refuses it (RFC 3261 16.5; SPEC D-07, I-03, X11).

The routing script decides first. If it leaves the choice to the proxy, the location service finds a user of the domain.
The name of another domain is a target if other domains are served at all; :mod:`.domain_crossing` decides who may send
there. Any other Request-URI is followed only within a dialog, and only if it is a contact registered here or if a Route
of ours led the request here, so that this is no open relay.

The access servers of an event domain share one address of record: :mod:`.access_choice` decides in which order they
are tried.

A device behind NAT is reached by the alias in its contact (:mod:`.nat_contacts`). The alias in a Request-URI may be as
old as the dialog, and that of the registration as old as its last refresh: if the two differ, and only one device
matches, the registration is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from wanderbus.hosts import canonical
from wanderbus.machine import Address
from wanderbus.sip.message.message import Request
from wanderbus.sip.message.targets import Target, target_of
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy import nat_contacts
from wanderbus.sip.proxy.access_choice import AccessChoice
from wanderbus.sip.proxy.access_policy import AccessRequest, RegisteredServer
from wanderbus.sip.proxy.anchoring import RelayCalls, wants_relay
from wanderbus.sip.proxy.bindings import Binding, Domain
from wanderbus.sip.proxy.decisions import Aim, ProxyRefusal, RequestArrived, Targets
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
    names the calls that pass a media relay, None if there is none; ``access`` orders the access servers; ``crosses``
    returns whether a URI leads to another domain that is served.
    """

    def __init__(
        self,
        domain: Domain,
        location: LocationService,
        knows: Callable[[str], bool],
        routing: RoutingScript,
        connected: Callable[[Target], int | None],
        relay: RelayCalls | None,
        access: AccessChoice,
        *,
        crosses: Callable[[SIPUri], bool] = lambda uri: False,
    ) -> None:
        self._relay = relay
        self._access = access
        self._crosses = crosses
        self._domain = domain
        self._connected = connected
        self._location = location
        self._knows = knows
        self._routing = routing

    def select(self, arrived: RequestArrived, source: Address, now: float) -> Targets | ProxyRefusal:
        """Return the targets of the request at monotonic second ``now``, or its refusal.

        Raises:
            SIPParseError: Request-URI or To cannot be read.
        """
        request = arrived.request
        if request.routes and not arrived.on_path:
            return ProxyRefusal(403)
        context = self._context(arrived, source, now)
        match consult(self._routing, request, context):
            case RoutingFailed() as failure:
                return ProxyRefusal(500, failure=failure)
            case Reject(status=status, reason=reason):
                return ProxyRefusal(status, reason)
            case Redirect(contacts=contacts):
                return self._redirected(request, context, contacts)
            case Forward() as verdict:
                return self._forwarded(request, context, verdict)

    def _forwarded(self, request: Request, context: RoutingContext, verdict: Forward) -> Targets | ProxyRefusal:
        targets = verdict.targets
        aims = self._default_targets(request, context) if targets is None else self._found(targets, request, context)
        if isinstance(aims, ProxyRefusal):
            return aims
        # With a Route left the request goes there only, as one branch.
        aims = (Aim(aims[0].uri),) if request.routes else self._followed(aims)
        needed = (self._relay == "all" or context.behind_nat) if verdict.relay is None else verdict.relay
        relay = context.relay and (needed or (verdict.relay is None and context.wants_relay))
        return Targets(aims, verdict.stay_on_path or relay, relay, relay and not needed) if aims else ProxyRefusal(480)

    def _context(self, arrived: RequestArrived, source: Address, now: float) -> RoutingContext:
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

    def _default_targets(self, request: Request, context: RoutingContext) -> tuple[Aim, ...] | ProxyRefusal:
        """Return the default targets of a request, if the script leaves the choice to the proxy."""
        uri = SIPUri.parse(request.uri)
        if not self._domain.serves(uri):
            binding = self._binding_at(uri, context.now) if context.in_dialog else self._server_at(uri, context.now)
            if binding is not None:
                return (Aim(nat_contacts.redirected(uri, SIPUri.parse(binding.contact)), binding.connection),)
            return (Aim(uri),) if context.on_path or self._crosses(uri) else ProxyRefusal(403)
        if context.user is None or not self._knows(context.user):
            return ProxyRefusal(404)
        aims = self._devices(uri, context.user, request, context)
        return aims or ProxyRefusal(480)

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

    def _server_at(self, uri: SIPUri, now: float) -> Binding | None:
        """Return the access server that ``uri`` names: another one redirects new calls to it."""
        if uri.user != self._access.user:
            return None
        bindings = self._location.bindings(self._domain.address_of_record(self._access.user), now)
        return next((each for each in bindings if nat_contacts.is_same_device(uri, each.contact)), None)

    def _followed(self, aims: Sequence[Aim]) -> tuple[Aim, ...]:
        """Return ``aims`` with their aliases followed, without those that need a closed connection."""
        followed = []
        for aim in aims:
            chain = [each for each in map(self._follow, (aim, *aim.others)) if each is not None]
            if chain:
                followed.append(msgspec.structs.replace(chain[0], others=tuple(chain[1:])))
        return tuple(followed)

    def _follow(self, aim: Aim) -> Aim | None:
        target = nat_contacts.alias_target(aim.uri)
        if target is None:
            return aim
        connection = self._connected(target) if target.reliable else None
        if connection is None and target.reliable:
            return None
        return Aim(nat_contacts.without_alias(aim.uri), connection, target, server=aim.server)

    def _found(
        self, targets: Sequence[str], request: Request, context: RoutingContext
    ) -> tuple[Aim, ...] | ProxyRefusal:
        """Return the targets of a script; a user of the domain means all devices of that user."""
        aims: dict[str, Aim] = {}
        for uri in map(SIPUri.parse, targets):
            user = SIPUri.parse(uri.address_of_record).user if self._domain.serves(uri) else None
            found = (Aim(uri),) if user is None else self._devices(uri, user, request, context)
            aims |= {str(aim.uri): aim for aim in found}
        return tuple(aims.values())[:TARGETS_MAX] or ProxyRefusal(480)

    def _devices(self, uri: SIPUri, user: str, request: Request, context: RoutingContext) -> tuple[Aim, ...]:
        """Return the contacts of ``user``, with TLS if ``uri`` asks for that (RFC 3261 26.2.2).

        Several access servers are one target: the first is chosen, and the others follow if it fails.
        """
        bindings = self._location.bindings(self._domain.address_of_record(user), context.now)
        found = [(each, Aim(SIPUri.parse(each.contact), each.connection)) for each in bindings]
        usable = [(each, aim) for each, aim in found if aim.uri.scheme == "sips" or uri.scheme != "sips"]
        if user == self._access.user:
            servers = {_server_name(each): aim for each, aim in usable if self._follow(aim) is not None}
            if len(servers) > 1:
                return (self._in_turn(servers, request, context),)
        return tuple(aim for _, aim in usable)

    def _in_turn(self, servers: Mapping[str, Aim], request: Request, context: RoutingContext) -> Aim:
        """Return the chosen access server, with the others to try after it."""
        begins = request.method == "INVITE" and not context.in_dialog
        caller = request.from_.uri.address_of_record
        asked = AccessRequest(caller, request.call_id, context.source[0], begins)
        known = [RegisteredServer(name, _addresses_of(aim.uri)) for name, aim in servers.items()]
        names = self._access.order(asked, known, context.now)
        first, *others = [msgspec.structs.replace(servers[name], server=name) for name in names]
        return msgspec.structs.replace(first, others=tuple(others))

    def _redirected(self, request: Request, context: RoutingContext, contacts: Sequence[str] | None) -> ProxyRefusal:
        if contacts is None:
            aims = self._default_targets(request, context)
            if isinstance(aims, ProxyRefusal):
                return aims
            each_in_turn = [each for aim in aims for each in (aim, *aim.others)]
            contacts = [str(nat_contacts.without_alias(each.uri)) for each in each_in_turn]
        return ProxyRefusal(302, contacts=tuple(f"<{contact}>" for contact in contacts))


def _server_name(binding: Binding) -> str:
    """Return the name of the access server of ``binding``: stable over its restarts if it has an instance."""
    return binding.instance or str(nat_contacts.without_alias(SIPUri.parse(binding.contact)))


def _addresses_of(contact: SIPUri) -> tuple[Address, ...]:
    """Return the address in ``contact``, and the one behind which a NAT hides it."""
    named = target_of(nat_contacts.without_alias(contact)).address
    alias = nat_contacts.alias_target(contact)
    addresses = (named,) if alias is None else (named, alias.address)
    return tuple((canonical(host), port) for host, port in addresses)
