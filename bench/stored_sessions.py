"""Sessions that a server has before its first start: a broker in this process makes them, and its log is written.

Their users are away. Each session has a device, a subscription, and one event that waits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wanderbus import protocol
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import Append, Appended, LinkClosed, LinkOpened, MessageArrived
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.broker.state.state import BrokerState
from wanderbus.event import Event
from wanderbus.machine import ClockRead, Input, SetTimer, TimerFired
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import SERVER_LOG
from wanderbus.runtime.files.server_files import ServerFiles

FILTERS: Final = 100

_LINK: Final = 1
_TURN: Final = ("turn",)
_DEVICE: Final = "phone"


def store_sessions(directory: Path, server: str, users: Sequence[str], subject: str) -> None:
    """Let the data directory of ``server`` have a session of each user; their subscriptions have 100 filters."""
    broker = _Broker(server)
    for number, user in enumerate(users):
        broker.let_subscribe(f"sip:{user}@localhost", subject, f"Number < {number % FILTERS + 1}")
    broker.publish(Event(subject, {"Number": 0}), f"sip:{users[0]}@localhost")
    files = ServerFiles.open(directory, new_name=server)
    files.log.append(broker.entries)
    files.log.sync()
    files.close()


class _Broker:
    """A broker whose writes are durable at once."""

    def __init__(self, server: str) -> None:
        config = BrokerConfig(server=server, domain="localhost", user_filter_work_per_s=1e12)
        self._broker = Broker(BrokerState(server, config.publishes_remembered), config)
        self._now = 0.0
        self.entries: list[tuple[int, int, bytes]] = []
        self._step([ServerStarted()])

    def let_subscribe(self, user: str, subject: str, expression: str) -> None:
        """Let a user connect, subscribe and leave."""
        wanted = protocol.Subscribe(1, subject, expression, None, (), this_device_only=False, reader=1)
        self._visit(user, wanted)

    def publish(self, event: Event, user: str) -> None:
        """Let a user connect, publish and leave."""
        self._visit(user, protocol.Publish(1, event))

    def _visit(self, user: str, message: protocol.AgentMessage) -> None:
        attach = protocol.Attach(1, "default", None, keep=True)
        self._step([LinkOpened(_LINK, user, _DEVICE)])
        self._step([MessageArrived(_LINK, protocol.encode(each)) for each in (attach, message)])
        self._step([LinkClosed(_LINK, "closed")])

    def _step(self, inputs: Sequence[Input]) -> None:
        waiting = [inputs]
        while waiting:
            self._now += 1e-3
            clock = ClockRead(time.time_ns() // 1_000)
            for output in self._broker.step([clock, *waiting.pop(0)], self._now):
                match output:
                    case Append(entries=entries):
                        self.entries += entries
                        waiting.append([Appended(SERVER_LOG, len(self.entries))])
                    case SetTimer(key=key) if key == _TURN:
                        waiting.append([TimerFired(_TURN)])
