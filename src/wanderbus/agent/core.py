"""The agent: one user agent, one session with the broker, one data channel that heals (SPEC D-06, D-08, D-10, G-01).

Order on a move (SPEC D-08): REGISTER at once, re-INVITE without waiting for its answer, data resumes when the
broker's answer is there. While DISCONNECTED a fresh re-INVITE goes out at intervals; it is probe and cure in
one. A session that the broker no longer knows is created anew: the broker session with its queue is durable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from wanderbus.agent.conversation import Conversation
from wanderbus.agent.messages import (
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
    Took,
)
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
from wanderbus.mobility.data_channel import ChannelEnd, DataChannel, describe_end, read_end
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.status import RemoteMediaStatus
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.rudp import (
    ConnectionFailed,
    ConnectionReset,
    Endpoint,
    MessageReceived,
    Probe,
    RudpConfig,
    SendMessage,
)
from wanderbus.sip.sdp import MediaDescription

SIP_SOCKET: Final = "sip"
DATA_SOCKET: Final = "data"
REFUSALS: Final = frozenset({401, 403, 404, 407})
"""Answers that will not change by asking again: credentials or authority are missing."""

_DRAIN_STEP_S: Final = 0.02


class Agent:
    """One user's agent as a machine; ``sip`` and ``data`` are where its two sockets are reached."""

    def __init__(
        self,
        properties: AgentProperties,
        random: RandomSource,
        *,
        sip: Address,
        data: Address,
        rudp: RudpConfig | None = None,
    ) -> None:
        self._properties = properties
        self._random = random
        self._data = data
        self._generation = 0
        self._endpoint = Endpoint(random, rudp or RudpConfig(), socket=DATA_SOCKET)
        self._channel = DataChannel(self._endpoint)
        self._conversation = Conversation(properties)
        self._user_agent = UserAgent(
            Properties(
                uri=properties.uri,
                server=properties.server,
                password=properties.password,
                instance=f"<urn:uuid:{properties.device}>",
                register_expires_s=properties.register_expires_s,
                transport=properties.transport,
                server_name=properties.server_name,
            ),
            random,
            socket=SIP_SOCKET,
            contact=sip,
        )
        self._session = ""
        self._started = False
        self._connected = False
        self._ever_connected = False
        self._established = False
        """Whether the SIP session was answered, so that it can be updated."""
        self._fresh = False
        """Whether the data channel was begun anew by the broker's offer, and nothing was said on it yet."""
        self._leaving_until: float | None = None
        self._outputs: list[Output] = []

    @property
    def connected(self) -> bool:
        """Return the ECIAgent Status: whether the data channel to the broker works, as far as is known."""
        return self._connected

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        for given in inputs:
            match given:
                case DatagramReceived(socket="data") | TimerFired(key=("data", _)):
                    self._step_endpoint([given], now)
                case DatagramReceived() | StreamReceived() | StreamClosed() | TimerFired(key=("sip", _)):
                    self._step_user_agent(given, now)
                case PublishEvent() | Ask() | Took():
                    if payload := self._conversation.say(given):
                        self._send([payload], now)
                case Moved():
                    self._moved(given, now)
                case TimerFired(key="heal"):
                    self._heal(now)
                case TimerFired(key="keepalive"):
                    self._keep_alive(now)
                case TimerFired(key="drain"):
                    self._drain(now)
                case Connect():
                    self._started = True
                    self._step_user_agent(sip.Start(), now)
                    self._heal(now)
                case Disconnect():
                    self._leaving_until = now + self._properties.drain_s
                    self._drain(now)
        outputs, self._outputs = self._outputs, []
        return outputs

    def _moved(self, moved: Moved, now: float) -> None:
        self._data = moved.data
        self._generation += 1
        self._step_user_agent(sip.AddressChanged(moved.sip), now)
        self._heal(now)

    def _heal(self, now: float) -> None:
        """Tell the broker where we are: in the session if there is one, else in a new one."""
        if not self._started or self._leaving_until is not None:
            return
        if self._session in self._user_agent.sessions and self._established:
            self._outputs += self._channel.offer(now)
            self._step_user_agent(sip.UpdateSession(self._session, self._media()), now)
        else:
            self._invite(now)
        self._outputs.append(SetTimer("heal", now + self._properties.heal_s))

    def _invite(self, now: float) -> None:
        if self._session in self._user_agent.sessions:
            self._step_user_agent(sip.TerminateSession(self._session), now)
        self._session = self._random.token(12).hex()
        self._established = False
        self._outputs += self._channel.close(now)
        self._outputs += self._channel.offer(now)
        self._step_user_agent(sip.CreateSession(self._session, self._properties.broker, self._media()), now)

    def _media(self) -> MediaDescription:
        return describe_end(ChannelEnd(self._data, self._channel.local, self._generation))

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
            case (
                sip.UpdateFailed(id=self._session, reason=reason) | sip.SessionRemoved(id=self._session, reason=reason)
            ):
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
        """The broker renews our session, as after its restart; nobody else has business with an agent."""
        if identity != self._session:
            self._step_user_agent(sip.Refuse(identity, 603), now)
            return
        try:
            remote = read_end(media)
        except RemoteProtocolError as error:
            self._step_user_agent(sip.Refuse(identity, error.status or 488), now)
            return
        self._fresh, outputs = self._channel.accept(remote, now)
        self._take_endpoint(outputs, now)
        self._step_user_agent(sip.Answer(identity, self._media()), now)

    def _settle(self, media: MediaDescription, now: float) -> None:
        """Both sides agree on the data channel: SIP says so, hence CONNECTED (SPEC E-08)."""
        try:
            remote = read_end(media)
        except RemoteProtocolError as error:
            self._session_gone(error.status, str(error), now)
            return
        self._established = self._connected = self._ever_connected = True
        opened, outputs = self._channel.agreed(remote, now)
        self._take_endpoint(outputs, now)
        if opened or self._fresh:
            self._fresh = False
            self._send(self._conversation.opening(), now)
        self._outputs += [
            CancelTimer("heal"),
            SetTimer("keepalive", now + self._properties.keepalive_s),
            AgentStatusChanged("CONNECTED", self._data, "session established"),
        ]

    def _session_gone(self, status: int | None, reason: str, now: float) -> None:
        self._established = False
        if self._leaving_until is not None:
            return
        if status in REFUSALS:
            self._outputs.append(ConnectRefused("session", status, reason))
            if not self._ever_connected:
                return
        self._disconnected(reason)
        self._outputs.append(SetTimer("heal", now + self._random.uniform(0.2, 1.0)))

    def _disconnected(self, reason: str) -> None:
        self._channel.lost()
        if self._connected:
            self._connected = False
            self._outputs += [
                CancelTimer("keepalive"),
                AgentStatusChanged("DISCONNECTED", self._data, reason),
            ]

    def _step_endpoint(self, inputs: list[Input], now: float) -> None:
        self._take_endpoint(self._endpoint.step([unscoped(given) for given in inputs], now), now)

    def _take_endpoint(self, outputs: list[Output], now: float) -> None:
        for output in scoped("data", outputs):
            match output:
                case MessageReceived(payload=payload):
                    self._heard(payload, now)
                case ConnectionFailed() | ConnectionReset():
                    self._channel_failed(output, now)
                case SendDatagram() | SetTimer() | CancelTimer():
                    self._outputs.append(output)

    def _heard(self, payload: bytes, now: float) -> None:
        """What makes no sense ends the connection, and with it what came after: the next one begins where it stood."""
        if self._channel.remote is None:
            return
        try:
            self._outputs += self._conversation.hear(payload)
        except RemoteProtocolError as error:
            self._disconnected(str(error))
            self._step_user_agent(sip.SetMediaStatus(self._session, RemoteMediaStatus.DISCONNECTED), now)
            self._outputs.append(SetTimer("heal", now + self._random.uniform(0.2, 1.0)))

    def _channel_failed(self, failure: ConnectionFailed | ConnectionReset, now: float) -> None:
        """An exhausted send marks media DISCONNECTED and leaves SIP as it is (SPEC C-14, G-01); then heal."""
        if failure.local_id != self._channel.local:
            return
        reason = "the broker does not answer" if isinstance(failure, ConnectionFailed) else "the broker was restarted"
        self._disconnected(reason)
        self._step_user_agent(sip.SetMediaStatus(self._session, RemoteMediaStatus.DISCONNECTED), now)
        self._heal(now)

    def _send(self, payloads: list[bytes], now: float) -> None:
        if self._channel.remote is not None:
            self._step_endpoint([SendMessage(self._channel.local, payload) for payload in payloads], now)

    def _keep_alive(self, now: float) -> None:
        if self._connected:
            self._outputs.append(SetTimer("keepalive", now + self._properties.keepalive_s))
            self._step_endpoint([Probe(self._channel.local)], now)

    def _drain(self, now: float) -> None:
        """End the session once what was said has arrived, or it takes too long."""
        assert self._leaving_until is not None
        confirmed = self._endpoint.all_confirmed(self._channel.local)
        if self._connected and not confirmed and now < self._leaving_until:
            self._outputs.append(SetTimer("drain", now + _DRAIN_STEP_S))
            return
        self._outputs += [CancelTimer("heal"), CancelTimer("keepalive")]
        self._step_user_agent(sip.Stop(), now)
