"""``python -P domain_single_rate.py EVENTS``: print the events that one broker processes in a second of processor.

An agent publishes in batches to a broker in this process with 1,000 subscriptions of four others. Each event matches
one, and its device acknowledges it. Disks are durable at once; sockets and encryption are left out, since they are the
same and would hide a difference. It imports only what earlier versions of wanderbus also have.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final

from wanderbus import protocol
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import Append, Appended, LinkOpened, MessageArrived, SendOnLink
from wanderbus.broker.state.state import BrokerState
from wanderbus.event import Event
from wanderbus.machine import ClockRead, Input, SetTimer, TimerFired
from wanderbus.matching import load_kernel
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import SERVER_LOG

try:
    from wanderbus.broker.rollback.messages import ServerStarted
except ImportError:  # earlier versions have it elsewhere
    from wanderbus.broker.messages import ServerStarted  # type: ignore[attr-defined, no-redef]

try:
    from wanderbus.protocol import NotifyAck
except ImportError:  # its name in earlier versions
    from wanderbus.protocol import Take as NotifyAck  # type: ignore[attr-defined, no-redef]

SUBSCRIPTIONS: Final = 1_000
SUBSCRIBERS: Final = 4
BATCH: Final = 64
SUBJECT: Final = "Departure"

_PUBLISHER: Final = 99
_START_US: Final = 1_700_000_000_000_000
_TURN: Final = ("turn",)


class LoneBroker:
    """A broker, its log, and its agents, which acknowledge what they get."""

    def __init__(self) -> None:
        config = BrokerConfig(user_filter_characters_per_s=1e9, user_filter_work_per_s=1e12)
        self._broker = Broker(BrokerState("wb", config.publishes_remembered), config, kernel=load_kernel("numba"))
        self._now = 0.0
        self._logged = 0
        self._acknowledged: list[Input] = []
        self.notified = 0
        self.step([ServerStarted()])
        for link in (*range(SUBSCRIBERS), _PUBLISHER):
            self.step([LinkOpened(link, f"sip:user{link}@example.org", "phone")])
            self.send(link, [protocol.Attach(1, "default", None, keep=True)])
        for number in range(SUBSCRIPTIONS):
            expression = f"Slot == {number} and Level < {number + 1}"
            request = protocol.Subscribe(number, SUBJECT, expression, None, (), this_device_only=False, reader=number)
            self.send(number % SUBSCRIBERS, [request])

    def send(self, link: int, messages: Sequence[protocol.AgentMessage]) -> None:
        """Process messages of an agent."""
        self.step([MessageArrived(link, protocol.encode(each)) for each in messages])

    def step(self, inputs: Sequence[Input]) -> None:
        """Step the broker until it is at rest."""
        waiting = [inputs]
        while waiting:
            self._now += 1e-3
            clock = ClockRead(_START_US + round(self._now * 1e6))
            for output in self._broker.step([clock, *waiting.pop(0)], self._now):
                match output:
                    case Append(entries=entries):
                        self._logged += len(entries)
                        waiting.append([Appended(SERVER_LOG, self._logged)])
                    case SendOnLink():
                        self._answer(output)
                    case SetTimer(key=key) if key == _TURN:
                        waiting.append([TimerFired(_TURN)])
            if not waiting and self._acknowledged:
                waiting.append(self._acknowledged)
                self._acknowledged = []

    def _answer(self, sent: SendOnLink) -> None:
        message = protocol.decode_from_broker(sent.payload)
        if isinstance(message, protocol.Notify):
            self.notified += 1
            for reader in message.readers:
                taken = protocol.encode(NotifyAck(reader, message.number))
                self._acknowledged.append(MessageArrived(sent.link, taken))


def rate(events: int) -> float:
    """Return the events that a broker processes in a second of processor."""
    broker = LoneBroker()
    took_s = 0.0
    for first in range(0, events, BATCH):
        batch = [
            protocol.Publish(
                number + 1, Event(SUBJECT, {"Slot": number * 7 % SUBSCRIPTIONS, "Level": 0, "Filling": "x" * 150})
            )
            for number in range(first, min(first + BATCH, events))
        ]
        started_s = time.process_time()
        broker.send(_PUBLISHER, batch)
        took_s += time.process_time() - started_s
    if broker.notified != events:
        raise RuntimeError(f"{broker.notified} of {events} events were delivered")
    return events / took_s


if __name__ == "__main__":
    print(rate(int(sys.argv[1])))
