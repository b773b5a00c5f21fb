"""Agent of the original ECI: identified by its address, over plain UDP, without SIP (SPEC A-09, X36).

It is the baseline for measurements of mobility. One message is one datagram. Nothing is retransmitted, and only the
broker's responses acknowledge anything. Lost messages are lost; late and duplicate ones are discarded. The application
therefore sees at most what :class:`wanderbus.client.machine.core.AgentMachine` would deliver, in the same order. There
is no authentication and no encryption: any sender from an address is that user. The broker checks once, when the agent
attaches, that datagrams to the address arrive (:mod:`wanderbus.protocol.eci_address`).

According to the documents, the original ECI identified users by IP address and port and sent notifications there; they
describe no message for a new address. An agent that moved therefore receives nothing more and does not detect it: its
status does not change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.client.machine.conversation import Conversation
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentProperties,
    AgentStatusChanged,
    AskBroker,
    Connect,
    Disconnect,
    Disconnected,
    EndReading,
    Moved,
    PublishEvent,
    PublishSettled,
    ReadTogether,
    RequestSettled,
    ServerUnreachable,
    StartReading,
)
from wanderbus.errors import RemoteProtocolError
from wanderbus.limits import UDP_PAYLOAD_BYTES_MAX
from wanderbus.machine import Address, DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.protocol.eci_address import is_challenge

ECI_SOCKET: Final = "eci"


class EciAgentMachine:
    """State machine of an agent of the original ECI; its inputs and reports are those of
    :class:`wanderbus.client.machine.core.AgentMachine`.

    ``properties.server`` is the broker's address for the original ECI, ``data`` the agent's own address. The properties
    of users, sessions and SIP are ignored.
    """

    def __init__(self, properties: AgentProperties, *, data: Address) -> None:
        self.unreadable = 0
        """Number of malformed datagrams from the broker, which were discarded."""
        self._conversation = Conversation(msgspec.structs.replace(properties, session="default", resume=None))
        self._broker = properties.server
        self._data = data
        self._answer_s_max = properties.answer_s_max
        self._connected = self._is_attaching = False
        self._deadlines: deque[tuple[float, PublishEvent | AskBroker]] = deque()
        """Deadline of each request in order, including requests that have been answered."""
        self._outputs: list[Output] = []

    @property
    def connected(self) -> bool:
        """Return whether the broker has attached this agent; it may have forgotten the agent since."""
        return self._connected

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Process a batch of inputs at monotonic second ``now``; return the outputs in order."""
        for given in inputs:
            match given:
                case DatagramReceived(source=self._broker, data=payload):
                    self._received(payload)
                case PublishEvent() | AskBroker():
                    self._request(given, now)
                case StartReading() | ReadTogether() | EndReading() | Acknowledge():
                    self._conversation.send(given)
                case TimerFired(key="answer"):
                    self._give_up_until(now)
                case Moved(data=data):
                    self._data = data
                case Connect():
                    self._is_attaching = True
                    self._send(self._conversation.opening()[0])
                    self._outputs.append(SetTimer("attach", now + self._answer_s_max))
                case TimerFired(key="attach") if not self._connected:
                    self._outputs.append(ServerUnreachable(self._no_answer()))
                case Disconnect():
                    self._connected = self._is_attaching = False
                    self._outputs.append(Disconnected())
        outputs, self._outputs = self._outputs, []
        return outputs

    def _request(self, given: PublishEvent | AskBroker, now: float) -> None:
        """Send a request once, when the agent is attached."""
        payload = self._conversation.send(given)
        if refused := self._conversation.take_held_back():
            self._outputs += refused
            return
        if payload is not None and len(payload) > UDP_PAYLOAD_BYTES_MAX:
            reason = f"the message has {len(payload)} bytes; a datagram of the original ECI has at most"
            self._settle(given, f"{reason} {UDP_PAYLOAD_BYTES_MAX}", limit="udp_payload_bytes_max")
            return
        if not self._deadlines:
            self._outputs.append(SetTimer("answer", now + self._answer_s_max))
        self._deadlines.append((now + self._answer_s_max, given))
        if self._connected and payload is not None:
            self._send(payload)

    def _received(self, payload: bytes) -> None:
        if is_challenge(payload):
            if self._is_attaching and not self._connected:
                self._send(payload + self._conversation.opening()[0])
            return
        try:
            self._outputs += self._conversation.receive(payload)
        except RemoteProtocolError:
            self.unreadable += 1
            return
        if self._conversation.attached and not self._connected:
            self._connected = True
            self._outputs.append(AgentStatusChanged("CONNECTED", self._data, "attached by address"))
            for unsent in self._conversation.opening(is_attached=True)[1:]:
                self._send(unsent)
            self._outputs += self._conversation.take_held_back()

    def _give_up_until(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            self._settle(self._deadlines.popleft()[1], self._no_answer(), answered=False)
        if self._deadlines:
            self._outputs.append(SetTimer("answer", self._deadlines[0][0]))

    def _settle(
        self, given: PublishEvent | AskBroker, reason: str, *, limit: str | None = None, answered: bool = True
    ) -> None:
        """Report that ``given`` failed, unless it was answered before."""
        if not self._conversation.give_up(given):
            return
        match given:
            case PublishEvent(number=number):
                self._outputs.append(PublishSettled(number, None, reason, answered))
            case AskBroker(message=message):
                refusal = protocol.RequestRefused(message.request, reason, limit=limit)
                self._outputs.append(RequestSettled(message.request, (), refusal, answered))

    def _no_answer(self) -> str:
        return f"no response within {self._answer_s_max:g} s; the original ECI does not retransmit"

    def _send(self, payload: bytes) -> None:
        self._outputs.append(SendDatagram(ECI_SOCKET, self._broker, payload))
