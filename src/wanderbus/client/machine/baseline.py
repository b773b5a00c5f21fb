"""The agent of the original ECI: known by its address, heard by plain UDP, without SIP (SPEC A-09, X36).

It is the baseline that mobility is measured against. One message is one datagram; nothing is repeated, and nothing
but the broker's own answers acknowledges anything. What is lost on the way is lost, what comes late or twice is
passed over, so that the application sees at most what it would see of :class:`wanderbus.client.machine.core.Agent`, in
the same order. There is no authentication and no encryption: whoever can send from an address is the user of it, and
the broker has it proved once, when the agent attaches, that what is sent there arrives
(:mod:`wanderbus.protocol.eci_address`).

The documents say how the original ECI knew its users (by IP address and port) and where it sent notifications
(there), and nothing of a new address being told to the broker. So an agent that moved goes deaf, and does not know
it: its status stays as it is.
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
    Ask,
    Connect,
    Disconnect,
    Disconnected,
    Moved,
    PublishEvent,
    PublishSettled,
    RequestSettled,
    ServerUnreachable,
    StartReading,
    StopReading,
)
from wanderbus.errors import RemoteProtocolError
from wanderbus.limits import UDP_PAYLOAD_BYTES_MAX
from wanderbus.machine import Address, DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.protocol.eci_address import is_challenge

ECI_SOCKET: Final = "eci"


class Agent:
    """One agent of the original ECI as a machine; same inputs and reports as
    :class:`wanderbus.client.machine.core.Agent`.

    ``properties.server`` is where the broker hears the original ECI, ``data`` where its datagrams are received. The
    properties of users, sessions and SIP are of no account.
    """

    def __init__(self, properties: AgentProperties, *, data: Address) -> None:
        self.unreadable = 0
        """Datagrams of the broker that made no sense: as good as lost."""
        self._conversation = Conversation(msgspec.structs.replace(properties, session="default", resume=None))
        self._broker = properties.server
        self._data = data
        self._answer_s_max = properties.answer_s_max
        self._connected = self._is_attaching = False
        self._deadlines: deque[tuple[float, PublishEvent | Ask]] = deque()
        """Until when each answer is waited for, those that have come included, in order."""
        self._outputs: list[Output] = []

    @property
    def connected(self) -> bool:
        """Return the ECIAgent Status: whether the broker has attached us; it may have forgotten us since."""
        return self._connected

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order."""
        for given in inputs:
            match given:
                case DatagramReceived(source=self._broker, data=payload):
                    self._hear(payload)
                case PublishEvent() | Ask():
                    self._say(given, now)
                case StartReading() | StopReading() | Acknowledge():
                    self._conversation.say(given)
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

    def _say(self, given: PublishEvent | Ask, now: float) -> None:
        """Send a request, once; before we are attached it waits for that."""
        payload = self._conversation.say(given)
        assert payload is not None
        if len(payload) > UDP_PAYLOAD_BYTES_MAX:
            reason = f"it takes {len(payload)} bytes, and original ECI sends no more than a datagram holds"
            self._settle(given, f"{reason}: {UDP_PAYLOAD_BYTES_MAX}", limit="udp_payload_bytes_max")
            return
        if not self._deadlines:
            self._outputs.append(SetTimer("answer", now + self._answer_s_max))
        self._deadlines.append((now + self._answer_s_max, given))
        if self._connected:
            self._send(payload)

    def _hear(self, payload: bytes) -> None:
        if is_challenge(payload):
            if self._is_attaching and not self._connected:
                self._send(payload + self._conversation.opening()[0])
            return
        try:
            self._outputs += self._conversation.hear(payload)
        except RemoteProtocolError:
            self.unreadable += 1
            return
        if self._conversation.attached and not self._connected:
            self._connected = True
            self._outputs.append(AgentStatusChanged("CONNECTED", self._data, "attached by address"))
            for unsent in self._conversation.opening()[1:]:
                self._send(unsent)

    def _give_up_until(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            self._settle(self._deadlines.popleft()[1], self._no_answer(), answered=False)
        if self._deadlines:
            self._outputs.append(SetTimer("answer", self._deadlines[0][0]))

    def _settle(
        self, given: PublishEvent | Ask, reason: str, *, limit: str | None = None, answered: bool = True
    ) -> None:
        """Report that ``given`` came to nothing, unless its answer was there."""
        if not self._conversation.give_up(given):
            return
        match given:
            case PublishEvent(number=number):
                self._outputs.append(PublishSettled(number, None, reason, answered))
            case Ask(message=message):
                refusal = protocol.RequestRefused(message.request, reason, limit=limit)
                self._outputs.append(RequestSettled(message.request, (), refusal, answered))

    def _no_answer(self) -> str:
        return f"no answer came in {self._answer_s_max:g} s, and original ECI repeats nothing"

    def _send(self, payload: bytes) -> None:
        self._outputs.append(SendDatagram(ECI_SOCKET, self._broker, payload))
