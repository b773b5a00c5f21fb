"""Registrar and proxy in a process without a broker; brokers in other processes are its user agents (DESIGN 6.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from wanderbus.config import ProxyArguments, ProxySettings
from wanderbus.machine import Address
from wanderbus.server import validation
from wanderbus.server.host import DataDirectory, Host
from wanderbus.server.hosted_server import HostedServer, ProcessView, http_of
from wanderbus.server.sip_role import SIPRole
from wanderbus.settings.reading import make
from wanderbus.sip.proxy.routing_script import RoutingScript

if TYPE_CHECKING:
    from wanderbus.web.http_service import HttpService


class ProxyServer(HostedServer):
    """Registrar and proxy of one domain on one address; an async context manager that serves while it is entered.

    Its keyword arguments are the keys of a file of settings; ``domain``, ``data_dir`` and ``users`` must be given.

    :param routing: decides where the proxy sends requests (:mod:`wanderbus.sip.proxy.routing_script`); None: to the
        user
    :raises ConfigurationError: a given setting cannot be used
    """

    def __init__(self, *, routing: RoutingScript | None = None, **given: Unpack[ProxyArguments]) -> None:
        super().__init__()
        settings = self._settings = make(ProxySettings, given)
        validation.check_proxy(settings)
        self._secrets = validation.secrets(settings, taken=None)
        self._routing = routing
        self._sip: SIPRole | None = None
        self.address: Address = (settings.host, settings.port)
        """Its address for UDP and TCP, once started."""
        self.tls_address: Address | None = None
        """Its address for TLS, once started; None without a certificate."""

    def _make_host(self) -> Host:
        settings = self._settings
        relay = validation.relay_role(settings)
        sip = self._sip = SIPRole(settings, self._secrets, routing=self._routing, relay=relay)
        return Host(
            [sip] if relay is None else [relay, sip],
            directory=DataDirectory(settings.data_dir, "registrations and keys"),
            sip_trace=settings.sip_trace,
            users=self._secrets,
        )

    def _make_http(self, view: ProcessView) -> HttpService | None:
        return http_of(self._settings, view, self._secrets)

    def _on_started(self) -> None:
        assert self._sip is not None
        self.address, self.tls_address = self._sip.address, self._sip.tls_address
