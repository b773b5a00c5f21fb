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

import msgspec

from wanderbus.client.machine.conversation import Conversation, ReaderMessage
from wanderbus.client.machine.data_path import DataPath
from wanderbus.client.machine.heal_pacing import HealPacing
from wanderbus.client.machine.identity import parties_of, sip_properties_of
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentProperties,
    AgentStatusChanged,
    AskBroker,
    Connect,
    ConnectRefused,
    DataPathKind,
    Disconnect,
    Disconnected,
    Moved,
    PublishEvent,
    ServerUnreachable,
    long_requests_lost,
)
from wanderbus.client.machine.states import (
    AGENT,
    CHANNEL,
    AgentState,
    AgentTrigger,
    ChannelState,
    ChannelTrigger,
    after,
)
from wanderbus.client.machine.stranger_limits import StrangerLimits
from wanderbus.composition import Composition, Part
from wanderbus.datachannel import DATA_SOCKET, STREAM_SOCKET
from wanderbus.datachannel.description import with_places, with_session
from wanderbus.detection import DetectorFailed, MakeDetector
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
)
from wanderbus.mobility import messages as sip
from wanderbus.mobility.session.session import RemoteMediaStatus, SIPCommunicationStatus
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.parameters.transports import RudpConfig, TcpConfig
from wanderbus.protocol import SESSION_MOVED, Leave
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.sip.transaction.transaction_layer import PathSeemsNarrow
from wanderbus.transport import (
    ConnectionFailed,
    ConnectionReset,
    MessageReceived,
    Probe,
    ProbeAnswered,
    SendMessage,
    TransportInput,
    TransportOutput,
)

__all__ = ["DATA_SOCKET", "REFUSALS", "SIP_SOCKET", "STREAM_SOCKET", "AgentMachine"]

SIP_SOCKET: Final = "sip"

USER_AGENT: Final = Part[sip.UserAgentInput, sip.UserAgentOutput]("sip")
TRANSPORTS: Final = Part[TransportInput, TransportOutput]("data", has_scope=False)
"""Parts of the agent."""

REFUSALS: Final = frozenset({401, 403, 404, 407, 488})
"""SIP responses that a retry will not change: credentials or permission are missing, or the broker does not accept the
data channel."""

_PATH_REFUSALS: Final = frozenset({488, 503})
"""SIP responses that may refuse only the path of the data channel: its transport, or a relay."""

DOMAINS_FOLLOWED_MAX: Final = 4
"""Domains that are called one after the other, each because the one before names it."""

_RELAY_S: Final = 4.0
"""Extra time for a proxy to ask relays, before an offer that requests one counts as unanswered."""

_DRAIN_STEP_S: Final = 0.02
_LEFT: Final = "the agent left"


class AgentMachine:
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
        make_detector: MakeDetector | None = None,
    ) -> None:
        self._properties = properties
        self._random = random
        self._data = data
        self.place = ""
        """Place of this device, signed for another one of its user, since the last move; "" if this one reports it."""
        self._places: tuple[str, ...] = ()
        """Places of other devices of the user that the next description carries."""
        self._path = DataPath(properties, random, data[0], rudp=rudp, tcp=tcp, make_detector=make_detector)
        self._transports, self._channel, self._choice = self._path.transports, self._path.channel, self._path.choice
        self._conversation = Conversation(properties)
        self._user_agent = UserAgent(sip_properties_of(properties), random, socket=SIP_SOCKET, contact=sip)
        self._stranger_limits = StrangerLimits(properties.server, properties.strangers_per_s)
        self._session = ""
        self._broker = properties.broker
        """The broker that is called: that of the properties, or another domain's to which the session has moved."""
        self._followed = 0
        """Domains that were called one after the other without a session."""
        self._state = AgentState.IDLE
        self._use = ChannelState.NONE
        self._heal_pause_s = properties.heal_s
        self._pacing = HealPacing(random, properties.heal_s_max)
        self._drain_until = 0.0
        self._parts = Composition[Output]()
        self._parts.add(USER_AGENT, self._user_agent.step, self._route_user_agent)
        self._parts.add(TRANSPORTS, self._transports.step, self._route_transports)

    @property
    def connected(self) -> bool:
        """Return the agent's status: whether the data channel to the broker works, as far as known."""
        return self._state in (AgentState.CONNECTED, AgentState.LEAVING)

    @property
    def _is_leaving(self) -> bool:
        return self._state in (AgentState.LEAVING, AgentState.LEFT)

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
    def data_path(self) -> DataPathKind:
        """Return the path of the data channel, in use or to be tried (SPEC I-08)."""
        return self._choice.path

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Process a batch of inputs at monotonic second ``now``; return the outputs in order."""
        self._conversation.begin_step(now)
        for_transports: list[TransportInput] = []
        batch = list(inputs)
        for given, following in zip_longest(batch, batch[1:]):
            if isinstance(given, Acknowledge) and _is_superseded(given, following):
                continue
            if self._transports.takes(given):
                for_transports.append(given)
            elif isinstance(given, PublishEvent | AskBroker | ReaderMessage):
                payload = self._conversation.send(given)
                messages, unsent = [payload] if payload else [], self._conversation.take_unsent()
                # The broker ignores what follows a Leave, such as the counts of held back events.
                is_last = isinstance(given, AskBroker) and isinstance(given.message, Leave)
                for_transports += self._sending(unsent + messages if is_last else messages + unsent)
                self._parts.emit(*self._conversation.take_held_back())
            else:
                self._parts.give(TRANSPORTS, for_transports)
                self._parts.run(now)
                for_transports = []
                self._sort(given, now)
                self._parts.run(now)
        self._parts.give(TRANSPORTS, for_transports)
        self._parts.run(now)
        return self._parts.take_outputs()

    def _sort(self, given: Input, now: float) -> None:
        """Give one input to the user agent, or handle it."""
        match given:
            case DatagramReceived(source=source) if not self._stranger_limits.admits(source, now):
                self._parts.emit(*self._stranger_limits.take_reports(now))
            case DatagramReceived() | StreamReceived() | StreamClosed():
                self._parts.give(USER_AGENT, [given])
            case Moved():
                self._moved(given, now)
            case TimerFired(key="heal"):
                self._heal_again(now)
                self._probe(now)
            case TimerFired(key="probe"):
                self._probe(now)
            case TimerFired(key="place"):
                if not self._path.is_reached():
                    self._heal(now)
            case TimerFired(key="trial"):
                self._trial_over(now)
            case TimerFired(key="drain"):
                self._drain(now)
            case Connect():
                self._state = after(AGENT, self._state, AgentTrigger.CONNECT)
                self._parts.give(USER_AGENT, [sip.Start()])
                self._heal(now)
            case Disconnect():
                self._state = after(AGENT, self._state, AgentTrigger.DISCONNECT)
                self._drain_until = now + self._properties.drain_s
                self._conversation.end_filtering()
                self._parts.give(TRANSPORTS, self._sending(self._conversation.take_unsent()))
                self._drain(now)
            case TimerFired(key=key):
                self._parts.give_timer(key)

    def _moved(self, moved: Moved, now: float) -> None:
        self._data = moved.data
        self._heal_pause_s = self._properties.heal_s
        self._pacing.moved()
        for_transports = self._channel.moved()
        self._choice.moved(moved.data[0], now)
        self._parts.give(USER_AGENT, [sip.AddressChanged(moved.sip)])
        self._places = moved.places
        self.place = self._path.place(self._data) if moved.by_other and self.connected else ""
        if not self.place:
            self._heal(now)
            self._parts.give(TRANSPORTS, for_transports)
            return
        self._parts.give(TRANSPORTS, [*for_transports, Probe(self._channel.local)])
        self._parts.emit(CancelTimer("trial"), SetTimer("place", now + self._heal_pause_s))

    def _heal(self, now: float, *, afresh: bool = False) -> None:
        """Send the agent's address to the broker: by a re-INVITE if there is a session, else by a new INVITE.

        With ``afresh``, open a new session in any case.
        """
        if self._state is AgentState.IDLE or self._is_leaving:
            return
        self._parts.give(TRANSPORTS, self._path.prepare_offer(now))
        self._parts.emit(CancelTimer("trial"))
        stands = self._state in (AgentState.CONNECTED, AgentState.DISCONNECTED)
        if stands and not afresh and self._session in self._user_agent.sessions:
            self._parts.give(TRANSPORTS, self._channel.offer())
            self._parts.give(USER_AGENT, [sip.UpdateSession(self._session, self._media())])
        else:
            self._invite()
        pause_s = self._heal_pause_s + (_RELAY_S if self._choice.relayed else 0.0)
        self._parts.emit(SetTimer("heal", now + pause_s))

    def _heal_again(self, now: float) -> None:
        """Retry, with a longer timeout: the round trip may be longer than the previous one (RFC 5626 4.5).

        After a second failure, retry with a new session: if both sides have moved, each uses the other's previous
        address, but the registrar knows the broker's current one.
        """
        has_failed_twice = self._heal_pause_s > self._properties.heal_s
        if has_failed_twice and self._choice.is_unproven_relay and not self.connected:
            self._choice.failed("no response")
        self._heal_pause_s = min(2 * self._heal_pause_s, self._properties.heal_s_max)
        self._heal(now, afresh=has_failed_twice)

    def _invite(self) -> None:
        self._disconnected("another session is opened")
        if self._session in self._user_agent.sessions:
            self._parts.give(USER_AGENT, [sip.TerminateSession(self._session, quietly=True)])
        self._session = self._random.token(12).hex()
        self._state = after(AGENT, self._state, AgentTrigger.ENDED)
        self._parts.give(TRANSPORTS, self._channel.abandon())
        properties = msgspec.structs.replace(self._properties, broker=self._broker)
        self._channel.begin(parties_of(properties, self._session))
        self._parts.give(TRANSPORTS, self._channel.offer())
        media = with_session(self._media(), self._properties.session, self._conversation.subscribed_at)
        invitation = sip.CreateSession(self._session, self._broker, media, hurried=True, is_service=True)
        self._parts.give(USER_AGENT, [invitation])

    def _may_follow(self) -> bool:
        """Return whether a further domain is called to which the session has moved: two may name each other."""
        self._followed += 1
        return self._followed <= DOMAINS_FOLLOWED_MAX

    def _media(self) -> MediaDescription:
        return with_places(self._channel.describe(self._data), self._places)

    def _route_user_agent(self, outputs: list[sip.UserAgentOutput], now: float) -> None:
        for output in outputs:
            self._on_signalling(output, now)

    def _on_signalling(self, output: sip.UserAgentOutput, now: float) -> None:
        match output:
            case sip.SessionEstablished(id=self._session, media=media):
                # The session may have ended in the same batch; the next output reports that.
                if self._session in self._user_agent.sessions:
                    self._on_session_established(media, now)
            case sip.SessionOffered(id=identity, media=media):
                self._on_session_offered(identity, media)
            case sip.SessionFailed(id=self._session, elsewhere=elsewhere) if elsewhere and self._may_follow():
                self._broker = elsewhere
                self._invite()
            case sip.SessionFailed(id=self._session, status=status, reason=reason):
                called, self._broker = self._broker, self._properties.broker
                self._on_session_ended(status, reason, now, called)
            case sip.UpdateFailed(id=self._session, status=status, reason=reason):
                if status in _PATH_REFUSALS:
                    self._choice.refused(now)
                self._on_session_ended(None, reason, now)
            case sip.SessionRemoved(id=self._session, reason=reason):
                self._on_session_ended(None, reason, now)
            case sip.RegistrationFailed(status=status, reason=reason) if status in REFUSALS:
                self._parts.emit(ConnectRefused("registration", status, reason))
            case sip.RegistrationFailed(status=None, reason=reason):
                self._parts.emit(ServerUnreachable(reason))
            case sip.Unregistered():
                if self._is_leaving:
                    self._parts.emit(Disconnected())
            case PathSeemsNarrow(size_bytes=size_bytes):
                self._parts.emit(long_requests_lost(size_bytes))
            case SendDatagram() | SendOnStream() | CloseStream() | SetTimer() | CancelTimer():
                self._parts.emit(output)

    def _on_session_offered(self, identity: str, media: MediaDescription) -> None:
        """Accept the broker's renewal of the session, as after its restart; refuse every other caller."""
        if identity != self._session:
            self._parts.give(USER_AGENT, [sip.Refuse(identity, 603)])
            return
        try:
            is_opened, for_transports = self._channel.accept(self._channel.read(media, self._data[0]))
        except RemoteProtocolError as error:
            self._parts.give(USER_AGENT, [sip.Refuse(identity, 488, str(error))])
            return
        if is_opened:
            self._use = after(CHANNEL, self._use, ChannelTrigger.OFFERED)
        self._parts.give(TRANSPORTS, for_transports)
        self._parts.give(USER_AGENT, [sip.AcceptOffer(identity, self._media(), renews=True)])

    def _on_session_established(self, media: MediaDescription, now: float) -> None:
        """Become CONNECTED: offer and answer agree on the data channel (SPEC E-08).

        If the answer was tampered with, or is weaker than required, end the session instead (DESIGN 6.5).
        """
        if not self._channel.local:
            # The offered channel has ended meanwhile; the pending heal timer offers another.
            self._set_media_disconnected()
            return
        try:
            opened, for_transports = self._channel.agreed(self._channel.read(media, self._data[0]))
        except RemoteProtocolError as error:
            disowned, self._session = self._session, ""
            self._parts.give(USER_AGENT, [sip.TerminateSession(disowned)])
            self._on_session_ended(488, str(error), now)
            return
        self._state = after(AGENT, self._state, AgentTrigger.ANSWERED)
        self._followed, self._places = 0, ()
        self._stranger_limits.know(self._user_agent.sessions[self._session].dialog)
        self._heal_pause_s = self._properties.heal_s
        self._pacing.agreed(now)
        self._parts.give(TRANSPORTS, for_transports)
        self._parts.emit(CancelTimer("heal"), CancelTimer("probe"))
        trial_ends_at = self._path.begin_trial(now)
        if trial_ends_at is not None:
            self._parts.emit(SetTimer("trial", trial_ends_at))
        elif self._path_failed(now, "no relay was found"):
            return
        self._state = after(AGENT, self._state, AgentTrigger.AGREED)
        if opened or self._use is ChannelState.RESTARTED:
            self._use = after(CHANNEL, self._use, ChannelTrigger.OPENING)
            self._parts.give(TRANSPORTS, self._sending(self._conversation.opening()))
        elif not self._choice.over_tcp:
            self._parts.give(TRANSPORTS, [Probe(self._channel.local)])
        reason = self._choice.reason or "session established"
        self._parts.emit(AgentStatusChanged("CONNECTED", self._data, reason, self.data_path))

    def _trial_over(self, now: float) -> None:
        if self._path.is_reached():
            self._choice.succeeded(now)
        elif self._state is AgentState.CONNECTED:
            self._path_failed(now)

    def _path_failed(self, now: float, reason: str = "") -> bool:
        """Switch to the next path and return True; without one, leave the failure to the connection's own timeout."""
        if not self._choice.failed(reason):
            return False
        self._disconnected(self._choice.why)
        self._heal(now)
        return True

    def _on_session_ended(self, status: int | None, reason: str, now: float, called: str = "") -> None:
        """Open another session after a while; ``called`` is the broker that has refused this one."""
        is_first = self._state is AgentState.CALLING
        self._disconnected(reason)
        self._state = after(AGENT, self._state, AgentTrigger.ENDED)
        if self._is_leaving:
            return
        self._parts.give(TRANSPORTS, self._channel.abandon())
        pause_s = self._pacing.failed(now)
        if status in _PATH_REFUSALS and self._choice.refused(now):
            status = None
        if status in REFUSALS:
            sent_to = "" if called == self._properties.broker else called
            self._parts.emit(ConnectRefused("session", status, reason, sent_to=sent_to))
            if is_first:
                self._parts.emit(CancelTimer("heal"))
                return
            pause_s = max(pause_s, self._heal_pause_s)
        elif status is not None and is_first:
            self._parts.emit(ServerUnreachable(f"{status} {reason}"))
        self._parts.emit(SetTimer("heal", now + pause_s))

    def _set_media_disconnected(self) -> None:
        self._parts.give(USER_AGENT, [sip.SetMediaStatus(self._session, RemoteMediaStatus.DISCONNECTED)])

    def _disconnected(self, reason: str) -> None:
        """Set agent and media DISCONNECTED, always both (SPEC E-07); while closing, the reason is the closing."""
        self._set_media_disconnected()
        self._conversation.forget_filters()
        if self.connected:
            self._state = after(AGENT, self._state, AgentTrigger.LOST)
            reason = _LEFT if self._is_leaving else reason
            self._parts.emit(AgentStatusChanged("DISCONNECTED", self._data, reason, self.data_path))

    def _route_transports(self, outputs: list[TransportOutput], now: float) -> None:
        for output in outputs:
            match output:
                case SendDatagram() | SendOnStream() | CloseStream() | SetTimer() | CancelTimer() | DetectorFailed():
                    self._parts.emit(output)
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
        if self._use is ChannelState.OPENED:
            self._use = after(CHANNEL, self._use, ChannelTrigger.MESSAGE)
        was_attached = self._conversation.attached
        try:
            for output in self._conversation.receive(payload):
                if isinstance(output, ConnectRefused) and output.limit == SESSION_MOVED:
                    self._call_again(output.reason, now, is_expected=was_attached)
                else:
                    self._parts.emit(output)
            self._parts.give(TRANSPORTS, self._sending(self._conversation.take_unsent()))
        except RemoteProtocolError as error:
            self._parts.give(TRANSPORTS, self._channel.abandon())
            self._disconnected(str(error))
            self._parts.emit(ServerUnreachable(str(error)), SetTimer("heal", now + self._pacing.failed(now)))

    def _call_again(self, reason: str, now: float, *, is_expected: bool) -> None:
        """Call the server that has the session now (SPEC L-06): at once, or after a pause if the call led nowhere."""
        pause_s = 0.0 if is_expected else self._pacing.failed(now)
        self._disconnected(reason)
        if is_expected or self._pacing.is_calm:
            self._heal(now, afresh=True)
        else:
            self._parts.give(TRANSPORTS, self._channel.abandon())
            self._parts.emit(SetTimer("heal", now + pause_s))

    def _channel_failed(self, reason: str, now: float, *, reset: bool = False) -> None:
        """Set media DISCONNECTED without touching the SIP session (SPEC C-14, G-01); then heal.

        While closing, do not heal: the broker has ended the connection as requested.
        """
        is_silent = self._use is ChannelState.OPENED
        self._use = after(CHANNEL, self._use, ChannelTrigger.FAILURE)
        self._channel.lost()
        self._disconnected(reason)
        if self._is_leaving:
            return
        if self._choice.on_trial and not reset and self._choice.failed(reason):
            self._heal(now)
            return
        self._choice.connection_failed(now)
        pause_s = self._pacing.failed(now)
        if is_silent or not self._pacing.is_calm:
            # Without a pause, a persistent obstacle such as a full relay would be retried in a tight loop.
            self._parts.emit(SetTimer("heal", now + pause_s))
        else:
            self._heal(now)
        self._expect_response(now)

    def _probe(self, now: float) -> None:
        """Probe the failed connection periodically (SPEC D-10)."""
        if self._channel.failed and not self._is_leaving:
            self._expect_response(now)
            self._parts.give(TRANSPORTS, self._channel.probe())

    def _expect_response(self, now: float) -> None:
        self._use = after(CHANNEL, self._use, ChannelTrigger.PROBE)
        self._parts.emit(SetTimer("probe", now + self._properties.probe_s))

    def _reached(self, now: float) -> None:
        """Handle that the broker responds again: update the session, and pause probing until that completes."""
        if self._use is ChannelState.PROBED and self._pacing.is_calm:
            self._use = after(CHANNEL, self._use, ChannelTrigger.RESPONSE)
            self._parts.emit(CancelTimer("probe"))
            self._heal(now)

    def _sending(self, payloads: list[bytes]) -> list[SendMessage]:
        if self._channel.remote is None:
            return []
        return [SendMessage(self._channel.local, payload) for payload in payloads]

    def _drain(self, now: float) -> None:
        """End the session once everything sent is acknowledged, or ``drain_s`` has passed."""
        confirmed = self._transports.all_confirmed(self._channel.local)
        if self.connected and not confirmed and now < self._drain_until:
            self._parts.emit(SetTimer("drain", now + _DRAIN_STEP_S))
            return
        self._parts.emit(CancelTimer("heal"))
        self._disconnected(_LEFT)
        self._parts.give(USER_AGENT, [sip.StopUserAgent()])


def _is_superseded(given: Acknowledge, following: Input | None) -> bool:
    """Return whether the next input acknowledges the same subscription: positions only increase."""
    return (
        isinstance(following, Acknowledge)
        and following.subscription == given.subscription
        and following.position.epoch == given.position.epoch
    )
