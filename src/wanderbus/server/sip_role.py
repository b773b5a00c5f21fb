"""Registrar and proxy of one domain on one address (DESIGN 2)."""

from __future__ import annotations

import errno
import logging
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from wanderbus.config import ProxySettings
from wanderbus.errors import ConfigurationError
from wanderbus.machine import Address, Machine, Output, shown
from wanderbus.metrics import Sample, counted
from wanderbus.parameters.signalling import LoginLimits
from wanderbus.relay import NG_SOCKET
from wanderbus.relay.ng_client import RelayDriver
from wanderbus.relay.ng_client_messages import RelayFound, RelayLost
from wanderbus.runtime.files.kept_key import kept_key
from wanderbus.runtime.files.registrations import Registrations
from wanderbus.runtime.files.server_files import unusable
from wanderbus.runtime.net.tls import client_tls, peer_tls, server_tls
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.server import validation
from wanderbus.server.access_settings import access_policy
from wanderbus.server.domain_settings import name_servers, other_domains
from wanderbus.server.ports import Bound, Port, SIPPort, UdpPort
from wanderbus.server.relay_role import RelayRole
from wanderbus.server.role import HostOffer, Role
from wanderbus.sip.authentication.digest import Secret
from wanderbus.sip.message.targets import uri_at
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.proxy.bindings import BindingsWritten
from wanderbus.sip.proxy.default_routing import OnPathRouting
from wanderbus.sip.proxy.domain_servers import FindDomain
from wanderbus.sip.proxy.routing_script import RoutingFailed, RoutingScript
from wanderbus.sip.proxy.sip_server import SIPServer
from wanderbus.sip.transaction.flood_limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from wanderbus.runtime.net.domain_resolver import DomainResolver

_log = logging.getLogger("wanderbus.sip")

SIP_SOCKET: Final = "sip"
"""Name of the socket of registrar and proxy in its machine."""

_NOBODYS_DROPS: Final = ("unreadable", "unframed", "unfinished", "no transport")
"""Reasons of drops that no limit causes; drops because of a limit are reported with their party."""

KEY_FILE = "sip.key"
"""Name of the secret's file in the data directory; by it the proxy recognises its dialogs after a restart."""


class SIPRole(Role):
    """Registrar and proxy.

    :param secrets: the secret of each user
    :param relay: the media relay of this process, which starts before this role
    :param lodger: returns the instance that registers from this process; its stored binding is discarded
    :param make_visit_key: returns the key by which servers of the domain recognise calls of their users to other
        domains, from the secret of this proxy; None proves no calls
    """

    name = "SIP server"

    def __init__(
        self,
        settings: ProxySettings,
        secrets: Mapping[str, Secret],
        *,
        routing: RoutingScript | None = None,
        relay: RelayRole | None = None,
        lodger: Callable[[], str] = lambda: "",
        make_visit_key: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._settings = settings
        self._secrets = secrets
        self._routing = routing
        self._relay = relay
        self._lodger = lodger
        self._make_visit_key = make_visit_key
        self.reads_clock = settings.domains is not None and make_visit_key is not None
        self.visit_key = b""
        """The key, once opened; empty if it proves no calls."""
        self.address: Address = (settings.host, settings.port)
        """Address of registrar and proxy for UDP and TCP, once started."""
        self.tls_address: Address | None = None
        """Their address for TLS, once started; None without a certificate."""
        self.machine: SIPServer | None = None
        """The machine, once started."""
        self._advertised: dict[str, Address] = {}
        self._key = b""
        self._registrations: Registrations | None = None
        self._resolver: DomainResolver | None = None
        self._relays: Sequence[Address] = ()
        self._commands_from = ""

    async def open(self, offer: HostOffer) -> None:
        """Open the stored registrations; :class:`StorageError` if the data directory cannot be used."""
        assert offer.directory is not None
        self._offer = offer
        try:
            self._key = kept_key(offer.directory / KEY_FILE)
        except OSError as error:
            raise unusable(offer.directory, error) from None
        if self._make_visit_key is not None:
            self.visit_key = self._make_visit_key(self._key)
        self._registrations = Registrations.open(offer.directory / "registrations.db")

    def ports(self) -> Sequence[Port]:
        """Return the socket for SIP, and with relays the one that commands them."""
        settings = self._settings
        secure, peers = self._contexts()
        sip = SIPPort(
            name=SIP_SOCKET,
            host=settings.host,
            port=settings.port,
            tcp=settings.tcp,
            tls_port=settings.tls_port,
            server_tls=secure,
            client_tls=None if secure is None else client_tls(),
            peer_tls=peers,
            limits=settings.sip_connections,
        )
        self._relays = validation.relay_addresses(settings) if self._relay is None else [self._relay.ng_address]
        if not self._relays:
            return [sip]
        self._commands_from = _near(settings.host, self._relays)
        return [sip, UdpPort(name=NG_SOCKET, host=self._commands_from, port=0)]

    def port_error(self, port: Port, error: OSError) -> ConfigurationError:
        """Return the error for one of these sockets."""
        if port.name == NG_SOCKET:
            return ConfigurationError(f"relays: cannot open a socket for commands on {port.host}: {error.strerror}")
        option = "--tls-port" if str(error.filename).startswith("TLS") else "--port"
        advice = f"give another with {option}"
        if error.errno == errno.EADDRNOTAVAIL:
            advice = "give an address of this machine with --host, and the one that others reach with --advertise"
        return ConfigurationError(f"{error.filename} cannot be used: {error.strerror}; {advice}")

    def make_machine(self, bound: Mapping[str, Bound]) -> Machine:
        """Return the machine of registrar and proxy."""
        settings = self._settings
        self.address, streams = bound[SIP_SOCKET].address, bound[SIP_SOCKET].streams
        self.tls_address = streams.get("TLS")
        host = settings.advertise or self.address[0]
        streams = {kind: (host, port) for kind, (_, port) in streams.items()}
        self._advertised = {"UDP": (host, self.address[1]), **streams}
        relaying: dict[str, Any] = {}
        if self._relays:
            relaying = {"media": RelayDriver(self._relays, SystemRandom()), "relay_calls": settings.relay_calls}
        machine = self.machine = SIPServer(
            settings.domain.lower(),
            self._advertised["UDP"],
            self._secrets.get,
            SystemRandom(),
            self._key,
            streams=streams,
            routing=self._routing or (OnPathRouting() if settings.stay_on_path else None),
            algorithms=settings.digest_algorithms,
            flood=settings.flood or DEFAULT_LIMITS,
            logins=settings.logins or LoginLimits(),
            others=other_domains(settings),
            edge_proxies=[str(ip_address(each)) for each in settings.edge_proxies],
            access=access_policy(settings),
            visit_key=self.visit_key,
            **relaying,
        )
        self._offer.refusals.counted["sip"] = lambda: {name: machine.drops.get(name, 0) for name in _NOBODYS_DROPS}
        if settings.domains is not None and settings.domains.lookup:
            from wanderbus.runtime.net.domain_resolver import DomainResolver  # its library takes 0.3 s

            version = ip_address(self.address[0]).version
            servers = name_servers(settings.domains)
            self._resolver = DomainResolver(self._offer.feed, name_servers=servers, ip_version=version)
        return machine

    def contacts_of(self, uri: str) -> tuple[str, ...]:
        """Return the SIP URIs at which the user of ``uri`` is reached through the proxy, one for each transport."""
        user = SIPUri.parse(uri).user
        return tuple(uri_at(user, address, transport) for transport, address in self._advertised.items())

    def begin(self, now: float) -> Sequence[Output]:
        """Restore the registrations."""
        assert self.machine is not None
        assert self._registrations is not None
        return self._registrations.restore_into(self.machine, without=self._lodger())

    def metrics(self) -> Iterable[Sample]:
        """Return the samples of registrar and proxy."""
        assert self.machine is not None
        yield Sample("sip_users", len(self.machine.location))
        yield Sample("sip_transactions", self.machine.transaction_count)
        yield from counted("sip_dropped_total", self.machine.drops)

    def report(self, output: Output) -> None:
        """Store registrations, look up domains, and log failures of others."""
        match output:
            case BindingsWritten(aor=aor, bindings=bindings):
                if self._registrations is not None:
                    self._registrations.note(aor, bindings)
            case FindDomain():
                if self._resolver is not None:
                    self._resolver.find(output)
            case RoutingFailed(method=method, error=error):
                _log.warning("the routing script failed for %s: %s", method, error)
            case RelayLost(address=address):
                _log.warning(
                    "the media relay %s does not answer; check that it runs, and that its ng_from names %s",
                    shown(address),
                    self._commands_from,
                )
            case RelayFound(address=address):
                _log.warning("the media relay %s answers again", shown(address))

    def close(self) -> None:
        """Write the last registrations."""
        if self._resolver is not None:
            self._resolver.close()
        if self._registrations is not None:
            self._registrations.close()
        self._resolver = self._registrations = None

    def _contexts(self) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
        """Return the contexts for connections from anybody, and to servers of other domains; None without TLS."""
        certificate, key, domains = self._settings.tls_certificate, self._settings.tls_key, self._settings.domains
        if certificate is None:
            return None, None
        if domains is None:
            return server_tls(certificate, key), None
        secure = server_tls(certificate, key, peers=True, peers_ca=domains.ca_file)
        return secure, peer_tls(certificate, key, domains.ca_file)


def _near(host: str, relays: Sequence[Address]) -> str:
    """Return the address from which ``relays`` can be commanded by a proxy on ``host``.

    Relays accept commands from our host (ng_from); relays on loopback are reachable from loopback only.
    """
    here, there = ip_address(host), [ip_address(each) for each, _ in relays]
    near = all(each.is_loopback for each in there)
    fits = here.is_loopback and here.version == there[0].version
    return str(there[0] if near and not fits else here)
