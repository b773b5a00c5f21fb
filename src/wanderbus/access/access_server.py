"""Access server: connects the SIP sessions and data channels of agents with the broker's links.

::

    SIP  ──▶ user agent ──sessions──▶ DeviceSignalling ──▶ user agent, transports, broker
    data ──▶ transports ──messages──▶ LinkTraffic      ──▶ broker, user agent
             broker     ──messages──▶ LinkTraffic      ──▶ transports, baseline, light door, user agent, servers
    servers ─▶ links    ──messages──▶ ServerTraffic    ──▶ broker, sessions at leaders
    ECI  ──▶ baseline   ──messages──▶ LinkTraffic      ──▶ broker
    light ─▶ door       ──messages──▶ LinkTraffic      ──▶ broker

It opens and closes the broker's links, and stores the signalling state that must survive a restart in the broker's log:
dialogs and SDP persist, the state and the keys of data channels never do (DESIGN 6.3). After a restart it answers
packets of unknown connections with a reset, and renews its sessions by re-INVITE, paced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from wanderbus.access.baseline import ECI_SOCKET, Baseline
from wanderbus.access.device_signalling import DeviceSignalling
from wanderbus.access.federation_parts import FEDERATION, FOREIGN_LINKS, FOREIGN_SOCKET, FederationParts
from wanderbus.access.federation_traffic import FederationTraffic
from wanderbus.access.light_door import CALL_PREFIX, LightDoor
from wanderbus.access.light_messages import LIGHT
from wanderbus.access.link_metrics import link_samples
from wanderbus.access.link_traffic import LinkTraffic, consumed_units
from wanderbus.access.lone_handovers import LoneHandovers
from wanderbus.access.messages import DevicesRestored
from wanderbus.access.parts import BASELINE, TRANSPORTS, USER_AGENT
from wanderbus.access.session_channels import SessionChannels
from wanderbus.access.session_table import SessionTable
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import (
    Appended,
    DiskFreed,
    DiskFull,
    EventsRead,
    HistoryRead,
    KernelLoaded,
    MatchesRead,
    OffsetFound,
    ServerAnswered,
)
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.composition import Composition
from wanderbus.datachannel import DATA_SOCKET, STREAM_SOCKET, Transports
from wanderbus.detection import MakeDetector
from wanderbus.federation.messages import FederationChanged, GatewaysFound
from wanderbus.machine import (
    Address,
    ClockRead,
    DatagramReceived,
    Input,
    Output,
    RandomSource,
    StreamClosed,
    StreamReceived,
    TimerFired,
)
from wanderbus.metrics import Sample, counted, fields_of
from wanderbus.mobility import messages as sip
from wanderbus.mobility.checked_admission import checked
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.session.session import RemoteMediaStatus
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.parameters.signalling import FloodLimits
from wanderbus.parameters.transports import RudpConfig, TcpConfig
from wanderbus.peers.far_servers import FarDomains
from wanderbus.peers.handover.session_handovers import SessionHandovers
from wanderbus.peers.messages import ServerLinksInput
from wanderbus.peers.owner_messages import CallPostponed, CallRedirected, CallServed
from wanderbus.peers.parts import (
    BROKER,
    DECENTRALISED_INTEREST,
    SERVER_LINKS,
    SERVER_SOCKET,
)
from wanderbus.peers.server_parts import ServerParts
from wanderbus.peers.server_traffic import ServerTraffic
from wanderbus.peers.session_owners import SessionOwners
from wanderbus.sip.authentication.digest import Authenticator
from wanderbus.transport import TransportInput

__all__ = ["DATA_SOCKET", "ECI_SOCKET", "SIP_SOCKET", "STREAM_SOCKET", "AccessServer"]

SIP_SOCKET: Final = "broker-sip"

ACK_DELAY_S: Final = 0.005
"""Time that an ACK waits for a message of the broker to send it with; that is often after a disk sync."""


class AccessServer:
    """Composes user agent, data transports and broker into one machine.

    :param data_address: address for reliable UDP
    :param host: host that its socket is bound to, if it differs from the one in descriptions
    :param stream_address: address for TCP connections, with TLS if ``encryption`` is on
    :param flood: limits of requests from one source, except the server; None accepts all (SPEC C-20)
    :param encryption: whether data channels must be encrypted; others are refused (SPEC U-05)
    :param reset_key: key kept over restarts, so that agents accept the resets of the next life
    :param fingerprint: SHA-256 of the certificate used at ``stream_address``
    :param baseline: serves the original ECI, which knows no authentication; None does not (SPEC A-09)
    :param light: serves lightweight clients (SPEC P-02); None does not
    :param servers: the parts for the other servers of the domain; None without any
    :param federation: the parts for other domains; None without any
    :param make_detector: returns the failure detector of each data channel; None for the defaults (SPEC G-26)
    """

    def __init__(
        self,
        properties: Properties,
        broker: Broker,
        random: RandomSource,
        *,
        sip_address: Address,
        data_address: Address,
        host: str | None = None,
        stream_address: Address,
        authenticator: Authenticator | None,
        flood: FloodLimits | None = None,
        encryption: bool = True,
        reset_key: bytes,
        fingerprint: bytes = b"",
        rudp: RudpConfig | None = None,
        tcp: TcpConfig | None = None,
        baseline: Baseline | None = None,
        light: LightDoor | None = None,
        servers: ServerParts | None = None,
        federation: FederationParts | None = None,
        make_detector: MakeDetector | None = None,
    ) -> None:
        rudp, tcp = rudp or RudpConfig(), tcp or TcpConfig()
        self.broker = broker
        self._properties = properties
        self._baseline = baseline
        self._light = light
        self._transports = _make_transports(random, rudp, tcp, reset_key, fingerprint, make_detector)
        self._user_agent = UserAgent(
            properties, random, socket=SIP_SOCKET, contact=sip_address, admission=checked(authenticator, flood)
        )
        channels = SessionChannels(
            properties,
            self._transports,
            authenticator,
            data_address=data_address,
            stream_address=stream_address,
            host=host,
            encryption=encryption,
        )
        self._sessions = SessionTable()
        self._parts = Composition[Output]()
        self._signalling = DeviceSignalling(
            self._parts,
            self._user_agent,
            broker,
            self._sessions,
            channels,
            asks_owner=servers is not None or federation is not None,
            is_alone=servers is None,
        )
        self._make_domains(servers, federation)
        self._add_parts(consumed_units(rudp, tcp))

    def _add_parts(self, consumed_units: float) -> None:
        """Add the parts for agents, and the broker."""
        traffic = LinkTraffic(
            self._parts,
            self._transports,
            self.broker,
            self._sessions,
            self._signalling,
            consumed_units,
            self._servers,
            self._federation,
            self._lone,
            has_light=self._light is not None,
        )
        self._parts.add(USER_AGENT, self._user_agent.step, self._signalling.route)
        self._parts.add(TRANSPORTS, self._transports.step, traffic.route_transports)
        self._parts.add(BROKER, self.broker.step, traffic.route_broker)
        if self._baseline is not None:
            self._parts.add(BASELINE, self._baseline.step, traffic.route_baseline)
        if self._light is not None:
            self._parts.add(LIGHT, self._light.step, traffic.route_light)

    def start(self, wall_us: int, now: float, rolled_back: str = "") -> list[Output]:
        """Begin to serve: register, restore the sessions of the log, and renew them paced.

        ``rolled_back`` says how it is known that the log is an earlier copy of itself, "" if nothing says so.
        """
        self._parts.precede(BROKER, ClockRead(wall_us))
        self._parts.give(BROKER, [ServerStarted(rolled_back)])
        self._parts.give(USER_AGENT, [sip.Start()])
        self._parts.run(now)
        self._signalling.restore(now)
        if self._servers is not None:
            self._servers.start(now)
            self._parts.run(now)
        if self._federation is not None:
            self._federation.start(now, self.broker.state, self.broker.config.domain)
            self._parts.run(now)
        if self._lone is not None:
            self._lone.start(now)
            self._parts.run(now)
        if self._baseline is not None:
            self._parts.give(BASELINE, [DevicesRestored(tuple(self.broker.state.devices.values()))])
            self._parts.run(now)
        return self._parts.take_outputs()

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order.

        Datagrams come last, as one batch of the transports and one of the links between servers; every other input is
        finished before the next one.
        """
        for_transports: list[TransportInput] = []
        for_servers: list[ServerLinksInput] = []
        for_gateways: list[ServerLinksInput] = []
        for given in inputs:
            if type(given) is ClockRead:
                self._parts.precede(BROKER, given)
                if self._federation is not None:
                    self._federation.clock_read(given)
            elif self._transports.takes(given):
                for_transports.append(given)
            elif self._servers is not None and type(given) is DatagramReceived and given.socket == SERVER_SOCKET:
                for_servers.append(given)
            elif self._federation is not None and type(given) is DatagramReceived and given.socket == FOREIGN_SOCKET:
                for_gateways.append(given)
            elif type(given) is FederationChanged:
                if self._federation is not None:
                    self._federation.end_links()
                    self._parts.run(now)
                    self._federation.change(given, now)
                    self._parts.run(now)
            else:
                self._sort(given, now)
                self._parts.run(now)
        if for_transports or for_servers or for_gateways:
            self._parts.give(TRANSPORTS, for_transports)
            self._parts.give(SERVER_LINKS, for_servers)
            self._parts.give(FOREIGN_LINKS, for_gateways)
            self._parts.run(now)
        return self._parts.take_outputs()

    def _make_domains(self, servers: ServerParts | None, federation: FederationParts | None) -> None:
        """Make the traffic with other servers and domains."""
        domains = FarDomains() if federation is None else federation.domains
        visit_key = b"" if federation is None else federation.visit_key
        self._servers = None if servers is None else self._make_traffic(servers, domains, visit_key)
        self._lone = self._make_lone(domains, visit_key) if servers is None and federation is not None else None
        self._federation: FederationTraffic | None = None
        if federation is not None:
            federation.member.called_at((self._properties.uri,))
            self._federation = FederationTraffic(self._parts, federation, self._servers, self._lone)

    def _make_traffic(self, servers: ServerParts, domains: FarDomains, visit_key: bytes) -> ServerTraffic:
        """Return the traffic with the other servers, which decides where new calls are served, too."""
        state, domain = self.broker.state, self.broker.config.domain
        takes = servers.name in servers.access
        # A call that passes the proxy of its new server gets a relay there, as it did at its former one.
        contacts = self._properties.reached_at or (self._user_agent.contact_uri,)
        owners = SessionOwners(servers.others, state, contacts, takes=takes, fetches=domains.fetches)
        options = self._handover_options(domains, visit_key)
        handovers = SessionHandovers(
            servers.others, servers.access, state, domain, servers.networks, serves=takes, **options
        )
        return ServerTraffic(
            self._parts, servers, domain, owners, self._on_decided, handovers, self._signalling.carry_out
        )

    def _on_decided(self, decision: CallServed | CallRedirected | CallPostponed) -> None:
        """Pass the decision about a call on to what has asked."""
        if decision.call.startswith(CALL_PREFIX):
            self._parts.give(LIGHT, [decision])
        else:
            self._signalling.on_decided(decision)

    def _make_lone(self, domains: FarDomains, visit_key: bytes) -> LoneHandovers:
        """Return what moves sessions to other domains, and redirects calls there, if this server is alone."""
        state = self.broker.state
        owners = SessionOwners((), state, (), fetches=domains.fetches)
        options = self._handover_options(domains, visit_key)
        handovers = SessionHandovers((), (), state, self.broker.config.domain, **options)
        return LoneHandovers(self._parts, owners, handovers, self._on_decided, self._signalling.carry_out)

    def _handover_options(self, domains: FarDomains, visit_key: bytes) -> dict[str, Any]:
        return {"domains": domains, "service": self._properties.uri, "visit_key": visit_key}

    @property
    def refused(self) -> Counter[str]:
        """Refused data channels by reason; there are few different reasons."""
        return self._signalling.refused

    def dropped(self) -> dict[str, int]:
        """Return the counts of invalid packets that were dropped on the data path, by reason."""
        udp, tcp = self._transports.udp.endpoint.counters, self._transports.tcp.endpoint.counters
        return {
            "malformed": udp.malformed + tcp.malformed,
            "forged": udp.forged + tcp.forged,
            "eci": 0 if self._baseline is None else self._baseline.dropped,
            "light": 0 if self._light is None else self._light.malformed,
        }

    def metrics(self) -> Iterator[Sample]:
        """Yield the samples of this machine (SPEC U-08)."""
        yield from self.broker.metrics.samples()
        yield from fields_of("rudp_total", self._transports.udp.endpoint.counters)
        yield from fields_of("tcp_total", self._transports.tcp.endpoint.counters)
        yield from counted("channels_refused_total", self.refused)
        yield from link_samples(self.server_rows(), self.federation_rows())

    def server_rows(self) -> tuple[Mapping[str, Any], ...]:
        """Return a row for each other server of the domain, as :class:`~wanderbus.operator_rows.ServerInfo`."""
        if self._servers is None:
            return ()
        rows: dict[str, dict[str, Any]] = {}
        for each in self._servers.statuses():
            rows[each.leader] = {
                "is_linked": each.is_linked,
                "subscriptions": each.subscriptions,
                "is_settled": each.is_settled,
                "waiting_publishes": each.waiting_publishes,
                "last_number": each.number,
            }
        for name, here in self.broker.server_rows().items():
            rows.setdefault(name, {}).update(here)
        for name, counts in self._servers.multicast_counts().items():
            rows.setdefault(name, {}).update(multicast_changes=counts.sent, repaired_changes=counts.repaired)
        for name, reason in self._servers.troubles().items():
            rows.setdefault(name, {}).update(trouble=reason)
        for name, moving in self._servers.handover_rows().items():
            rows.setdefault(name, {}).update(moving)
        return tuple({"server": name, **row} for name, row in rows.items())

    def federation_rows(self) -> tuple[Mapping[str, Any], ...]:
        """Return a row for each foreign domain, at a gateway."""
        if self._federation is None:
            return ()
        return tuple({"domain": name, **row} for name, row in self._federation.rows().items())

    def media_statuses(self) -> dict[str, list[RemoteMediaStatus]]:
        """Return the Remote Media Status of every session with a device, by user."""
        statuses: dict[str, list[RemoteMediaStatus]] = {}
        for session in self._user_agent.sessions.values():
            statuses.setdefault(session.remote_uri, []).append(session.media_status)
        return statuses

    def _sort(self, given: Input, now: float) -> None:
        """Give one input to its part."""
        match given:
            case (
                Appended()
                | DiskFull()
                | DiskFreed()
                | KernelLoaded()
                | ServerAnswered()
                | OffsetFound()
                | HistoryRead()
                | EventsRead()
                | MatchesRead()
            ):
                self._parts.give(BROKER, [given])
            case GatewaysFound():
                self._parts.give(FEDERATION, [given])
            case DatagramReceived(socket="eci"):
                if self._baseline is not None:
                    self._parts.give(BASELINE, [given])
            case DatagramReceived(socket="multicast"):
                self._parts.give(DECENTRALISED_INTEREST, [given])
            case StreamReceived(socket="light") | StreamClosed(socket="light"):
                if self._light is not None:
                    self._parts.give(LIGHT, [given])
            case DatagramReceived() | StreamReceived() | StreamClosed():
                self._parts.give(USER_AGENT, [given])
            case TimerFired(key="register"):
                self._parts.give(USER_AGENT, [sip.Start()])
            case TimerFired(key=("renew", session)):
                self._signalling.renew(str(session))
            case TimerFired(key=("connect", user)):
                self._signalling.serve_waiting(str(user), now)
            case TimerFired(key=key):
                self._parts.give_timer(key)


def _make_transports(
    random: RandomSource,
    rudp: RudpConfig,
    tcp: TcpConfig,
    reset_key: bytes,
    fingerprint: bytes,
    make_detector: MakeDetector | None,
) -> Transports:
    transports = Transports(
        random,
        # Messages that the broker has not processed yet keep the sender's window closed.
        rudp_config=msgspec.structs.replace(rudp, ack_delay_s=ACK_DELAY_S, consume_at_once=False),
        tcp_config=msgspec.structs.replace(tcp, consume_at_once=False),
        reset_key=reset_key,
        fingerprint=fingerprint,
        make_detector=make_detector,
    )
    transports.load()
    return transports
