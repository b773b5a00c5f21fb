"""HTTP of a server process: its address, its users, and the pages that it has."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from ipaddress import ip_address

from wanderbus.errors import ConfigurationError, WanderbusError
from wanderbus.hosts import place_in
from wanderbus.machine import Address, shown
from wanderbus.parameters.signalling import LoginLimits
from wanderbus.parameters.transports import PageLimits
from wanderbus.runtime.net.http_server import HttpServer
from wanderbus.runtime.net.tls import server_tls
from wanderbus.settings.server import ProxySettings
from wanderbus.sip.authentication.digest import Secret
from wanderbus.sip.authentication.login_guard import LoginGuard
from wanderbus.web.monitoring import Monitored, application
from wanderbus.web.operator_login import OperatorLogin


def service_of(
    settings: ProxySettings,
    process: Monitored,
    secrets: Mapping[str, Secret],
    is_operator: Callable[[str], bool] | None,
) -> HttpService:
    """Return the pages that ``settings.http`` describes; :class:`ConfigurationError` if they cannot be served there."""
    address = place_in(settings.http or "")
    if address is None:
        raise ConfigurationError(f"http: {settings.http!r} is not HOST:PORT with an IP address, such as 127.0.0.1:8080")
    if ip_address(address[0]).is_loopback:
        return HttpService(process, address, settings.http_connections)
    place = shown(address)
    if is_operator is None:
        raise ConfigurationError(f"http: {place} is not on loopback, and a proxy alone has no operators; use 127.0.0.1")
    if settings.tls_certificate is None:
        raise ConfigurationError(
            f"http: {place} is not on loopback, so that passwords would cross the network; set tls_certificate, or "
            "listen on 127.0.0.1 behind a proxy"
        )
    login = OperatorLogin(settings.domain.lower(), secrets, is_operator, LoginGuard(settings.logins or LoginLimits()))
    tls = server_tls(settings.tls_certificate, settings.tls_key)
    return HttpService(process, address, settings.http_connections, login, tls)


class HttpService:
    """Serves the pages of ``process`` between :meth:`start` and :meth:`close`.

    On loopback everybody may read the metrics, since those who can connect are users of this computer, or a proxy that
    the operator has put before it. On any other address they are for operators, over TLS.
    """

    def __init__(
        self,
        process: Monitored,
        address: Address,
        limits: PageLimits | None = None,
        login: OperatorLogin | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._server = HttpServer(application(process, login), address, tls, limits, process.note)
        self._scheme = "http" if tls is None else "https"

    @property
    def url(self) -> str:
        """Return the address of the pages."""
        return f"{self._scheme}://{shown(self._server.address)}"

    async def start(self) -> None:
        """Begin to serve; :class:`ConfigurationError` if the address cannot be used."""
        try:
            await self._server.start()
        except WanderbusError:
            raise
        except OSError as error:
            place = shown(self._server.address)
            raise ConfigurationError(f"http: {place} cannot be used: {error.strerror}; give another one") from None

    async def close(self) -> None:
        """End the connections."""
        await self._server.close()
