"""Devices with real conversations at a broker on a desk; links break unnoticed, and nothing happens concurrently."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.broker.desk import Desk
from wanderbus import protocol
from wanderbus.broker.messages import MessageArrived
from wanderbus.client.machine.conversation import Conversation
from wanderbus.client.machine.messages import (
    Acknowledge,
    AgentProperties,
    AskBroker,
    ItemArrived,
    PublishEvent,
    PublishSettled,
    RequestSettled,
    StartReading,
)
from wanderbus.event import HELD_BACK, Event, Notification
from wanderbus.machine import Output
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Renew, Subscribe, Unsubscribe

SUBJECTS: Final = ("Trade", "Alarm")
EXPRESSIONS: Final = ("N < 3", "N >= 7", "N == 5", "(N > 2) and (N < 6)", "N == 0 or N == 9", "not (N < 8)")


class TownDevice:
    """A device: its conversation, its link, and what its application knows."""

    def __init__(self, desk: Desk, user: str, name: str, *, filtering: bool) -> None:
        self.desk, self.user, self.name, self.filtering = desk, user, name, filtering
        self.link: int | None = None
        self.is_cut = True
        self.epoch = self.numbers = self.requests = 0
        self.held_back: list[str] = []
        self.sent_bytes = 0
        self.ids: dict[int, str] = {}
        """Subscription of each answered request."""
        self.answered: set[int] = set()
        self.got: dict[str, dict[str, None]] = {}
        """Names of the events of each subscription, in order."""
        self._uids: dict[int, str] = {}
        self.restart()

    def restart(self) -> None:
        """Begin another life of the application."""
        self.epoch += 1
        self.numbers = 0
        self.is_cut = True
        self.conversation = Conversation(
            AgentProperties(self.user, ("", 0), "", self.name, epoch=self.epoch, publisher_filtering=self.filtering)
        )

    def connect(self) -> None:
        """Open a new link; the broker drops the earlier one."""
        self.is_cut = False
        self.link = self.desk.open(self.user, self.name)
        self.conversation.begin_step(self.desk.now)
        self._send(*self.conversation.opening())

    def cut(self) -> None:
        """Break the link without anybody noticing."""
        self.is_cut = True

    def publish(self, subject: str, n: int, uid: str) -> None:
        """Publish an event."""
        self.numbers += 1
        self._uids[self.numbers] = uid
        self._submit(PublishEvent(self.numbers, protocol.encode_event(Event(subject, {"N": n, "Uid": uid}))))

    def ask(self, request: Subscribe | Unsubscribe | Renew) -> None:
        """Send a request."""
        self._submit(AskBroker(request, reads=isinstance(request, Subscribe)))

    def read_again(self) -> None:
        """Read all subscriptions, as a new life of the application does."""
        for each in self.ids.values():
            self._submit(StartReading(each))

    def next_request(self) -> int:
        """Number of the next request."""
        self.requests += 1
        return self.requests

    def hear(self) -> bool:
        """Take what the broker has sent; return whether there was something."""
        messages = [] if self.link is None else self.desk.out.pop(self.link, [])
        if self.is_cut:
            return False
        for each in messages:
            self.conversation.begin_step(self.desk.now)
            for output in self.conversation.receive(protocol.encode(each)):
                self._report(output)
            self._send(*self.conversation.take_unsent())
        return bool(messages)

    def _submit(self, given: PublishEvent | AskBroker | Acknowledge | StartReading) -> None:
        self.conversation.begin_step(self.desk.now)
        payload = self.conversation.send(given)
        self._send(*([payload] if payload else []), *self.conversation.take_unsent())
        for output in self.conversation.take_held_back():
            self._report(output)

    def _send(self, *payloads: bytes) -> None:
        if not self.is_cut and self.link is not None:
            self.sent_bytes += sum(map(len, payloads))
            self.desk.give(*[MessageArrived(self.link, each) for each in payloads])

    def _report(self, output: Output) -> None:
        match output:
            case PublishSettled(number=number, id=identity) if identity == HELD_BACK:
                self.held_back.append(self._uids[number])
            case RequestSettled(request=request, subscriptions=subscriptions, refusal=None):
                self.answered.add(request)
                if subscriptions:
                    self.ids[request] = subscriptions[0].id
            case ItemArrived(item=Notification() as item, subscriptions=subscriptions):
                for each in subscriptions:
                    self.got.setdefault(each, {})[str(item.event["Uid"])] = None
                    self._submit(Acknowledge(each, item.position))


class Town:
    """A world from a seed; with ``filtering`` off it is the same, except that every event is published."""

    def __init__(self, seed: int, *, filtering: bool, lease_s: float = 10.0) -> None:
        self.draw = Random(f"publisher filters {seed}")
        self.desk = Desk(BrokerConfig(publisher_filter_lease_s=lease_s, sweep_s=None))
        self.lease_s = lease_s
        users = [f"sip:u{number}@example.org" for number in range(4)]
        self.devices = [TownDevice(self.desk, user, f"d of {user}", filtering=filtering) for user in users]
        self.wanted: list[tuple[TownDevice, int]] = []
        """Device and request of each subscription."""
        self.ended: list[tuple[TownDevice, int]] = []
        self.problems: list[str] = []
        self._events = 0
        self._crashed_at = -lease_s
        for each in self.devices:
            each.connect()
        self.settle()

    def settle(self) -> None:
        """Deliver all messages."""
        while sum(each.hear() for each in self.devices):
            pass

    def run(self, steps: int) -> None:
        """Let ``steps`` random things happen, one after the other."""
        actions = [self._publish] * 6 + [self._subscribe] * 2
        actions += [self._unsubscribe, self._renew, self._move, self._cut, self._wait, self._crash_device]
        actions += [self._restart_server] if self.draw.random() < 0.5 else []
        for _ in range(steps):
            self.draw.choice(actions)()
            self.settle()
        for each in self.devices:
            each.connect()
        self.settle()

    def deliveries(self) -> list[list[str]]:
        """The names of the events that each subscription got, in the order of the subscriptions."""
        return [list(device.got.get(device.ids[request], ())) for device, request in self.wanted]

    @property
    def held_back(self) -> list[str]:
        """The names of the events that were not sent."""
        return [uid for each in self.devices for uid in each.held_back]

    def _connected(self) -> TownDevice:
        device = self.draw.choice(self.devices)
        if device.is_cut:
            device.connect()
            self.settle()
        return device

    def _publish(self) -> None:
        """Publish events; a device whose link is broken notices it afterwards."""
        device = self.draw.choice(self.devices)
        for _ in range(self.draw.choice([1, 3, 10])):
            self._events += 1
            device.publish(self.draw.choice(SUBJECTS), self.draw.randrange(10), f"e{self._events}")
            if not device.is_cut:
                self.settle()
        if device.is_cut:
            device.connect()

    def _subscribe(self) -> None:
        device, number = self._connected(), len(self.wanted)
        subject = self.draw.choice([*SUBJECTS, *SUBJECTS, "*"])
        expression = self.draw.choice(EXPRESSIONS) + " " * number
        request = device.next_request()
        device.ask(Subscribe(request, subject, expression, None, (), this_device_only=False))
        self.wanted.append((device, request))
        self._await(device, request)

    def _unsubscribe(self) -> None:
        live = [each for each in self.wanted if each not in self.ended]
        if live:
            device, request = chosen = self.draw.choice(live)
            self._reconnect(device)
            device.ask(Unsubscribe(device.next_request(), device.ids[request]))
            self.ended.append(chosen)

    def _renew(self) -> None:
        if self.ended:
            device, request = self.ended.pop(self.draw.randrange(len(self.ended)))
            self._reconnect(device)
            number = device.next_request()
            device.ask(Renew(number, device.ids[request], None))
            self._await(device, number)

    def _await(self, device: TownDevice, request: int) -> None:
        """Wait for the answer: at once, or until the leases of agents that are away, or gone, have run out.

        As soon as it is there, the others publish, before they get anything more, and those who are away as well.
        """
        while request not in device.answered and (device.hear() or sum([each.hear() for each in self.devices])):
            pass
        if is_at_once := request in device.answered:
            self._publish_all(device)
        self.settle()
        if any(each.is_cut for each in self.devices) or self.desk.now < self._crashed_at + self.lease_s:
            self.desk.later(self.lease_s)
            self.settle()
        if request not in device.answered:
            self.problems.append(f"request {request} of {device.name} has no answer")
        if not is_at_once:
            self._publish_all(device)

    def _publish_all(self, apart_from: TownDevice) -> None:
        for each in self.devices:
            if each is not apart_from:
                self._events += 1
                each.publish(self.draw.choice(SUBJECTS), self.draw.randrange(10), f"e{self._events}")

    def _reconnect(self, device: TownDevice) -> None:
        if device.is_cut:
            device.connect()
            self.settle()

    def _move(self) -> None:
        self.draw.choice(self.devices).connect()

    def _cut(self) -> None:
        self.draw.choice(self.devices).cut()

    def _wait(self) -> None:
        self.desk.later(self.draw.choice([0.5, 3.0, 8.0, 30.0]))

    def _crash_device(self) -> None:
        device = self.draw.choice(self.devices)
        device.restart()
        self._crashed_at = self.desk.now
        # Its readers are those of its conversation, so it reads its subscriptions again.
        device.connect()
        self.settle()
        device.read_again()

    def _restart_server(self) -> None:
        self.desk.restart()
        for each in self.devices:
            each.cut()
