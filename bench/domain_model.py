"""Servers of a domain connected by function calls, which counts every message between them (SPEC J-09, J-10).

Brokers and sessions at leaders are those of a real server. Links are one queue that keeps the order, disks are durable
at once, and a message is counted with its bytes before encryption. Its *hops* are the messages in sequence that led to
it, the agent's own one included. Agents here get what they subscribe to without acknowledging it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from wanderbus import protocol
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import (
    Append,
    Appended,
    LinkOpened,
    MessageArrived,
    SendOnLink,
)
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.broker.servers.server_users import server_user
from wanderbus.broker.signals import ForLeaders
from wanderbus.broker.state.state import BrokerState
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import GROUPS, ChannelGroups
from wanderbus.channels.own_channels import Merging, OwnChannels
from wanderbus.event import Event
from wanderbus.machine import ClockRead, Input, Output, SetTimer, TimerFired
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.peers.leader_sessions import LeaderSessions
from wanderbus.peers.messages import ConnectServer, SendOnServerLink, ServerLinkOpened, ServerMessageReceived
from wanderbus.records import SERVER_LOG

DOMAIN: Final = "example.org"
KEY: Final = bytes(range(32))
_START_US: Final = 1_700_000_000_000_000
_FIRST_LINK: Final = 2**48
_TURN: Final = ("turn",)


class Sent(NamedTuple):
    """A message on its way: to the broker of ``server``, or to its sessions at leaders (``is_answer``)."""

    server: str
    link: int
    payload: bytes
    hops: int
    is_answer: bool


class Traffic:
    """Messages and bytes between servers, by type of message."""

    def __init__(self) -> None:
        self.messages: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def add(self, payload: bytes, *, is_answer: bool) -> None:
        """Count a message."""
        message = protocol.decode_from_broker(payload) if is_answer else protocol.decode_from_agent(payload)
        name = type(message).__name__
        self.messages[name] += 1
        self.bytes[name] += len(payload)

    def total(self, *kinds: str) -> int:
        """Return the number of messages of these kinds; without any, of all."""
        return sum(self.messages[each] for each in kinds or self.messages)

    def total_bytes(self) -> int:
        """Return the bytes of all messages."""
        return sum(self.bytes.values())


class Answer(NamedTuple):
    """A message to an agent, and its hops."""

    message: protocol.BrokerMessage
    hops: int


class ModelServer:
    """One server: its broker, its sessions at leaders, and the length of its log."""

    def __init__(self, name: str, channels: OwnChannels) -> None:
        # The pace of a user's subscriptions is not measured here.
        config = BrokerConfig(server=name, domain=DOMAIN, user_filter_characters_per_s=1e9)
        self.name = name
        self.broker = Broker(BrokerState(name, config.publishes_remembered), config, channels=channels)
        self.leaders = LeaderSessions(channels, epoch=1, positions={})
        self.logged = 0


class ModelDomain:
    """A domain of ``size`` servers that all lead channels; ``merging`` applies to each of them."""

    def __init__(self, size: int, merging: Merging | None = None, pins: dict[str, int] | None = None) -> None:
        names = tuple(f"s{number}" for number in range(1, size + 1))
        directory = Directory(ChannelGroups(KEY, GROUPS, pins=pins or {}), first_table(GROUPS, names, KEY))
        merging = merging or Merging()
        self.traffic = Traffic()
        self.answers: dict[int, list[Answer]] = {}
        """Messages to each agent, by link."""
        self.servers = {
            name: ModelServer(name, OwnChannels(directory, name, lambda subject: merging)) for name in names
        }
        self.leader = OwnChannels(directory, names[0]).leader
        """Returns the leader of a subject."""
        self._queue: deque[Sent] = deque()
        self._links: dict[int, tuple[str, str]] = {}
        """Opener and acceptor of each link between servers."""
        self._now = 0.0
        self._numbers = 0
        for server in self.servers.values():
            self._step_broker(server, [ServerStarted()], 0)
        for server in self.servers.values():
            for connect in server.leaders.start():
                assert isinstance(connect, ConnectServer)
                self._open(server.name, connect.server)
        self.run()
        self.traffic = Traffic()

    # Agents -----------------------------------------------------------------------------------------------------

    def agent(self, server: str, name: str) -> int:
        """Connect an agent to a server; return its link."""
        link = self._number()
        broker = self.servers[server]
        self._links[link] = ("", server)
        self._step_broker(broker, [LinkOpened(link, f"sip:{name}@{DOMAIN}", "phone", unattended=True)], 0)
        self.send(link, protocol.Attach(1, "default", None, keep=True))
        self.run()
        self.answers[link] = []
        return link

    def send(self, link: int, message: protocol.AgentMessage) -> None:
        """Send a message of an agent; :meth:`run` delivers it."""
        self._queue.append(Sent(self._links[link][1], link, protocol.encode(message), 1, is_answer=False))

    def subscribe(self, link: int, subject: str, expression: str = "") -> int:
        """Send the request for a subscription; return its number."""
        request = self._number()
        self.send(link, protocol.Subscribe(request, subject, expression, None, (), this_device_only=False))
        return request

    def unsubscribe(self, link: int, subscription: str) -> int:
        """Remove a subscription, and deliver all that follows; return the hops until the answer."""
        request = self._number()
        self.send(link, protocol.Unsubscribe(request, subscription))
        self.run()
        return self.answered(link, request)[1]

    def publish(self, link: int, event: Event) -> int:
        """Send an event to publish; return its number."""
        number = self._number()
        self.send(link, protocol.Publish(number, event))
        return number

    def answered(self, link: int, request: int) -> tuple[str, int]:
        """Return the subscription that a request has made, empty if it made none, and the hops until its answer."""
        for message, hops in reversed(self.answers[link]):
            if isinstance(message, protocol.Done) and message.request == request:
                return message.subscriptions[0].id if message.subscriptions else "", hops
        raise RuntimeError(f"request {request} has no answer: {self.answers[link][-3:]}")

    # Messages ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Deliver all messages, and those that they cause."""
        while self._queue:
            sent = self._queue.popleft()
            server = self.servers[sent.server]
            self._now += 1e-3
            if sent.is_answer:
                received = ServerMessageReceived(sent.link, self._links[sent.link][1], sent.payload)
                self._step_leaders(server, [received], sent.hops)
            else:
                self._step_broker(server, [MessageArrived(sent.link, sent.payload)], sent.hops)

    def _open(self, opener: str, acceptor: str) -> None:
        link = _FIRST_LINK + self._number()
        self._links[link] = opener, acceptor
        opened = LinkOpened(link, server_user(opener, DOMAIN), "server", is_server=True)
        self._step_broker(self.servers[acceptor], [opened], 0)
        self._step_leaders(self.servers[opener], [ServerLinkOpened(link, acceptor, is_ours=True)], 0)

    def _step_broker(self, server: ModelServer, inputs: Sequence[Input], hops: int) -> None:
        """Step a broker until it is at rest; ``hops`` are those of the message that it processes."""
        steps = deque([inputs])
        while steps:
            outputs = server.broker.step([ClockRead(_START_US + round(self._now * 1e6)), *steps.popleft()], self._now)
            for_leaders: list[Input | Output] = []
            for output in outputs:
                match output:
                    case SendOnLink(link=link, payload=payload):
                        self._answer(link, payload, hops + 1)
                    case Append(entries=entries):
                        server.logged += len(entries)
                        steps.append([Appended(SERVER_LOG, server.logged)])
                    case SetTimer(key=key) if key == _TURN:
                        steps.append([TimerFired(_TURN)])
                    case _ if isinstance(output, ForLeaders):
                        for_leaders.append(output)
            if for_leaders:
                self._step_leaders(server, for_leaders, hops)

    def _step_leaders(self, server: ModelServer, inputs: Iterable[Input | Output], hops: int) -> None:
        for_broker: list[Input] = []
        for output in server.leaders.step(inputs, self._now):
            if isinstance(output, SendOnServerLink):
                self.traffic.add(output.payload, is_answer=False)
                acceptor = self._links[output.link][1]
                self._queue.append(Sent(acceptor, output.link, output.payload, hops + 1, is_answer=False))
            elif isinstance(output, Input):
                for_broker.append(output)
        if for_broker:
            self._step_broker(server, for_broker, hops)

    def _answer(self, link: int, payload: bytes, hops: int) -> None:
        """Send a message of a broker to an agent, or to the server that opened ``link``."""
        opener, _ = self._links[link]
        if opener:
            self.traffic.add(payload, is_answer=True)
            self._queue.append(Sent(opener, link, payload, hops, is_answer=True))
        else:
            self.answers.setdefault(link, []).append(Answer(protocol.decode_from_broker(payload), hops))

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers
