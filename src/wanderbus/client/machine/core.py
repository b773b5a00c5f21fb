"""State machine of the agent: one SIP user agent, one session with the broker, one data channel that heals (SPEC D-06,
D-08, D-10, G-01).

Order on a move (SPEC D-08): REGISTER at once, re-INVITE without waiting for its response; data resume with the broker's
response to the re-INVITE. While DISCONNECTED, the failed connection is probed, and a response triggers a re-INVITE at
once; further re-INVITEs are sent at longer intervals too. If the broker no longer knows the SIP session, the agent
creates another one; the broker session with its queue is durable.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Final

from wanderbus.client.machine.conversation import Conversation, OfReaders
from wanderbus.client.machine.data_path import DataPath
from wanderbus.client.machine.heal_pacing import HealPacing
from wanderbus.client.machine.identity import parties_of, sip_properties_of
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentProperties,
    AgentStatusChanged,
    Ask,
    Connect,
    ConnectRefused,
    Disconnect,
    Disconnected,
    Moved,
    PublishEvent,
    ServerUnreachable,
)
from wanderbus.client.machine.path_choice import Way
from wanderbus.client.machine.stranger_limits import Strangers
from wanderbus.datachannel import DATA_SOCKET, STREAM_SOCKET
from wanderbus.errors import RemoteProtocolError
from wanderbus.machine import (
    Address,
    CancelTimer,
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
from wanderbus.mobility.session.status import RemoteMediaStatus, SIPCommunicationStatus
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.parameters.transports import RudpConfig, TcpConfig
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.transport import ConnectionFailed, ConnectionReset, MessageReceived, Probe, ProbeAnswered, SendMessage

__all__ = ["DATA_SOCKET", "REFUSALS", "SIP_SOCKET", "STREAM_SOCKET", "Agent"]

SIP_SOCKET: Final = "sip"
REFUSALS: Final = frozenset({401, 403, 404, 407, 488})
"""SIP responses that a retry will not change: credentials or permission are missing, or the broker does not accept the
data channel."""

_WAY_REFUSALS: Final = frozenset({488, 503})
"""SIP responses that may refuse only the path of the data channel: its transport, or a relay."""

_RELAY_S: Final = 4.0
"""Extra time for a proxy to ask relays, before an offer that requests one counts as unanswered."""

_DRAIN_STEP_S: Final = 0.02
_LEFT: Final = "the agent left"


class Agent:
    """State machine of one user's agent; ``sip`` and ``data`` are the addresses of its two sockets.

    Over TCP the port of ``data`` is ignored: the agent opens the connection.
    """

    def __init__(
        self,
        properties: AgentProperties,
        random: RandomSource,
        *,
        sip: Address,
        data: Address,
        rudp: RudpConfig | None = None,
        tcp: TcpConfig | None = None,
    ) -> None:
        self._properties = properties
        self._random = random
        self._data = data
        self._path = DataPath(properties, random, data[0], rudp=rudp, tcp=tcp)
        self._transports, self._channel, self._choice = self._path.transports, self._path.channel, self._path.choice
        self._conversation = Conversation(properties)
        self._user_agent = UserAgent(sip_properties_of(properties), random, socket=SIP_SOCKET, contact=sip)
        self._strangers = Strangers(properties.server, properties.strangers_per_s)
        self._session = ""
        self._started = False
        self._connected = False
        self._ever_connected = False
        self._established = False
        """True once the SIP session was answered, so that it can be updated."""
        self._fresh = False
        """True if the broker's offer has restarted the data channel, and nothing was sent on it yet."""
        self._barren = False
        """True if nothing was received on the data channel since its start."""
        self._probing = False
        """True while a response of the failed connection is expected."""
        self._heal_pause_s = properties.heal_s
        self._pacing = HealPacing(random, properties.heal_s_max)
        self._leaving_until: float | None = None
        self._outputs: list[Output] = []

    @property
    def connected(self) -> bool:
        """Return the agent's status: whether the data channel to the broker works, as far as known."""
        return self._connected

    @property
    def media_status(self) -> RemoteMediaStatus:
        """Return the Remote Media Status of the current SIP session, DISCONNECTED if there is none."""
        session = self._user_agent.sessions.get(self._session)
        return RemoteMediaStatus.DISCONNECTED if session is None else session.media_status

    @property
    def is_updating(self) -> bool:
        """Return whether an update of the current SIP session waits for its response."""
        session = self._user_agent.sessions.get(self._session)
        return session is not None and session.communication is SIPCommunicationStatus.REINVITING

    @property
    def sends_to(self) -> Address | None:
        """Return the destination address of data, None until it is negotiated."""
        return self._path.sends_to

    @property
    def way(self) -> Way:
        """Return the path of the data channel, in use or to be tried (SPEC I-08)."""
        return self._choice.way

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Process a batch of inputs at monotonic second ``now``; return the outputs in order."""
        for_data: list[Input] = []
        batch = list(inputs)
        for given, following in zip_longest(batch, batch[1:]):
            if isinstance(given, Acknowledge) and _is_superseded(given, following):
                continue
            if self._transports.takes(given):
                for_data.append(given)
            elif isinstance(given, PublishEvent | Ask | OfReaders):
                if payload := self._conversation.send(given):
                    for_data += self._sending([payload])
            else:
                self._step_data(for_data, now)
                for_data = []
                self._take(given, now)
        self._step_data(for_data, now)
        outputs, self._outputs = self._outputs, []
        return outputs

    def _take(self, given: Input, now: float) -> None:
        match given:
            case DatagramReceived(source=source) if not self._strangers.admits(source, now):
                self._outputs += self._strangers.take_reports(now)
            case DatagramReceived() | StreamReceived() | StreamClosed() | TimerFired(key=("sip", _)):
                self._step_user_agent(given, now)
            case Moved():
                self._moved(given, now)
            case TimerFired(key="heal"):
                self._heal_again(now)
                self._probe(now)
            case TimerFired(key="probe"):
                self._probe(now)
            case TimerFired(key="trial"):
                self._trial_over(now)
            case TimerFired(key="drain"):
                self._drain(now)
            case Connect():
                self._started = True
                self._step_user_agent(sip.Start(), now)
                self._heal(now)
            case Disconnect():
                self._leaving_until = now + self._properties.drain_s
                self._drain(now)

    def _moved(self, moved: Moved, now: float) -> None:
        self._data = moved.data
        self._heal_pause_s = self._properties.heal_s
        self._pacing.moved()
        on_the_channel = self._channel.moved(now)
        self._choice.moved(moved.data[0], now)
        self._step_user_agent(sip.AddressChanged(moved.sip), now)
        self._heal(now)
        self._take_data(on_the_channel, now)

    def _heal(self, now: float) -> None:
        """Send the agent's address to the broker: by a re-INVITE if there is a session, else by a new INVITE."""
        if not self._started or self._leaving_until is not None:
            return
        self._take_data(self._path.take_way(now), now)
        self._outputs.append(CancelTimer("trial"))
        if self._session in self._user_agent.sessions and self._established:
            self._take_data(self._channel.offer(now), now)
            self._step_user_agent(sip.UpdateSession(self._session, self._media()), now)
        else:
            self._invite(now)
        pause_s = self._heal_pause_s + (_RELAY_S if self._choice.relayed else 0.0)
        self._outputs.append(SetTimer("heal", now + pause_s))

    def _heal_again(self, now: float) -> None:
        """Retry, with a longer timeout: the round trip may be longer than the previous one (RFC 5626 4.5).

        After a second failure, retry with a new session: if both sides have moved, each uses the other's previous
        address, but the registrar knows the broker's current one.
        """
        if self._heal_pause_s > self._properties.heal_s:
            self._established = False
            if self._choice.is_unproven_relay and not self._connected:
                self._choice.failed("no response")
        self._heal_pause_s = min(2 * self._heal_pause_s, self._properties.heal_s_max)
        self._heal(now)

    def _invite(self, now: float) -> None:
        self._disconnected("another session is opened", now)
        if self._session in self._user_agent.sessions:
            self._step_user_agent(sip.TerminateSession(self._session, quietly=True), now)
        self._session = self._random.token(12).hex()
        self._established = False
        self._take_data(self._channel.abandon(now), now)
        self._channel.begin(parties_of(self._properties, self._session))
        self._take_data(self._channel.offer(now), now)
        invitation = sip.CreateSession(self._session, self._properties.broker, self._media(), hurried=True)
        self._step_user_agent(invitation, now)

    def _media(self) -> MediaDescription:
        return self._channel.describe(self._data)

    def _step_user_agent(self, given: Input, now: float) -> None:
        for output in scoped("sip", self._user_agent.step([unscoped(given)], now)):
            self._signalled(output, now)

    def _signalled(self, output: Output, now: float) -> None:
        match output:
            case sip.SessionEstablished(id=self._session, media=media):
                self._settle(media, now)
            case sip.SessionOffered(id=identity, media=media):
                self._offered(identity, media, now)
            case sip.SessionFailed(id=self._session, status=status, reason=reason):
                self._session_gone(status, reason, now)
            case sip.UpdateFailed(id=self._session, status=status, reason=reason):
                if status in _WAY_REFUSALS:
                    self._choice.refused(now)
                self._session_gone(None, reason, now)
            case sip.SessionRemoved(id=self._session, reason=reason):
                self._session_gone(None, reason, now)
            case sip.RegistrationFailed(status=status, reason=reason) if status in REFUSALS:
                self._outputs.append(ConnectRefused("registration", status, reason))
            case sip.RegistrationFailed(status=None, reason=reason):
                self._outputs.append(ServerUnreachable(reason))
            case sip.Unregistered():
                if self._leaving_until is not None:
                    self._outputs.append(Disconnected())
            case SendDatagram() | SendOnStream() | CloseStream() | SetTimer() | CancelTimer():
                self._outputs.append(output)

    def _offered(self, identity: str, media: MediaDescription, now: float) -> None:
        """Accept the broker's renewal of the session, as after its restart; refuse every other caller."""
        if identity != self._session:
            self._step_user_agent(sip.Refuse(identity, 603), now)
            return
        try:
            self._fresh, outputs = self._channel.accept(self._channel.read(media, self._data[0]), now)
        except RemoteProtocolError as error:
            self._step_user_agent(sip.Refuse(identity, 488, str(error)), now)
            return
        self._take_data(outputs, now)
        self._step_user_agent(sip.Answer(identity, self._media(), renews=True), now)

    def _settle(self, media: MediaDescription, now: float) -> None:
        """Become CONNECTED: offer and answer agree on the data channel (SPEC E-08).

        If the answer was tampered with, or is weaker than required, end the session instead (DESIGN 6.5).
        """
        if not self._channel.local:
            # The offered channel has ended meanwhile; the pending heal timer offers another.
            self._step_user_agent(sip.SetMediaStatus(self._session, RemoteMediaStatus.DISCONNECTED), now)
            return
        try:
            opened, outputs = self._channel.agreed(self._channel.read(media, self._data[0]), now)
        except RemoteProtocolError as error:
            disowned, self._session = self._session, ""
            self._step_user_agent(sip.TerminateSession(disowned), now)
            self._session_gone(488, str(error), now)
            return
        self._established = self._ever_connected = True
        self._strangers.know(self._user_agent.sessions[self._session].dialog)
        self._heal_pause_s = self._properties.heal_s
        self._pacing.agreed(now)
        self._probing = False
        self._take_data(outputs, now)
        self._outputs += [CancelTimer("heal"), CancelTimer("probe")]
        trial_ends_at = self._path.begin_trial(now)
        if trial_ends_at is not None:
            self._outputs.append(SetTimer("trial", trial_ends_at))
        elif self._way_failed(now, "no relay was found"):
            return
        self._connected = True
        if opened or self._fresh:
            self._fresh, self._barren = False, True
            self._step_data(self._sending(self._conversation.opening()), now)
        elif not self._choice.over_tcp:
            self._step_data([Probe(self._channel.local)], now)
        reason = self._choice.reason or "session established"
        self._outputs.append(AgentStatusChanged("CONNECTED", self._data, reason, self.way))

    def _trial_over(self, now: float) -> None:
        if self._path.is_reached():
            self._choice.succeeded(now)
        elif self._connected and self._leaving_until is None:
            self._way_failed(now)

    def _way_failed(self, now: float, reason: str = "") -> bool:
        """Switch to the next path and return True; without one, leave the failure to the connection's own timeout."""
        if not self._choice.failed(reason):
            return False
        self._disconnected(self._choice.why, now)
        self._heal(now)
        return True

    def _session_gone(self, status: int | None, reason: str, now: float) -> None:
        self._established = False
        self._disconnected(reason, now)
        if self._leaving_until is not None:
            return
        self._take_data(self._channel.abandon(now), now)
        pause_s = self._pacing.failed(now)
        if status in _WAY_REFUSALS and self._choice.refused(now):
            status = None
        if status in REFUSALS:
            self._outputs.append(ConnectRefused("session", status, reason))
            if not self._ever_connected:
                self._outputs.append(CancelTimer("heal"))
                return
            pause_s = max(pause_s, self._heal_pause_s)
        elif status is not None and not self._ever_connected:
            self._outputs.append(ServerUnreachable(f"{status} {reason}"))
        self._outputs.append(SetTimer("heal", now + pause_s))

    def _disconnected(self, reason: str, now: float) -> None:
        """Set agent and media DISCONNECTED, always both (SPEC E-07); while closing, the reason is the closing."""
        self._step_user_agent(sip.SetMediaStatus(self._session, RemoteMediaStatus.DISCONNECTED), now)
        if self._connected:
            self._connected = False
            leaving = self._leaving_until is not None
            self._outputs.append(AgentStatusChanged("DISCONNECTED", self._data, _LEFT if leaving else reason, self.way))

    def _step_data(self, inputs: list[Input], now: float) -> None:
        if inputs:
            self._take_data(self._transports.step(inputs, now), now)

    def _take_data(self, outputs: list[Output], now: float) -> None:
        for output in outputs:
            match output:
                case SendDatagram() | SendOnStream() | CloseStream() | SetTimer() | CancelTimer():
                    self._outputs.append(output)
                case MessageReceived(local_id=self._channel.local, payload=payload):
                    self._received(payload, now)
                case ConnectionFailed(local_id=self._channel.local, reason=reason):
                    self._channel_failed(reason.replace("the other side", "the broker"), now)
                case ConnectionReset(local_id=self._channel.local):
                    self._channel_failed("the broker was restarted", now, reset=True)
                case ProbeAnswered(local_id=self._channel.failed) | ConnectionReset(local_id=self._channel.failed):
                    self._reached(now)

    def _received(self, payload: bytes, now: float) -> None:
        """Process a message; a malformed one closes the connection, and the next one resumes before this message."""
        self._barren = False
        try:
            self._outputs += self._conversation.receive(payload)
            self._step_data(self._sending(self._conversation.take_unsent()), now)
        except RemoteProtocolError as error:
            self._take_data(self._channel.abandon(now), now)
            self._disconnected(str(error), now)
            self._outputs += [ServerUnreachable(str(error)), SetTimer("heal", now + self._pacing.failed(now))]

    def _channel_failed(self, reason: str, now: float, *, reset: bool = False) -> None:
        """Set media DISCONNECTED without touching the SIP session (SPEC C-14, G-01); then heal.

        While closing, do not heal: the broker has ended the connection as requested.
        """
        self._channel.lost()
        self._disconnected(reason, now)
        if self._leaving_until is not None:
            return
        if self._choice.on_trial and not reset and self._choice.failed(reason):
            self._heal(now)
            return
        self._choice.connection_failed(now)
        pause_s = self._pacing.failed(now)
        if self._barren or not self._pacing.is_calm:
            # Without a pause, a persistent obstacle such as a full relay would be retried in a tight loop.
            self._outputs.append(SetTimer("heal", now + pause_s))
        else:
            self._heal(now)
        self._probing = True
        self._outputs.append(SetTimer("probe", now + self._properties.probe_s))

    def _probe(self, now: float) -> None:
        """Probe the failed connection periodically (SPEC D-10)."""
        if self._channel.failed and self._leaving_until is None:
            self._probing = True
            self._outputs.append(SetTimer("probe", now + self._properties.probe_s))
            self._take_data(self._channel.probe(now), now)

    def _reached(self, now: float) -> None:
        """Handle that the broker responds again: update the session, and pause probing until that completes."""
        if self._probing and self._pacing.is_calm:
            self._probing = False
            self._outputs.append(CancelTimer("probe"))
            self._heal(now)

    def _sending(self, payloads: list[bytes]) -> list[Input]:
        if self._channel.remote is None:
            return []
        return [SendMessage(self._channel.local, payload) for payload in payloads]

    def _drain(self, now: float) -> None:
        """End the session once everything sent is acknowledged, or ``drain_s`` has passed."""
        assert self._leaving_until is not None
        confirmed = self._transports.all_confirmed(self._channel.local)
        if self._connected and not confirmed and now < self._leaving_until:
            self._outputs.append(SetTimer("drain", now + _DRAIN_STEP_S))
            return
        self._outputs.append(CancelTimer("heal"))
        self._disconnected(_LEFT, now)
        self._step_user_agent(sip.Stop(), now)


def _is_superseded(given: Acknowledge, following: Input | None) -> bool:
    """Return whether the next input acknowledges the same subscription: positions only increase."""
    return (
        isinstance(following, Acknowledge)
        and following.subscription == given.subscription
        and following.position.epoch == given.position.epoch
    )
