"""A server in this process: SIP registrar and proxy, broker, event log (DESIGN 1).

::

    async with Server(domain="localhost", data_dir=Path("data"), users={"alice": "secret"}) as server:
        print(server.address)
        await server.run()          # until something breaks or the task is cancelled
"""

from __future__ import annotations

import logging
import ssl
from collections import ChainMap
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, Unpack, cast

import msgspec

from wanderbus.broker.device_changes import Hook
from wanderbus.broker.queues.policy_arguments import Policy
from wanderbus.broker.restrictions.restriction_kinds import Kind
from wanderbus.completion import public_names
from wanderbus.config import BrokerConfig, ServerArguments, ServerSettings
from wanderbus.detection import MakeDetector
from wanderbus.errors import ConfigurationError, WanderbusError
from wanderbus.machine import Address, shown
from wanderbus.mobility.flow import KEEP_ALIVE_S
from wanderbus.mobility.properties import Properties
from wanderbus.runtime.files.config_files import settings_in
from wanderbus.runtime.files.users_file import Users
from wanderbus.runtime.log.retention_policy import Keep
from wanderbus.runtime.net.tls import client_tls
from wanderbus.runtime.services.service import Service
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.server import validation
from wanderbus.server.broker_role import BrokerRole
from wanderbus.server.domain_settings import check_user_domains
from wanderbus.server.event_domain_member import member_of, visit_key_of
from wanderbus.server.extensions import extensions_of
from wanderbus.server.host import DataDirectory, Host
from wanderbus.server.hosted_server import HostedServer, ProcessView, http_of
from wanderbus.server.local_logins import LocalAddress, LocalLogins, operator_name
from wanderbus.server.login_service import operator_password, start_login_service
from wanderbus.server.own_federation import federation_of
from wanderbus.server.role import Role
from wanderbus.server.sip_role import SIPRole
from wanderbus.settings.reading import make
from wanderbus.sip.authentication.digest import Secret
from wanderbus.sip.message.targets import Target
from wanderbus.sip.proxy.routing_script import RoutingScript

if TYPE_CHECKING:
    from wanderbus.web.http_service import HttpService

_log = logging.getLogger("wanderbus.server")


class Server(HostedServer):
    """Registrar, proxy and broker of one domain on one address; an async context manager.

    With ``sip_server`` it is only a broker, which is an ordinary user agent of that server (DESIGN 6.4).

    Its keyword arguments are the keys of a file of settings; ``domain``, ``data_dir`` and ``users`` must be given.
    docs/configuration.md lists them, and so does ``wanderbus config sample broker``.

    :param routing: decides where the proxy sends requests (:mod:`wanderbus.sip.proxy.routing_script`); None: to the
        user
    :param restrictions: kinds of restriction besides those that are built in, by their names (SPEC H-10)
    :param policies: queue policies besides those that are built in, by their names (SPEC G-23)
    :param hook: decides about devices that disconnect, reconnect and leave (SPEC G-24); docs/extending.md
    :param detector: returns the failure detector of each data channel of a device (SPEC G-26); docs/extending.md
    :raises ConfigurationError: a given setting cannot be used
    """

    def __init__(
        self,
        *,
        routing: RoutingScript | None = None,
        restrictions: Mapping[str, Kind] | None = None,
        policies: Mapping[str, Policy] | None = None,
        hook: Hook | None = None,
        detector: MakeDetector | None = None,
        **given: Unpack[ServerArguments],
    ) -> None:
        super().__init__()
        settings = self._settings = make(ServerSettings, given)
        validation.check_server(settings)
        self.domain = settings.domain.lower()
        self.broker_uri = validation.user_uri(settings.broker_user, self.domain)
        self.sip_server: Target | None = None
        """The registrar and proxy at which the broker is registered; None if they are in this process."""
        self.address: Address = (settings.host, settings.port)
        """Address of registrar and proxy: in this process, over UDP and TCP, once started, or ``sip_server``."""
        self.tls_address: Address | None = None
        """Their address for TLS, once started; None without a certificate."""
        self.eci_address = None if settings.eci_port is None else (settings.eci_host, settings.eci_port)
        """Address of the original ECI, once started; None if it is not served."""
        self.light_address: Address | None = None
        """Address for lightweight clients, once started; None if they are not served."""
        self.broker_address: Address = (settings.host, 0)
        """Address of the broker's user agent, once started."""
        self._tls: ssl.SSLContext | None = None
        self._routing = routing
        self._member = member_of(settings)
        self._federation = federation_of(settings)
        self._extensions = extensions_of(settings, restrictions, policies, hook, detector)
        self._load_users(settings)
        self._user_domains = check_user_domains(settings, self.sip_server)
        self._broker_config = validation.broker_config(settings)
        self._logins: Service | None = None
        self._sip: SIPRole | None = None
        self._broker: BrokerRole | None = None

    def __repr__(self) -> str:
        place = shown(self.address)
        state = f"ready at {place}" if self._host is not None else f"not running; for {place}"
        return f"<Server of {self.domain} {state}; data in {self._settings.data_dir}>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    @classmethod
    def from_file(
        cls,
        file: Path | str,
        *,
        routing: RoutingScript | None = None,
        restrictions: Mapping[str, Kind] | None = None,
        policies: Mapping[str, Policy] | None = None,
        hook: Hook | None = None,
        detector: MakeDetector | None = None,
        **given: Unpack[ServerArguments],
    ) -> Self:
        """Return a server with the settings of a TOML file; arguments given here override them."""
        settings = cast(ServerArguments, settings_in(ServerSettings, Path(file)) | given)
        return cls(
            routing=routing, restrictions=restrictions, policies=policies, hook=hook, detector=detector, **settings
        )

    def _load_users(self, settings: ServerSettings) -> None:
        """Load the secrets of the users, and the broker's own password."""
        name = settings.broker_user
        self._own_secrets: dict[str, Secret] = {}
        """Secrets of the users that no file names: the broker, and the operator on this computer once started."""
        self._operator: str | None = None
        """Name of the operator on this computer; None if another registrar does not know such a user."""
        if settings.sip_server is None:
            self._users = validation.secrets(settings, taken=name)
            # With a given password, other brokers of the domain can register here, too.
            own = validation.broker_password(settings, {}) or SystemRandom().token(16).hex()
            self._broker_password: str | None = own
            self._own_secrets[name] = own
            self._operator = operator_name(self._users)
            self._secrets: Mapping[str, Secret] = ChainMap(self._own_secrets, cast(dict[str, Secret], self._users))
            return
        if self._routing is not None:
            raise ConfigurationError("routing: the proxy is at sip_server, not here; leave one of them out")
        self.sip_server = validation.sip_server(settings.sip_server, settings.host)
        self.address = self.sip_server.address
        if self.sip_server.transport == "TLS":
            self._tls = client_tls(settings.ca_file)
        users = validation.secrets(settings, taken=None)
        self._broker_password = validation.broker_password(settings, users)
        self._users = users.but(name) if isinstance(users, Users) else {**users}
        if isinstance(self._users, dict):
            self._users.pop(name, None)
        self._secrets = self._users

    def _make_host(self) -> Host:
        settings = self._settings
        keep = Keep(settings.log_keep_s, settings.log_keep_bytes)
        directory = DataDirectory(
            settings.data_dir, "events and keys", settings.disk_reserve_bytes, keep, new_name=settings.event_server
        )
        return Host(self._make_roles(), directory=directory, sip_trace=settings.sip_trace, users=self._users)

    def _make_http(self, view: ProcessView) -> HttpService | None:
        roles = self._broker_config.roles
        return http_of(self._settings, view, self._users, lambda name: validation.user_uri(name, self.domain) in roles)

    def _on_started(self) -> None:
        if self._sip is not None:
            self.address, self.tls_address = self._sip.address, self._sip.tls_address
        assert self._broker is not None
        self.broker_address, self.eci_address = self._broker.sip_address, self._broker.eci_address
        self.light_address = self._broker.light_address
        self._logins = start_login_service(self._settings.data_dir, self._local_logins())

    async def close(self) -> None:
        """See :meth:`HostedServer.close`."""
        logins, self._logins = self._logins, None
        if logins is not None:
            logins.close()
        await super().close()

    def _config_with_operator(self) -> BrokerConfig:
        config = self._broker_config
        if self._operator is None:
            return config
        operator = validation.user_uri(self._operator, self.domain)
        return msgspec.structs.replace(config, roles={**config.roles, operator: "administrator"})

    def _local_logins(self) -> LocalLogins:
        """Return the logins of programs on this computer, and let the operator in."""
        settings, operators = self._settings, dict[str, Secret]()
        try:
            if self._operator is not None:
                operators[self._operator] = operator_password(settings.data_dir)
        except (WanderbusError, OSError) as error:
            _log.warning("commands on this computer need --user and --password of an operator: %s", error)
        self._own_secrets.update(operators)
        return LocalLogins(
            self.domain,
            ChainMap(operators, cast(dict[str, Secret], self._users)),
            self._operator,
            self._broker_config.roles,
            self._reached(),
        )

    def _reached(self) -> LocalAddress:
        settings, target = self._settings, self.sip_server or Target("UDP", self.address)
        return LocalAddress(
            server=target.address,
            server_name=target.server_name,
            transport=cast(Literal["udp", "tcp", "tls"], target.transport.lower()),
            broker=self.broker_uri,
            encryption=settings.encryption,
            ca_file=None if settings.ca_file is None else str(settings.ca_file.absolute()),
            event_server=settings.event_server,
        )

    def _make_roles(self) -> list[Role]:
        """Return the roles of this process, in the order of their start."""
        settings = self._settings
        broker = self._broker = BrokerRole(
            settings,
            self._config_with_operator(),
            self._extensions,
            self._secrets,
            self._properties,
            self._tls,
            self._member,
            self._federation,
            self._visit_key,
        )
        if self.sip_server is not None:
            return [broker]
        relay = validation.relay_role(settings)
        self._sip = SIPRole(
            settings,
            self._secrets,
            routing=self._routing,
            relay=relay,
            lodger=lambda: broker.instance,
            make_visit_key=partial(visit_key_of, self._member),
        )
        return [*([] if relay is None else [relay]), self._sip, broker]

    def _visit_key(self) -> bytes:
        """Return the key by which calls of users to other domains are recognised; empty if no proxy here has it."""
        if self._sip is not None:
            return self._sip.visit_key
        return b"" if self._member is None else visit_key_of(self._member, b"")

    def _properties(self) -> Properties:
        """Return the properties of the broker's user agent; a registrar in this process has its address by now."""
        server = self.sip_server or Target("UDP", self.address if self._sip is None else self._sip.address)
        return Properties(
            uri=self.broker_uri,
            server=server.address,
            password=self._broker_password,
            digest_algorithms=self._settings.digest_algorithms,
            transport=server.transport,
            server_name=server.server_name,
            server_known_as=None
            if self.sip_server
            else (self._settings.advertise or server.address[0], server.address[1]),
            reached_at=() if self._sip is None else self._sip.contacts_of(self.broker_uri),
            server_is_local=self.sip_server is None,
            vouched_domains=tuple(sorted(self._user_domains)),
            keep_alive_s=KEEP_ALIVE_S[server.transport] if self.sip_server else None,
        )
