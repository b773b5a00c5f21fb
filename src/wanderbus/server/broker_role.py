"""Access server with the broker inside: its user agent, and the data channels of agents (DESIGN 1)."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

import wanderbus
from wanderbus.access.access_server import (
    DATA_SOCKET,
    ECI_SOCKET,
    SIP_SOCKET,
    STREAM_SOCKET,
    AccessServer,
)
from wanderbus.access.baseline import Baseline
from wanderbus.access.device_signalling import REGISTRATION_REFUSALS
from wanderbus.access.federation_parts import FOREIGN_SOCKET, FederationParts
from wanderbus.access.light_messages import LIGHT_SOCKET
from wanderbus.access.messages import BrokerRegistered, BrokerUnregistered, ChannelRefused
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import (
    EventsWanted,
    ExtensionFailed,
    HistoryFailed,
    HistoryWanted,
    MatchesWanted,
    OffsetWanted,
    ServerAnswered,
    ServerAsked,
    SubscriptionUnread,
    SubscriptionUnreadable,
    UserStatusChanged,
)
from wanderbus.broker.rollback.messages import LogRolledBack
from wanderbus.broker.servers.leader_messages import InterestAwaited
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.interest.multicast import CONFIRM_S, PAUSE_S, MulticastMissed
from wanderbus.channels.interest.outgoing_stream import Fenced
from wanderbus.config import ServerSettings
from wanderbus.detection import DetectorFailed
from wanderbus.errors import AuthenticationError, ConfigurationError, NoResponse
from wanderbus.event_text import escaped
from wanderbus.federation.messages import FindGateways, ForeignEventsLost, ForeignTrouble, GatewaysFound
from wanderbus.machine import Address, Machine, Output, shown
from wanderbus.matching import SCANNED_MAX
from wanderbus.metrics import Sample, row_of
from wanderbus.mobility.properties import Properties
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.signalling import FloodLimits, LoginLimits
from wanderbus.parameters.transports import DATA_STREAM_LIMITS, RudpConfig, TcpConfig, carrying
from wanderbus.peers.messages import PeerUnreachable, ServerLinkClosed, ServerLinkOpened, ServerReachable
from wanderbus.peers.owner_messages import VisitorStays
from wanderbus.peers.parts import SERVER_SOCKET
from wanderbus.protocol import Listed
from wanderbus.refusals import Limited
from wanderbus.runtime.files.restored_mark import remove_mark, restored_reason
from wanderbus.runtime.log.channel_events import ChannelEvents
from wanderbus.runtime.log.history_source import HistorySource, LogHistory
from wanderbus.runtime.log.log_name import write_log_name
from wanderbus.runtime.net.tls import server_tls
from wanderbus.runtime.services.engine import NAME as ENGINE
from wanderbus.runtime.services.history import RemoteHistory
from wanderbus.runtime.services.remote_engine import RemoteEngine
from wanderbus.runtime.services.supervised import SupervisedService
from wanderbus.runtime.system_random import SystemRandom, wall_us
from wanderbus.server.engine_reading import EngineReading, engine_command
from wanderbus.server.event_domain_member import EventDomainMember
from wanderbus.server.extensions import Extensions
from wanderbus.server.history_reading import HistoryReading
from wanderbus.server.kernel import loaded_kernel
from wanderbus.server.light.door import light_door, light_port, light_port_error
from wanderbus.server.own_federation import OwnFederation
from wanderbus.server.ports import Bound, MulticastPort, Port, SIPPort, StreamPort, UdpPort
from wanderbus.server.role import HostOffer, StatefulRole
from wanderbus.server.validation import user_uri
from wanderbus.settings.bounds import bounds_of
from wanderbus.sip.authentication.digest import Authenticator, Secret
from wanderbus.sip.authentication.login_guard import LoginGuard

if TYPE_CHECKING:
    from wanderbus.runtime.net.domain_resolver import DomainResolver

_log = logging.getLogger("wanderbus.server")

DATA_CHANNEL = "data_channel"
"""Name of the limit in a report of a data channel that does not meet the requirements."""

START_S_MAX = 10.0
"""Timeout for the broker's own registration at another SIP server."""

LOCAL_START_S_MAX = 120.0
"""Timeout for the same in this process: the registrar is there, but late if many devices return at once."""

_ROLLED_BACK: Final = (
    "the data of this server was replaced by an earlier copy: %s. What was acknowledged since that copy is lost; every "
    "subscription that may have matched it gets a gap (server_restored)"
)
_CLAIMED: Final = "%s; nothing else shows that the data is an earlier copy, so only the session %r gets a gap"
_AWAITED: Final = (
    "events of ordered channels that this server leads wait until %s has reported which it wants: start every server "
    "of the domain once, after the first start and after each change of its file"
)
_MISSED: Final = (
    "changes of interest that are sent by multicast are not confirmed by %s within %g s; for %g s it and other such "
    "servers get them on their links. 'wanderbus domain status' counts them"
)


class BrokerRole(StatefulRole):
    """The broker, which agents reach as an ordinary user agent of a SIP server.

    :param users: the secret of each user, with which the broker authenticates callers
    :param properties: returns the properties of its user agent, once the roles before it have bound their sockets
    :param tls: verifies the SIP server, if that is reached over TLS
    :param member: this server's part in its event domain; None if it is alone
    :param federation: the foreign domains that its domain shares events with; None without any
    """

    name = "broker"
    reads_clock = True

    def __init__(
        self,
        settings: ServerSettings,
        config: BrokerConfig,
        extensions: Extensions,
        users: Mapping[str, Secret],
        properties: Callable[[], Properties],
        tls: ssl.SSLContext | None = None,
        member: EventDomainMember | None = None,
        federation: OwnFederation | None = None,
        visit_key: Callable[[], bytes] = bytes,
    ) -> None:
        self._settings = settings
        self._config = config
        self._extensions = extensions
        self._users = users
        self._make_properties = properties
        self._tls = tls
        self._member = member
        self._federation = federation
        self._make_visit_key = visit_key
        self.eci_address = None if settings.eci_port is None else (settings.eci_host, settings.eci_port)
        """Address of the original ECI, once started; None if it is not served."""
        self.light_address: Address | None = None
        """Address for lightweight clients, once started; None if they are not served."""
        self.sip_address: Address = (settings.host, 0)
        """Address of its user agent, once started."""
        self._resolver: DomainResolver | None = None
        """Looks up the gateways of other domains."""
        self._history: HistoryReading | None = None
        self._remotes: list[RemoteHistory] = []
        self._engine: EngineReading | None = None
        self._supervised: SupervisedService | None = None
        """The matching engine, if the server starts it."""
        self._following: asyncio.Task[None] | None = None
        """Task that reads the file of the federation again after each change."""
        self._registered = asyncio.Event()
        self._rejection: AuthenticationError | None = None
        self._trouble = ""
        """Last failure of the registration, for the error when the start takes too long."""
        self._failures_logged: dict[str, int] = {}
        """Number of failures at the last log line, by extension."""
        self._bounds = bounds_of(settings)
        self._started_us = wall_us()

    def make_state(self, server: str) -> BrokerState:
        """Return an empty state of the broker."""
        self._state = BrokerState(server, self._config.publishes_remembered)
        return self._state

    @property
    def instance(self) -> str:
        """Return the instance id of this broker for a registrar, stable over restarts (RFC 5626 4.1)."""
        uri = user_uri(self._settings.broker_user, self._settings.domain)
        return f"<{uuid.uuid5(uuid.NAMESPACE_URL, f'{uri};server={self._state.server}').urn}>"

    async def open(self, offer: HostOffer) -> None:
        """Make the broker. Loading a kernel now delays nobody; a few subscriptions need none."""
        self._offer = offer
        kernel = await loaded_kernel("numpy") if len(self._state.subscriptions) > SCANNED_MAX else None
        assert offer.files is not None
        files = offer.files

        def identity() -> tuple[str, int]:
            return self._state.server, self._state.incarnation

        log = files.log.directory
        self._remotes = [RemoteHistory(files.directory, identity) for _ in range(2)]
        sources: list[list[HistorySource]] = [[LogHistory(log, identity), remote] for remote in self._remotes]
        self._history = HistoryReading(sources[0], ChannelEvents(log, sources[1]), offer.feed)
        self._engine = EngineReading(RemoteEngine(files.directory, identity), offer.feed)
        is_federated = self._federation is not None
        named = msgspec.structs.replace(self._config, server=self._state.server, federated=is_federated)
        extensions = self._extensions
        self._channels = None if self._member is None else self._member.channels(self._state)
        self.broker = Broker(
            self._state,
            named,
            extensions.restrictions,
            kernel,
            extensions.hook,
            extensions.policies,
            self._channels,
        )

    def ports(self) -> Sequence[Port]:
        """Return the sockets of SIP and of data channels, of the original ECI, and of those between servers."""
        settings, host = self._settings, self._settings.host
        self.properties = msgspec.structs.replace(self._make_properties(), instance=self.instance)
        sip = SIPPort(
            name=SIP_SOCKET,
            host=host,
            port=settings.broker_port,
            setting="broker_port",
            # The SIP server may connect to us, as it must after its restart; over TLS that would need a certificate.
            tcp=self.properties.transport == "TCP",
            client_tls=self._tls,
            limits=settings.sip_connections,
        )
        data = UdpPort(name=DATA_SOCKET, host=host, port=settings.data_port, setting="data_port")
        self._certificate = self._offer.certificate
        streams = StreamPort(
            name=STREAM_SOCKET,
            host=host,
            port=settings.stream_port,
            setting="stream_port",
            server_tls=server_tls(self._certificate.file) if settings.encryption else None,
            limits=settings.data_connections or DATA_STREAM_LIMITS,
        )
        ports: list[Port] = [sip, data, streams]
        if settings.eci_port is not None:
            ports.append(UdpPort(name=ECI_SOCKET, host=settings.eci_host, port=settings.eci_port))
        if settings.light is not None:
            ports.append(light_port(settings, self._certificate))
        if self._member is not None:
            ports += self._member.ports
        if self._federation is not None:
            ports += self._federation.ports
        return ports

    def port_error(self, port: Port, error: OSError) -> ConfigurationError:
        """Return the error for one of these sockets."""
        if port.name == ECI_SOCKET:
            place = shown((port.host, port.port or 0))
            return ConfigurationError(
                f"UDP port {place} cannot be used: {error.strerror}; give another with --eci-port"
            )
        if port.name == LIGHT_SOCKET:
            return light_port_error(self._settings, error)
        if port.name == SERVER_SOCKET:
            place = shown((port.host, port.port or 0))
            return ConfigurationError(
                f"UDP port {place} cannot be used: {error.strerror}; look at the address of this server in event_domain"
            )
        if port.name == FOREIGN_SOCKET:
            place = shown((port.host, port.port or 0))
            return ConfigurationError(
                f"UDP port {place} cannot be used: {error.strerror}; look at the address of this gateway in federation"
            )
        if isinstance(port, MulticastPort):
            place, where = shown((port.host, port.port or 0)), port.interface or port.local_host
            return ConfigurationError(
                f"the multicast group {place} cannot be joined on {where}: {error.strerror}; look at multicast in "
                "event_domain"
            )
        reason = f"{error.strerror}; look at broker_port, data_port, stream_port"
        return ConfigurationError(f"cannot bind the broker's ports on {port.host}: {reason}")

    def make_machine(self, bound: Mapping[str, Bound]) -> Machine:
        """Return the access server."""
        settings, random, files = self._settings, SystemRandom(), self._offer.files
        assert files is not None
        self.sip_address = bound[SIP_SOCKET].address
        if ECI_SOCKET in bound:
            self.eci_address = bound[ECI_SOCKET].address
        if LIGHT_SOCKET in bound:
            self.light_address = bound[LIGHT_SOCKET].address
        reached = {name: (settings.advertise or each.address[0], each.address[1]) for name, each in bound.items()}
        self.machine = AccessServer(
            self.properties,
            self.broker,
            random,
            sip_address=reached[SIP_SOCKET],
            data_address=reached[DATA_SOCKET],
            host=bound[DATA_SOCKET].address[0],
            stream_address=reached[STREAM_SOCKET],
            authenticator=Authenticator(
                settings.domain.lower(),
                self._users.get,
                random.token(32),
                algorithms=settings.digest_algorithms,
                guard=LoginGuard(settings.logins or LoginLimits(), proxies={self.properties.server[0]}),
            ),
            flood=settings.flood or FloodLimits(),
            encryption=settings.encryption,
            reset_key=files.reset_key,
            fingerprint=self._certificate.fingerprint if settings.encryption else b"",
            rudp=carrying(settings.rudp or RudpConfig(), self.broker.config.event_bytes_max),
            tcp=carrying(settings.tcp_channels or TcpConfig(), self.broker.config.event_bytes_max),
            baseline=self._make_baseline(random),
            light=light_door(
                settings,
                self.broker.config,
                self._users,
                self._certificate,
                random,
                asks_owner=self._member is not None or self._federation is not None,
            ),
            servers=None
            if self._member is None or self._channels is None
            else self._member.parts(self._channels, self._state, random, files.reset_key, wall_us()),
            federation=self._federation_parts(random, files.reset_key),
            make_detector=self._extensions.detector,
        )
        self._offer.refusals.counted["data"] = self.machine.dropped
        return self.machine

    def _federation_parts(self, random: SystemRandom, reset_key: bytes) -> FederationParts | None:
        if self._federation is None:
            return None
        name = self._settings.event_server or self._federation.gateway or self._state.server
        domain = None if self._member is None else self._member.domain.settings
        servers = (name,) if domain is None else tuple(domain.present)
        access = servers if domain is None else domain.servers_with("access")
        epoch_ms = max(self._state.wall_us, wall_us()) // 1_000
        self._resolver = self._federation.resolver(self._offer.feed, self._settings.domains)
        has_engine = bool(self._config.spark_subjects)
        parts = self._federation.parts(
            name, servers, self._channels, random, reset_key, epoch_ms, access, has_engine=has_engine
        )
        return parts._replace(visit_key=self._make_visit_key())

    def _find_gateways(self, wanted: FindGateways) -> None:
        """Look up a domain, also one that a changed file has named since the start."""
        assert self._federation is not None
        try:
            self._resolver = self._resolver or self._federation.resolver(self._offer.feed, self._settings.domains)
        except ConfigurationError as error:
            self._offer.feed(GatewaysFound(wanted.domain, (), str(error)))
            return
        if self._resolver is not None:
            self._resolver.find(wanted)

    def begin(self, now: float) -> Sequence[Output]:
        """Register, and renew the sessions of the log; start the matching engine, if that is ours."""
        if self._settings.engine == "spark":
            self._supervised = SupervisedService(ENGINE, engine_command(self._settings.data_dir))
            self._supervised.start()
        files = self._offer.files
        assert files is not None
        if self._federation is not None:
            self._following = self._federation.follow(self._offer.feed)
        outputs = self.machine.start(wall_us(), now, restored_reason(files.directory))
        try:
            domain = self._settings.domain.lower()
            write_log_name(files.log.directory, self._state.server, self._state.incarnation, domain)
        except OSError as error:
            _log.warning("the name of the log cannot be written to %s: %s", files.log.directory, error.strerror)
        return outputs

    async def until_ready(self) -> None:
        """Return when the broker is registered, so that agents can call.

        :raises AuthenticationError: the SIP server rejects the broker
        :raises NoResponse: it does not answer
        """
        longest_s = LOCAL_START_S_MAX if self.properties.server_is_local else START_S_MAX
        try:
            async with asyncio.timeout(longest_s):
                await self._registered.wait()
        except TimeoutError:
            server, uri = shown(self.properties.server), self.properties.uri
            raise NoResponse(
                f"the SIP server {server} does not answer the broker {uri} in {longest_s:g} s{self._trouble}; "
                "check that it runs, and sip_server"
            ) from None
        if self._rejection is not None:
            raise self._rejection

    def report(self, output: Output) -> None:
        """Answer questions about the server, and log what the operator should know."""
        match output:
            case BrokerRegistered():
                self._registered.set()
            case BrokerUnregistered(status=status, reason=reason):
                self._on_unregistered(status, reason)
            case ChannelRefused(user=user, reason=reason, limit=limit):
                self._offer.refusals.note(Limited(limit or DATA_CHANNEL, user, f"no data channel: {reason}"))
            case ServerAsked(request=request):
                self._offer.feed(ServerAnswered(output, self._listing(request.what)))
            case OffsetWanted():
                self._reads().look_up(output)
            case HistoryWanted():
                self._reads().read(output)
            case EventsWanted():
                self._reads().read_events(output)
            case MatchesWanted():
                assert self._engine is not None, "the role is not open"
                self._engine.read(output)
            case HistoryFailed(subscription=subscription, reason=reason, goes_on=goes_on):
                outcome = "goes on behind a gap" if goes_on else "has ended"
                _log.error("subscription %s %s, its history cannot be read: %s", subscription, outcome, reason)
            case UserStatusChanged(user=user, status=status):
                _log.info("%s is %s", user, status)
            case SubscriptionUnreadable(subscription=subscription, reason=reason):
                _log.error("cannot parse the stored subscription %s, no event matches it: %s", subscription, reason)
            case SubscriptionUnread():
                _log.warning("%s", _unread(output))
            case Fenced(stream=stream):
                _log.error("the interest of %s in the domain was replaced by a later start of it", stream.origin)
            case ServerLinkOpened(server=server, is_ours=is_ours):
                _log.info("the link %s server %s of the domain is open", "to" if is_ours else "from", server)
            case ServerLinkClosed(server=server, reason=reason):
                _log.info("a link with server %s of the domain is closed: %s", server, reason)
            case PeerUnreachable(server=server, reason=reason):
                _log.warning("server %s of the domain cannot be reached: %s", server, reason)
            case ServerReachable(server=server, seconds=seconds):
                _log.warning("server %s of the domain can be reached again, after %g s", server, seconds)
            case FindGateways():
                self._find_gateways(output)
            case VisitorStays(user=user, session=session, reason=reason):
                _log.info("the session %s of %s does not come here: %s", session, user, escaped(reason))
            case ForeignTrouble(domain=domain, reason=""):
                _log.info("the domain %s can be reached", domain)
            case ForeignTrouble(domain=domain, reason=reason):
                _log.warning("the domain %s: %s", domain, reason)
            case ForeignEventsLost(domain=domain, server=server, count=count, reason=reason):
                _log.error(
                    "the domain %s has lost %s events, the last at its server %s: %s", domain, count, server, reason
                )
            case InterestAwaited(servers=()):
                _log.warning("all servers have reported which events they want; the events that waited are accepted")
            case InterestAwaited(servers=servers):
                _log.warning(_AWAITED, " and ".join(servers))
            case MulticastMissed(server=server):
                _log.warning(_MISSED, server, CONFIRM_S, PAUSE_S)
            case LogRolledBack(reason=reason, session=str(session)) if session:
                _log.warning(_CLAIMED, reason, session)
            case LogRolledBack(reason=reason):
                _log.warning(_ROLLED_BACK, reason)
                assert self._offer.files is not None
                remove_mark(self._offer.files.directory)
            case DetectorFailed(count=count, reason=reason):
                _log.warning("failure detectors of the operator failed %s times so far: %s", count, reason)
            case ExtensionFailed(count=count, reason=reason):
                self._on_extension_failed(count, reason)

    def close(self) -> None:
        """Read no further history, and no matches, and no changed file, and look up nothing."""
        if self._following is not None:
            self._following.cancel()
        if self._resolver is not None:
            self._resolver.close()
        if self._engine is not None:
            self._engine.close()
        if self._supervised is not None:
            self._supervised.close()
        if self._history is not None:
            self._history.close()
        for remote in self._remotes:
            remote.close()

    def metrics(self) -> Iterable[Sample]:
        """Return the samples of the access server, and of its start."""
        return (*self.machine.metrics(), Sample("start_time_seconds", self._started_us / 1e6))

    def _listing(self, what: Listed) -> tuple[Mapping[str, Any], ...]:
        if what == "servers":
            return self.machine.server_rows()
        if what == "domains":
            return self.machine.federation_rows()
        if what == "metrics":
            return tuple(map(row_of, self._offer.metrics()))
        if what == "server":
            return (self._process(),)
        return self._bounds if what == "bounds" else self._offer.refusals.rows(self._bounds)

    def _process(self) -> Mapping[str, Any]:
        """Return the row of this process, as :class:`~wanderbus.operator_rows.ProcessInfo`."""
        name = self._settings.event_server or self._state.server
        return {"server": name, "version": wanderbus.__version__, "started_us": self._started_us, "pid": os.getpid()}

    def _reads(self) -> HistoryReading:
        assert self._history is not None, "the role is not open"
        return self._history

    def _make_baseline(self, random: SystemRandom) -> Baseline | None:
        given = self._settings
        return None if given.eci_port is None else Baseline(given.eci, key=random.token(32), flood=given.flood)

    def _on_extension_failed(self, count: int, reason: str) -> None:
        """Log the first failure, and then one each time that their number has doubled."""
        kind = reason.partition(":")[0]
        if count >= self._failures_logged.get(kind, 0) * 2:
            self._failures_logged[kind] = count
            _log.warning("code of the operator failed %s times so far: %s", count, reason)

    def _on_unregistered(self, status: int | None, reason: str) -> None:
        """Log that the broker is not registered; a rejection of the first registration ends the start."""
        response = reason if status is None else f"{status} {reason}".rstrip()
        if status not in REGISTRATION_REFUSALS or self._registered.is_set():
            _log.warning("the broker is not registered: %s", response)
            self._trouble = f" ({response})"
            return
        server, uri = shown(self.properties.server), self.properties.uri
        advice = "check that user's password, and that the server has such a user"
        if self.properties.password is None:
            advice = "give that user's password with --broker-password-file, or a line in users"
        self._rejection = AuthenticationError(f"the SIP server {server} rejects {uri}: {response}; {advice}")
        self._registered.set()


def _unread(unread: SubscriptionUnread) -> str:
    waits = f"{unread.waiting} notifications wait for subscription {unread.subscription} of {unread.user}"
    if unread.device is None:
        return f"{waits} in session {unread.session}, which nobody has read for {unread.since_s:.0f} s"
    return f"{waits}: its reader on device {unread.device} has acknowledged nothing for {unread.since_s:.0f} s"
