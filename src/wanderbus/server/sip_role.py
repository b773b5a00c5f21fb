"""Registrar and proxy of one domain on one address, as a part of a server or alone (DESIGN 2)."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from ipaddress import ip_address
from typing import Any, Final

from wanderbus.config import ProxySettings
from wanderbus.errors import ConfigurationError
from wanderbus.machine import Address, Output, shown
from wanderbus.refusal_table import Limited
from wanderbus.relay import NG_SOCKET
from wanderbus.relay.ng_client import RelayDriver, RelayFound, RelayLost
from wanderbus.runtime.files.disk import SYSTEM, make_directory
from wanderbus.runtime.files.kept_key import kept_key
from wanderbus.runtime.files.registrations import Registrations
from wanderbus.runtime.files.server_files import unusable
from wanderbus.runtime.limit_log import Refusals
from wanderbus.runtime.net.domain_resolver import DomainResolver
from wanderbus.runtime.net.driver import Driver, Unmade
from wanderbus.runtime.net.sip_listening import listen_for_sip
from wanderbus.runtime.net.sip_trace import SipRecorder
from wanderbus.runtime.net.tls import client_tls, peer_tls, server_tls
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.server import validation
from wanderbus.server.domain_settings import name_servers, other_domains
from wanderbus.sip.authentication.digest import Secret
from wanderbus.sip.authentication.login_guard import LoginLimits, LoginRefused
from wanderbus.sip.proxy.domain_routes import FindDomain
from wanderbus.sip.proxy.location import BindingsWritten
from wanderbus.sip.proxy.routing_script import OnPathRouting, RoutingFailed, RoutingScript
from wanderbus.sip.proxy.sip_server import SIPServer
from wanderbus.sip.transaction.flood_limits import DEFAULT_LIMITS

_log = logging.getLogger("wanderbus.sip")

_NOBODYS_DROPS: Final = ("unreadable", "unframed", "unfinished", "no transport")
"""Reasons of drops that no limit causes; drops because of a limit are reported with their party."""

KEY_FILE = "sip.key"
"""Name of the secret's file in the data directory; by it the proxy recognises its dialogs after a restart."""


class SIPService:
    """Registrar and proxy between :meth:`start` and :meth:`close`.

    :param secrets: the secret of each user
    :param lodger: URI of a user that registers from this process; its stored bindings are discarded
    :param refusals: the table of refusals of this process
    """

    def __init__(
        self,
        settings: ProxySettings,
        secrets: Mapping[str, Secret],
        *,
        routing: RoutingScript | None = None,
        recorder: SipRecorder | None = None,
        lodger: str = "",
        refusals: Refusals | None = None,
    ) -> None:
        self._settings = settings
        self._secrets = secrets
        self._routing = routing
        self._recorder = recorder
        self._lodger = lodger
        self.address: Address = (settings.host, settings.port)
        """Address of registrar and proxy for UDP and TCP, once started."""
        self.tls_address: Address | None = None
        """Their address for TLS, once started; None without a certificate."""
        self._registrations: Registrations | None = None
        self._driver: Driver | None = None
        self._commands_from = ""
        self._resolver: DomainResolver | None = None
        self._relay = AsyncExitStack()
        self._refusals = refusals or Refusals()

    async def start(self) -> None:
        """Listen.

        :raises ConfigurationError: a port, a certificate or a relay cannot be used
        :raises StorageError: the data directory cannot be used
        """
        directory = self._settings.data_dir
        try:
            make_directory(SYSTEM, directory, 0o700)
            key = kept_key(directory / KEY_FILE)
        except OSError as error:
            raise unusable(directory, error) from None
        self._registrations = Registrations.open(directory / "registrations.db")
        tap = None if self._recorder is None else self._recorder.tap()
        driver = self._driver = Driver(Unmade(), self._report, tap=tap)
        streams = self._listen(driver)
        others = other_domains(self._settings)
        relays = await self._relays()
        if tap is not None:
            tap.hears("sip", self.address, streams)
        advertised = self._settings.advertise or self.address[0]
        machine = SIPServer(
            self._settings.domain.lower(),
            (advertised, self.address[1]),
            self._secrets.get,
            SystemRandom(),
            key,
            streams={kind: (advertised, port) for kind, (_, port) in streams.items()},
            routing=self._routing or (OnPathRouting() if self._settings.stay_on_path else None),
            algorithms=self._settings.digest_algorithms,
            flood=self._settings.flood or DEFAULT_LIMITS,
            logins=self._settings.logins or LoginLimits(),
            others=others,
            edge_proxies=[str(ip_address(each)) for each in self._settings.edge_proxies],
            **self._anchoring(driver, relays),
        )
        driver.machine = machine
        self._refusals.counted["sip"] = lambda: {name: machine.drops.get(name, 0) for name in _NOBODYS_DROPS}
        if self._settings.domains is not None and self._settings.domains.lookup:
            version = ip_address(self.address[0]).version
            servers = name_servers(self._settings.domains)
            self._resolver = DomainResolver(driver.feed, name_servers=servers, ip_version=version)
        driver.perform(self._registrations.restore_into(machine, without=self._lodger))

    async def close(self) -> None:
        """Stop; registrations are on disk."""
        if self._resolver is not None:
            self._resolver.close()
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        await self._relay.aclose()
        await asyncio.sleep(0)  # connections that were just being accepted end in the next turn
        if self._registrations is not None:
            self._registrations.close()
            self._registrations = None

    def _listen(self, driver: Driver) -> dict[str, Address]:
        """Take the ports: the machine has to know its addresses, so a free port is taken before it is made."""
        settings = self._settings
        certificate, key, domains = settings.tls_certificate, settings.tls_key, settings.domains
        authorities = None if domains is None else domains.ca_file
        secure = peers = None
        if certificate is not None:
            secure = server_tls(certificate, key, peers=domains is not None, peers_ca=authorities)
            peers = None if domains is None else peer_tls(certificate, key, authorities)
        try:
            self.address, streams = listen_for_sip(
                driver,
                "sip",
                self.address,
                tcp=settings.tcp,
                tls_port=settings.tls_port,
                server_tls=secure,
                client_tls=None if secure is None else client_tls(),
                peer_tls=peers,
                limits=settings.sip_connections,
            )
        except OSError as error:
            option = "--tls-port" if str(error.filename).startswith("TLS") else "--port"
            advice = f"give another with {option}"
            if error.errno == errno.EADDRNOTAVAIL:
                advice = "give an address of this machine with --host, and the one that others reach with --advertise"
            raise ConfigurationError(f"{error.filename} cannot be used: {error.strerror}; {advice}") from None
        self.tls_address = streams.get("TLS")
        return streams

    async def _relays(self) -> list[Address]:
        """Return the command addresses of the media relays, after starting the relay of this process, if any."""
        server = validation.relay_server(self._settings, self._refusals)
        if server is None:
            return validation.relay_addresses(self._settings)
        try:
            await self._relay.enter_async_context(server)
        except ConfigurationError as error:
            raise ConfigurationError(f"relay.{error}") from None
        return [server.ng_address]

    def _anchoring(self, driver: Driver, relays: Sequence[Address]) -> dict[str, Any]:
        """Return the machine's arguments about relays; binds a socket from which the relays can be commanded."""
        if not relays:
            return {}
        # Relays accept commands from our host (ng_from); relays on loopback are reachable from loopback only.
        here, there = ip_address(self.address[0]), [ip_address(host) for host, _ in relays]
        near = all(host.is_loopback for host in there)
        fits = here.is_loopback and here.version == there[0].version
        host = str(there[0] if near and not fits else here)
        try:
            driver.bind({NG_SOCKET: (host, 0)})
            self._commands_from = host
        except OSError as error:
            raise ConfigurationError(f"relays: cannot open a socket for commands on {host}: {error.strerror}") from None
        return {"media": RelayDriver(relays, SystemRandom()), "relay_calls": self._settings.relay_calls}

    def _report(self, output: Output) -> None:
        match output:
            case BindingsWritten(aor=aor, bindings=bindings):
                if self._registrations is not None:
                    self._registrations.note(aor, bindings)
            case FindDomain():
                if self._resolver is not None:
                    self._resolver.find(output)
            case RoutingFailed(method=method, error=error):
                _log.warning("the routing script failed for %s: %s", method, error)
            case Limited() | LoginRefused():
                self._refusals.note(output)
            case RelayLost(address=address):
                _log.warning(
                    "the media relay %s does not answer; check that it runs, and that its ng_from names %s",
                    shown(address),
                    self._commands_from,
                )
            case RelayFound(address=address):
                _log.warning("the media relay %s answers again", shown(address))
