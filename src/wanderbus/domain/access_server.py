"""The access server: SIP sessions and data channels of agents on one side, the broker's links on the other.

It gives the broker links, and the broker's log the signalling state that has to survive a restart: dialogs and
SDP persist, RUDP state never does (DESIGN 6.3). After a restart it answers unknown connections with a reset and
renews its sessions by re-INVITE, paced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from wanderbus.broker.core import (
    Append,
    Appended,
    Broker,
    DeviceBound,
    LinkClosed,
    LinkOpened,
    MessageArrived,
    SendOnLink,
    ServerStarted,
    UserStatusChanged,
)
from wanderbus.errors import LocalProtocolError, RemoteProtocolError, StateCorrupt
from wanderbus.machine import (
    Address,
    CancelTimer,
    ClockRead,
    DatagramReceived,
    Input,
    Output,
    RandomSource,
    SendDatagram,
    SetTimer,
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
    RudpConfig,
    SendMessage,
)
from wanderbus.sip.digest import Authenticator
from wanderbus.sip.sdp import MediaDescription

SIP_SOCKET: Final = "broker-sip"
DATA_SOCKET: Final = "data"

RENEW_AFTER_S: Final = 0.3
"""Pause before the first renewal: agents that are sending learn of the restart by a reset, and come themselves."""

RENEW_PACE_S: Final = 0.01
"""Pause between two renewals."""


class BrokerRegistered(Output, frozen=True):
    """The broker can be called by its URI from now on."""


class BrokerUnregistered(Output, frozen=True):
    """The broker could not register, with this SIP ``status`` (None: no answer); it goes on trying."""

    status: int | None
    reason: str


class Line(msgspec.Struct):
    """A SIP session with one device: its user, and its data channel."""

    session: str
    user: str
    device: str
    channel: DataChannel
    fresh: bool = False
    """Whether the data channel is new and the broker has not been told."""


class AccessServer:
    """Composes user agent, reliable UDP endpoint and broker into one machine with two sockets."""

    def __init__(
        self,
        properties: Properties,
        broker: Broker,
        random: RandomSource,
        *,
        sip_address: Address,
        data_address: Address,
        authenticator: Authenticator | None,
        rudp: RudpConfig | None = None,
    ) -> None:
        self.broker = broker
        self._random = random
        self._data_address = data_address
        self._endpoint = Endpoint(random, rudp or RudpConfig(), socket=DATA_SOCKET)
        self._user_agent = UserAgent(
            properties, random, socket=SIP_SOCKET, contact=sip_address, authenticator=authenticator
        )
        self._lines: dict[str, Line] = {}
        self._by_device: dict[tuple[str, str], Line] = {}
        self._by_link: dict[int, Line] = {}
        self._outputs: list[Output] = []

    def start(self, wall_us: int, now: float) -> list[Output]:
        """Begin to serve: register, take up the sessions that the log remembers, and renew them paced."""
        self._step_broker([ClockRead(wall_us), ServerStarted()], now)
        self._step_user_agent([sip.Start()], now)
        at = now + RENEW_AFTER_S
        for device in list(self.broker.state.devices.values()):
            if device.binding:
                try:
                    session = self._user_agent.adopt(device.binding)
                except LocalProtocolError as error:
                    raise StateCorrupt(f"the stored session of {device.user} cannot be read: {error}") from None
                self._add_line(Line(session, device.user, device.device, DataChannel(self._endpoint)))
                self._outputs.append(SetTimer(("renew", session), at))
                at += RENEW_PACE_S
        return self._drain()

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        datagrams: list[Input] = []
        for given in inputs:
            match given:
                case DatagramReceived(socket="data"):
                    datagrams.append(given)
                case TimerFired(key=("data", _)):
                    self._step_endpoint([given], now)
                case DatagramReceived() | TimerFired(key=("sip", _)):
                    self._step_user_agent([given], now)
                case TimerFired(key=("renew", session)):
                    self._renew(str(session), now)
                case Appended() | ClockRead() | TimerFired(key=("broker", _)):
                    self._step_broker([given], now)
        if datagrams:
            self._step_endpoint(datagrams, now)
        return self._drain()

    def _drain(self) -> list[Output]:
        outputs, self._outputs = self._outputs, []
        return outputs

    def _add_line(self, line: Line) -> None:
        self._lines[line.session] = line
        self._by_device[line.user, line.device] = line

    def _renew(self, session: str, now: float) -> None:
        """Offer a session of before the restart a new data channel, unless its agent was faster."""
        line = self._lines.get(session)
        if line and line.channel.remote is None:
            self._outputs += line.channel.offer(now)
            self._step_user_agent([sip.UpdateSession(session, self._media(line))], now)

    def _media(self, line: Line) -> MediaDescription:
        return describe_end(ChannelEnd(self._data_address, line.channel.local, 0))

    def _step_user_agent(self, inputs: Sequence[Input], now: float) -> None:
        for output in scoped("sip", self._user_agent.step([unscoped(given) for given in inputs], now)):
            match output:
                case sip.SessionOffered():
                    self._offered(output, now)
                case sip.SessionEstablished(id=identity, media=media):
                    if line := self._lines.get(identity):
                        self._settle(line, media, now)
                case sip.UpdateFailed(id=identity, reason=reason) | sip.SessionRemoved(id=identity, reason=reason):
                    self._removed(identity, reason, now)
                case sip.Registered():
                    self._outputs.append(BrokerRegistered())
                case sip.RegistrationFailed(status=status, reason=reason):
                    self._outputs.append(BrokerUnregistered(status, reason))
                case SendDatagram() | SetTimer() | CancelTimer():
                    self._outputs.append(output)

    def _offered(self, offer: sip.SessionOffered, now: float) -> None:
        """An agent opens its session or moves in it; who it is has been proved to the user agent."""
        try:
            remote = read_end(offer.media)
        except RemoteProtocolError as error:
            self._step_user_agent([sip.Refuse(offer.id, error.status or 488)], now)
            return
        line = self._lines.get(offer.id)
        if line is None:
            device = (offer.instance or offer.id).removeprefix("<urn:uuid:").removesuffix(">")
            line = Line(offer.id, offer.remote_uri, device, DataChannel(self._endpoint))
            if previous := self._by_device.get((line.user, line.device)):
                self._replace(previous, now)
            self._add_line(line)
        previous_link = line.channel.local
        opened, outputs = line.channel.accept(remote, now)
        if opened:
            line.fresh = True
            self._by_link.pop(previous_link, None)
            self._by_link[line.channel.local] = line
        self._take_endpoint(outputs, now)
        self._step_user_agent([sip.Answer(offer.id, self._media(line))], now)

    def _replace(self, line: Line, now: float) -> None:
        """The same device opened a new session: the old one is over (SPEC E-10)."""
        self._forget(line, now)
        self._step_user_agent([sip.TerminateSession(line.session)], now)

    def _forget(self, line: Line, now: float) -> None:
        self._lines.pop(line.session, None)
        if self._by_device.get((line.user, line.device)) is line:
            del self._by_device[line.user, line.device]
        self._by_link.pop(line.channel.local, None)
        self._take_endpoint(line.channel.close(now), now)

    def _settle(self, line: Line, media: MediaDescription, now: float) -> None:
        """A session was agreed on or updated: keep what a restart needs, and tell the broker of a new link.

        It may have been ended in the very batch that established it; that is reported next.
        """
        session = self._user_agent.sessions.get(line.session)
        if session is None:
            return
        try:
            remote = read_end(media)
        except RemoteProtocolError:
            return
        opened, outputs = line.channel.agreed(remote, now)
        self._by_link[line.channel.local] = line
        self._take_endpoint(outputs, now)
        address = f"{remote.address[0]}:{remote.address[1]}"
        inputs: list[Input] = [DeviceBound(line.user, line.device, address, session.snapshot())]
        if opened or line.fresh:
            line.fresh = False
            inputs.append(LinkOpened(line.channel.local, line.user, line.device))
        self._step_broker(inputs, now)

    def _removed(self, identity: str, reason: str, now: float) -> None:
        if line := self._lines.get(identity):
            link = line.channel.local
            self._forget(line, now)
            self._step_broker([LinkClosed(link, reason), DeviceBound(line.user, line.device, "", b"")], now)

    def _step_endpoint(self, inputs: Sequence[Input], now: float) -> None:
        self._take_endpoint(self._endpoint.step([unscoped(given) for given in inputs], now), now)

    def _take_endpoint(self, outputs: Iterable[Output], now: float) -> None:
        arrived: list[Input] = []
        for output in scoped("data", outputs):
            match output:
                case MessageReceived(local_id=link, payload=payload):
                    arrived.append(MessageArrived(link, payload))
                case ConnectionFailed(local_id=link):
                    arrived.append(self._lost(link, "the agent does not answer", now))
                case ConnectionReset(local_id=link):
                    arrived.append(self._lost(link, "the agent was restarted", now))
                case SendDatagram() | SetTimer() | CancelTimer():
                    self._outputs.append(output)
        if arrived:
            self._step_broker(arrived, now)

    def _lost(self, link: int, reason: str, now: float) -> LinkClosed:
        """Sending failed: media DISCONNECTED, SIP as it was (SPEC C-14, G-02)."""
        if line := self._by_link.pop(link, None):
            line.channel.lost()
            self._step_user_agent([sip.SetMediaStatus(line.session, RemoteMediaStatus.DISCONNECTED)], now)
        return LinkClosed(link, reason)

    def _step_broker(self, inputs: Sequence[Input], now: float) -> None:
        sending: list[Input] = []
        for output in scoped("broker", self.broker.step([unscoped(given) for given in inputs], now)):
            match output:
                case SendOnLink(link=link, payload=payload):
                    sending.append(SendMessage(link, payload))
                case Append() | UserStatusChanged() | SetTimer() | CancelTimer():
                    self._outputs.append(output)
        if sending:
            self._step_endpoint(sending, now)
