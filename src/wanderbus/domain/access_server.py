"""Access server: connects the SIP sessions and data channels of agents with the broker's links.

It opens and closes the broker's links, and stores the signalling state that must survive a restart in the broker's log:
dialogs and SDP persist, the state and the keys of data channels never do (DESIGN 6.3). After a restart it answers
packets of unknown connections with a reset, and renews its sessions by re-INVITE, paced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from wanderbus.broker.core import (
    Append,
    Appended,
    Broker,
    DialogChanged,
    DiskFreed,
    DiskFull,
    KernelLoaded,
    LinkClosed,
    LinkDropped,
    LinkOpened,
    MessageArrived,
    SendOnLink,
    ServerAnswered,
    ServerAsked,
    ServerStarted,
)
from wanderbus.broker.fair_queue import BYTES_A_UNIT
from wanderbus.datachannel import (
    DATA_SOCKET,
    RELAY,
    STREAM_SOCKET,
    DataChannel,
    Parties,
    Transports,
    channel_secret,
    protocol_over,
)
from wanderbus.domain.baseline import ECI_SOCKET, Baseline
from wanderbus.domain.connect_pacing import ConnectPacing
from wanderbus.domain.session_table import DeviceSession, SessionTable
from wanderbus.errors import LimitExceeded, LocalProtocolError, RemoteProtocolError, StateCorrupt
from wanderbus.hosts import network_of
from wanderbus.machine import (
    Address,
    CancelTimer,
    ClockRead,
    CloseStream,
    DatagramReceived,
    Input,
    Output,
    RandomSource,
    SendDatagram,
    SendOnStream,
    SetTimer,
    StreamClosed,
    StreamReceived,
    TimerFired,
    scoped,
    unscoped,
)
from wanderbus.mobility import messages as sip
from wanderbus.mobility.checked_admission import checked
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.session.status import RemoteMediaStatus
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.parameters.transports import RudpConfig, TcpConfig
from wanderbus.refusal_table import Limited
from wanderbus.sip.authentication.digest import Authenticator
from wanderbus.sip.authentication.login_guard import LoginRefused
from wanderbus.sip.message.media_direction import receives
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.transaction.flood_limits import FloodLimits
from wanderbus.transport import ConnectionFailed, ConnectionReset, Consumed, MessageReceived, Probe, SendMessage

__all__ = [
    "DATA_SOCKET",
    "ECI_SOCKET",
    "SIP_SOCKET",
    "STREAM_SOCKET",
    "AccessServer",
    "BrokerRegistered",
    "BrokerUnregistered",
    "ChannelRefused",
]

SIP_SOCKET: Final = "broker-sip"

RENEW_AFTER_S: Final = 0.3
"""Pause before the first renewal: agents that are sending receive a reset, and renew their sessions themselves."""

RENEW_PACE_S: Final = 0.01
"""Pause between two renewals."""

REGISTRATION_REFUSALS: Final = frozenset({401, 403, 404, 407})
"""Responses to a REGISTER that a retry would not change, so the user agent gives up."""

REGISTER_AGAIN_S: Final = 30.0
"""Pause before the next attempt after such a response: the operator may have corrected the configuration."""

WITHHELD_MAX: Final = 4_096
"""Messages kept for a device on hold; with more, its session is ended."""

ACK_DELAY_S: Final = 0.005
"""Time that an ACK waits for a message of the broker to send it with; that is often after a disk sync."""


CONSUMED_UNITS: Final = 64
"""Weight of processed messages after which the endpoints are informed, if nothing else is sent meanwhile."""

WINDOW_PARTS: Final = 4
"""Divisor of a connection's least window, which also bounds that weight, so that no sender waits for it."""


class BrokerRegistered(Output, frozen=True):
    """The broker is registered: agents can call it by its URI from now on."""


class BrokerUnregistered(Output, frozen=True):
    """The broker could not register, with this SIP ``status`` (None: timeout); it keeps trying."""

    status: int | None
    reason: str


class ChannelRefused(Output, frozen=True):
    """A data channel of ``user`` was refused: it is not sufficient, is not the user's, or met ``limit``."""

    user: str
    reason: str
    limit: str | None = None


def _consumed_units(rudp: RudpConfig, tcp: TcpConfig) -> float:
    """Return the weight of processed messages after which the endpoints are informed."""
    least_bytes = min(rudp.receive_window_frames * rudp.datagram_bytes_max, tcp.receive_window_bytes)
    return min(CONSUMED_UNITS, least_bytes / WINDOW_PARTS / BYTES_A_UNIT)


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
    ) -> None:
        self.broker = broker
        self._baseline = baseline
        self.refused: Counter[str] = Counter()
        """Refused data channels by reason; there are few different reasons."""
        self._properties = properties
        self._data_address = data_address
        self._host = host or data_address[0]
        self._stream_address = stream_address
        self._encryption = encryption
        self._authenticator = authenticator
        self._transports = Transports(
            random,
            # Messages that the broker has not processed yet keep the sender's window closed.
            rudp_config=msgspec.structs.replace(rudp or RudpConfig(), ack_delay_s=ACK_DELAY_S, consume_at_once=False),
            tcp_config=msgspec.structs.replace(tcp or TcpConfig(), consume_at_once=False),
            reset_key=reset_key,
            fingerprint=fingerprint,
        )
        self._transports.load()
        self._user_agent = UserAgent(
            properties, random, socket=SIP_SOCKET, contact=sip_address, admission=checked(authenticator, flood)
        )
        self._consumed_units = _consumed_units(rudp or RudpConfig(), tcp or TcpConfig())
        self._sessions = SessionTable()
        self._pacing = ConnectPacing(broker.config.user_connects_per_s)
        self._clock: list[Input] = []
        """The clock reading of this batch, until it is passed to the broker."""
        self._appends: list[Output] = []
        self._outputs: list[Output] = []

    def start(self, wall_us: int, now: float) -> list[Output]:
        """Begin to serve: register, restore the sessions of the log, and renew them paced."""
        self._step_broker([ClockRead(wall_us), ServerStarted()], now)
        self._step_user_agent([sip.Start()], now)
        at = now + RENEW_AFTER_S
        for device in list(self.broker.state.devices.values()):
            if device.binding:
                try:
                    identity = self._user_agent.adopt(device.binding)
                except LocalProtocolError as error:
                    raise StateCorrupt(f"the stored session of {device.user} cannot be read: {error}") from None
                channel = self._channel(identity, device.user)
                self._sessions.add(DeviceSession(identity, device.user, device.device, channel))
                self._outputs.append(SetTimer(("renew", identity), at))
                at += RENEW_PACE_S
        if self._baseline is not None:
            self._take_baseline(self._baseline.start(list(self.broker.state.devices.values()), now), now)
        return self._drain()

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        for_data: list[Input] = []
        for given in inputs:
            if self._transports.takes(given):
                for_data.append(given)
                continue
            match given:
                case DatagramReceived(socket="eci") | TimerFired(key=("eci", _)):
                    self._step_baseline([given], now)
                case DatagramReceived() | StreamReceived() | StreamClosed() | TimerFired(key=("sip", _)):
                    self._step_user_agent([given], now)
                case TimerFired(key="register"):
                    self._step_user_agent([sip.Start()], now)
                case TimerFired(key=("renew", session)):
                    self._renew(str(session), now)
                case TimerFired(key=("connect", user)):
                    self._serve_waiting(str(user), now)
                case ClockRead():
                    self._clock = [given]
                case TimerFired(key=("broker", _)):
                    self._step_broker([given], now)
                case Appended() | DiskFull() | DiskFreed() | KernelLoaded() | ServerAnswered():
                    self._step_broker([given], now)
        if for_data:
            self._step_data(for_data, now)
        return self._drain()

    def dropped(self) -> dict[str, int]:
        """Return the counts of invalid packets that were dropped on the data path, by reason."""
        udp, tcp = self._transports.udp.endpoint.counters, self._transports.tcp.endpoint.counters
        return {
            "malformed": udp.malformed + tcp.malformed,
            "forged": udp.forged + tcp.forged,
            "eci": 0 if self._baseline is None else self._baseline.dropped,
        }

    def media_statuses(self) -> dict[str, list[RemoteMediaStatus]]:
        """Return the Remote Media Status of every session with a device, by user."""
        statuses: dict[str, list[RemoteMediaStatus]] = {}
        for session in self._user_agent.sessions.values():
            statuses.setdefault(session.remote_uri, []).append(session.media_status)
        return statuses

    def _drain(self) -> list[Output]:
        """Return the outputs, records for the log first: the others are carried out during the sync."""
        outputs = self._appends + self._outputs
        self._appends, self._outputs, self._clock = [], [], []
        return outputs

    def _channel(self, session: str, user: str) -> DataChannel:
        """Return a new data channel for a session, over the transport that it used before a restart."""
        uri, ours = SIPUri.parse(user), SIPUri.parse(self._properties.uri)
        is_ours = uri.host == ours.host
        ha1 = self._authenticator.secret_of(uri.user) if self._authenticator and uri.user and is_ours else None
        parties = Parties(
            role="broker",
            agent=user,
            broker=self._properties.uri,
            dialog=session,
            secret=None if ha1 is None else channel_secret(ha1),
            # Between domains everything must use TLS, or the server could not vouch for its users.
            over_tls=self._properties.transport == "TLS" or (self._properties.server_is_local and not is_ours),
        )
        known = self._user_agent.sessions.get(session)
        media = known.local_media if known else None
        protocol = protocol_over(media.protocol if media else "UDP", encryption=self._encryption)
        channel = DataChannel(self._transports, parties, encryption=self._encryption, protocol=protocol)
        channel.relayed = media is not None and media.attribute(RELAY) is not None
        return channel

    def _renew(self, identity: str, now: float) -> None:
        """Offer a new data channel in a session from before the restart, unless its agent has already done so."""
        session = self._sessions.by_id.get(identity)
        if session and session.channel.remote is None:
            self._take_data(session.channel.offer(now), now)
            self._step_user_agent([sip.UpdateSession(identity, self._media(session))], now)

    def _media(self, session: DeviceSession) -> MediaDescription:
        udp = session.channel.protocol == "UDP"
        return session.channel.describe(self._data_address if udp else self._stream_address)

    def _step_user_agent(self, inputs: Sequence[Input], now: float) -> None:
        for output in scoped("sip", self._user_agent.step([unscoped(given) for given in inputs], now)):
            match output:
                case sip.SessionOffered(id=identity) if identity in self._sessions.by_id:
                    self._on_session_offered(output, now)
                case sip.SessionOffered():
                    self._on_new_session_offered(output, now)
                case sip.SessionEstablished(id=identity, media=media):
                    if session := self._sessions.by_id.get(identity):
                        self._on_session_established(session, media, now)
                case sip.UpdateFailed(id=identity, reason=reason) | sip.SessionRemoved(id=identity, reason=reason):
                    self._pacing.withdraw(identity)
                    self._on_session_removed(identity, reason, now)
                case sip.Registered():
                    self._outputs.append(BrokerRegistered())
                case sip.RegistrationFailed(status=status, reason=reason):
                    self._outputs.append(BrokerUnregistered(status, reason))
                    if status in REGISTRATION_REFUSALS:
                        self._outputs.append(SetTimer("register", now + REGISTER_AGAIN_S))
                case SendDatagram() | SendOnStream() | CloseStream() | SetTimer() | CancelTimer():
                    self._outputs.append(output)
                case LoginRefused() | Limited():
                    self._outputs.append(output)

    def _on_new_session_offered(self, offer: sip.SessionOffered, now: float) -> None:
        """Serve the offer of a new session, or let it wait while its user opens sessions too fast."""
        if not self._pacing.add(offer):
            self._outputs.append(Limited("broker.user_connects_per_s", offer.remote_uri, "refused"))
            self._step_user_agent([sip.Refuse(offer.id, 503)], now)
        elif offer not in self._serve_waiting(offer.remote_uri, now):
            self._outputs.append(Limited("broker.user_connects_per_s", offer.remote_uri, "a new session waits"))

    def _serve_waiting(self, user: str, now: float) -> list[sip.SessionOffered]:
        """Serve the offers of ``user`` that are due, and return them."""
        due, next_at = self._pacing.take_due(user, now)
        if next_at is not None:
            self._outputs.append(SetTimer(("connect", user), next_at))
        for offer in due:
            self._on_session_offered(offer, now)
        return due

    def _on_session_offered(self, offer: sip.SessionOffered, now: float) -> None:
        """Answer an authenticated agent that opens its session, or moves to another address in it."""
        session = self._sessions.by_id.get(offer.id)
        if session is None:
            device = (offer.instance or offer.id).removeprefix("<urn:uuid:").removesuffix(">")
            session = DeviceSession(offer.id, offer.remote_uri, device, self._channel(offer.id, offer.remote_uri))
        former = session.channel.local
        try:
            self._check_room(session)
            opened, outputs = session.channel.accept(session.channel.read(offer.media, self._host), now)
        except (RemoteProtocolError, LimitExceeded) as error:
            self._refused(session, error)
            self._step_user_agent([sip.Refuse(offer.id, 488, str(error))], now)
            return
        previous = self._sessions.by_device.get((session.user, session.device))
        if previous is not None and previous is not session:
            # The same device opened a new session: the old one is over (SPEC E-10).
            self._hang_up(previous, now)
        self._sessions.add(session)
        if opened:
            session.fresh = True
            self._sessions.connected(session, former)
        self._take_data(outputs, now)
        self._step_user_agent([sip.Answer(offer.id, self._media(session), renews=True)], now)

    def _check_room(self, session: DeviceSession) -> None:
        """Raise :class:`LimitExceeded` if a new session would be one device too many for its user."""
        if session.id in self._sessions.by_id:
            return
        others = self._sessions.others(session.user, session.device)
        if refusal := self.broker.refusal(session.user, session.device, others, self._sessions.by_device):
            raise refusal

    def _refused(self, session: DeviceSession, error: RemoteProtocolError | LimitExceeded) -> None:
        self.refused[str(error)] += 1
        limit = error.limit if isinstance(error, LimitExceeded) else None
        self._outputs.append(ChannelRefused(session.user, str(error), limit))

    def _hang_up(self, session: DeviceSession, now: float) -> None:
        self._forget(session, now)
        self._step_user_agent([sip.TerminateSession(session.id)], now)

    def _forget(self, session: DeviceSession, now: float) -> None:
        self._sessions.remove(session)
        self._take_data(session.channel.close(now), now)

    def _on_session_established(self, session: DeviceSession, media: MediaDescription, now: float) -> None:
        """Store an established or updated session for a restart, and report a new link to the broker.

        The session may have ended in the same batch; the next output reports that.
        """
        sip_session = self._user_agent.sessions.get(session.id)
        if sip_session is None:
            return
        try:
            remote = session.channel.read(media, self._host)
            opened, outputs = session.channel.agreed(remote, now)
        except RemoteProtocolError as error:
            self._refused(session, error)
            if session.channel.remote is None:
                self._step_user_agent([sip.SetMediaStatus(session.id, RemoteMediaStatus.DISCONNECTED)], now)
            return
        self._sessions.connected(session)
        self._take_data(outputs, now)
        session.held = not receives(media)
        self._send_withheld(session, now)
        if session.channel.protocol == "UDP" and not session.held:
            # Behind a NAT of our own, packets come in only after a packet went out.
            self._step_data([Probe(session.channel.local)], now)
        address = f"{remote.address[0]}:{remote.address[1]}"
        inputs: list[Input] = []
        if opened or session.fresh:
            session.fresh = False
            inputs.append(LinkOpened(self._sessions.new_link(session), session.user, session.device))
        inputs.append(DialogChanged(session.user, session.device, address, sip_session.snapshot()))
        self._step_broker(inputs, now)

    def _send_withheld(self, session: DeviceSession, now: float) -> None:
        """Send the broker's messages from the time on hold, before anything newer."""
        if session.withheld and not session.held:
            withheld, session.withheld = session.withheld, []
            self._step_data([SendMessage(session.channel.local, payload) for payload in withheld], now)

    def _on_session_removed(self, identity: str, reason: str, now: float) -> None:
        if session := self._sessions.by_id.get(identity):
            self._forget(session, now)
            self._unbind(session, reason, now)

    def _unbind(self, session: DeviceSession, reason: str, now: float) -> None:
        self._step_broker([LinkClosed(session.link, reason), DialogChanged(session.user, session.device, "", b"")], now)

    def _step_data(self, inputs: Iterable[Input], now: float) -> None:
        self._take_data(self._transports.step(inputs, now), now)

    def _take_data(self, outputs: Iterable[Output], now: float) -> None:
        arrived: list[Input] = []
        for output in outputs:
            match output:
                case SendDatagram() | SendOnStream() | CloseStream() | SetTimer() | CancelTimer() | Limited():
                    self._outputs.append(output)
                case MessageReceived(local_id=connection, payload=payload):
                    if session := self._sessions.by_connection.get(connection):
                        arrived.append(MessageArrived(session.link, payload))
                case ConnectionFailed(local_id=connection, reason=reason):
                    arrived += self._on_connection_lost(connection, reason.replace("the other side", "the agent"), now)
                case ConnectionReset(local_id=connection):
                    arrived += self._on_connection_lost(connection, "the agent was restarted", now)
        if arrived:
            self._step_broker(arrived, now)

    def _on_connection_lost(self, connection: int, reason: str, now: float) -> list[Input]:
        """Set the media status to DISCONNECTED after a failure; the SIP status stays (SPEC C-14, G-02).

        The connection is forgotten, not probed: an agent that did not notice gets a reset for its next packet.
        """
        session = self._sessions.lost(connection)
        if session is None:
            return []
        self._take_data(session.channel.close(now), now)
        self._step_user_agent([sip.SetMediaStatus(session.id, RemoteMediaStatus.DISCONNECTED)], now)
        return [LinkClosed(session.link, reason)]

    def _step_baseline(self, given: Sequence[Input | Output], now: float) -> None:
        if self._baseline is not None:
            self._take_baseline(self._baseline.step(given, now), now)

    def _take_baseline(self, taken: tuple[list[Input], list[Output]], now: float) -> None:
        for_broker, outputs = taken
        self._outputs += outputs
        if for_broker:
            self._step_broker(for_broker, now)

    def _sources(self, link: int) -> tuple[str, ...]:
        """Return the network from which a link's data provably come, empty if unknown or if it is a relay's."""
        session = self._sessions.by_link.get(link)
        address = None if session is None else self._transports.proved_address(session.channel.local)
        return () if session is None or address is None or session.channel.relayed else (network_of(address[0]),)

    def _step_broker(self, inputs: Sequence[Input], now: float) -> None:
        sending: list[Input] = []
        by_address: list[Output] = []
        dropped: list[tuple[DeviceSession, str]] = []
        clock, self._clock = self._clock, []
        for output in scoped("broker", self.broker.step(clock + [unscoped(given) for given in inputs], now)):
            match output:
                case SendOnLink(link=link) | LinkDropped(link=link) if link < 0:
                    by_address.append(output)
                case SendOnLink(link=link, payload=payload):
                    if session := self._sessions.by_link.get(link):
                        if not session.held:
                            sending.append(SendMessage(session.channel.local, payload))
                        elif len(session.withheld) < WITHHELD_MAX:
                            session.withheld.append(payload)
                        else:
                            dropped.append((session, "on hold, with too many waiting messages"))
                            reason = "session ended, its device was on hold and too much waited"
                            self._outputs.append(Limited("access_server.WITHHELD_MAX", session.user, reason))
                case LinkDropped(link=link, reason=reason):
                    if session := self._sessions.by_link.get(link):
                        dropped.append((session, reason))
                case Append():
                    self._appends.append(output)
                case ServerAsked(link=link):
                    self._outputs.append(msgspec.structs.replace(output, sources=self._sources(link)))
                case _:
                    self._outputs.append(output)
        self._step_user_agent(
            [
                sip.SetMediaStatus(session.id, RemoteMediaStatus.DISCONNECTED)
                for link in self.broker.take_closed_links()
                if (session := self._sessions.by_link.get(link))
            ],
            now,
        )
        if sending or self.broker.done_units >= self._consumed_units:
            for link, count in self.broker.take_done().items():
                if session := self._sessions.by_link.get(link):
                    sending.append(Consumed(session.channel.local, count))
        if sending:
            self._step_data(sending, now)
        if by_address:
            self._step_baseline(by_address, now)
        for session, reason in dropped:
            self._hang_up(session, now)
            self._unbind(session, reason, now)
