"""Three brokers that move sessions, each with the machine for that, on links that are lists of messages."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Hashable, Sequence

from tests.broker.desk import ALICE, BOB, Desk
from wanderbus.broker.messages import DialogChanged
from wanderbus.broker.sessions.handover_messages import DeviceLocated, HandoverOutput, MoveSession, SessionMoveEnded
from wanderbus.machine import CancelTimer, Input, Output, SetTimer, TimerFired
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.peers.handover.messages import HANDOVER_PREFIX, Message, Part, decode, encode
from wanderbus.peers.handover.session_handovers import SessionHandovers
from wanderbus.peers.messages import (
    CloseServerLink,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.peers.owner_messages import CallRedirected, CallRefused, CallServed, VisitorStays
from wanderbus.records import (
    ExportDropped,
    ExportTaken,
    QueueContinued,
    SessionAwaited,
    SessionFenced,
    SessionImported,
    SessionNotAwaited,
    decode_record,
)
from wanderbus.server_networks import ServerNetworks

NAMES = ("south", "north", "east")
KEY = f"{ALICE}/default"
NETWORKS = ServerNetworks({"south": ["10.1.0.0/16"], "north": ["10.2.0.0/16"], "east": ["10.3.0.0/16"]})
_OF_MOVES = (
    SessionAwaited,
    SessionNotAwaited,
    SessionFenced,
    SessionImported,
    ExportTaken,
    QueueContinued,
    ExportDropped,
)


class Server(Desk):
    """A broker and its machine for handovers."""

    handovers: SessionHandovers

    def __init__(self, town: Town, name: str) -> None:
        self.town = town
        self.name = name
        self.ended: list[SessionMoveEnded] = []
        self.closed: list[CloseServerLink] = []
        self.asked: list[Input | Output] = []
        """Inputs of the broker by the machine."""
        self.move_timers: dict[Hashable, float] = {}
        super().__init__(BrokerConfig(server=name, sweep_s=None))

    def start(self) -> None:
        self.move_timers.clear()
        super().start()
        others = [each for each in NAMES if each != self.name]
        self.handovers = SessionHandovers(
            others, others, self.broker.state, "example.org", NETWORKS, self.town.piece_bytes
        )

    def perform(self, outputs: Sequence[Output]) -> None:
        super().perform(outputs)
        for each in outputs:
            if isinstance(each, HandoverOutput):
                self.hand(each)

    def hand(self, *inputs: Input | Output) -> None:
        """Step the machine, and execute its outputs."""
        for each in self.handovers.step(inputs, self.now):
            match each:
                case SendOnServerLink(link=link, payload=payload):
                    self.town.sent.append((self.name, link, payload))
                case CloseServerLink():
                    self.closed.append(each)
                    self.town.cut(each.link)
                case SetTimer(key=key, at=at):
                    self.move_timers[key] = at
                case CancelTimer(key=key):
                    self.move_timers.pop(key, None)
                case SessionMoveEnded():
                    self.ended.append(each)
                case CallServed() | CallRedirected() | CallRefused() | VisitorStays():
                    raise AssertionError(each)
                case _:
                    self.asked.append(each)
                    self.give(each)

    def later(self, seconds: float) -> None:
        """Advance the clock, and fire the timers of moves that are due."""
        super().later(seconds)
        for key in [key for key, at in self.move_timers.items() if at <= self.now]:
            del self.move_timers[key]
            self.hand(TimerFired(key))

    def locate(self, host: str, device: str = "phone", user: str = ALICE) -> None:
        """Let the data of a device go to another host."""
        self.give(DialogChanged(user, device, f"{host}:4000", b"dialog"))
        self.hand(DeviceLocated(user, device, host))

    def move(self, target: str = "north", session: str = "default", user: str = ALICE) -> None:
        """Request the move of a session of Alice's."""
        self.hand(MoveSession(user, session, target))

    @property
    def has_session(self) -> bool:
        """True if it owns Alice's session."""
        row = self.broker.state.sessions.get(KEY)
        return row is not None and not row.is_fenced

    @property
    def records_of_moves(self) -> list[str]:
        """Names of the records about sessions that move, in the order of the log."""
        return [type(each).__name__ for each in map(decode_record, self.log) if isinstance(each, _OF_MOVES)]


class Town:
    """Three servers; the first has a session of Alice's with ``waiting`` notifications, two of them in each piece."""

    def __init__(self, names: Sequence[str] = NAMES, *, waiting: int = 2, piece_bytes: int = 300) -> None:
        self.piece_bytes = piece_bytes
        self.sent: deque[tuple[str, int, bytes]] = deque()
        self.trace: list[tuple[str, str, str]] = []
        """Sender, receiver and kind of each message that has arrived."""
        self.links: dict[int, tuple[str, str]] = {}
        self._numbers = itertools.count(1)
        self.servers = {name: Server(self, name) for name in NAMES}
        for pair in itertools.combinations(names, 2):
            self.open(*pair)
        self.run()
        south = self["south"]
        phone, bob = south.attach(ALICE, "phone"), south.attach(BOB, "desk")
        south.subscribed(phone, "N > 0")
        south.close(phone)
        for number in range(1, waiting + 1):
            south.publish(bob, number)

    def __getitem__(self, name: str) -> Server:
        return self.servers[name]

    def open(self, opener: str, acceptor: str) -> int:
        """Open a link, and return its number."""
        link = next(self._numbers)
        self.links[link] = opener, acceptor
        self[opener].hand(ServerLinkOpened(link, acceptor, is_ours=True))
        self[acceptor].hand(ServerLinkOpened(link, opener, is_ours=False))
        return link

    def link(self, one: str, other: str) -> int:
        """The newest link between two servers."""
        return max(link for link, ends in self.links.items() if set(ends) == {one, other})

    def cut(self, link: int) -> None:
        """Close a link; what is on its way is lost."""
        if (ends := self.links.pop(link, None)) is None:
            return
        self.sent = deque(each for each in self.sent if each[1] != link)
        for name, other in (ends, ends[::-1]):
            self[name].hand(ServerLinkClosed(link, other, "cut"))

    def crash(self, name: str, *, with_rows: bool = False) -> None:
        """Restart a server, and open its links again."""
        others = [each for each in NAMES if each != name]
        for link in [link for link, ends in self.links.items() if name in ends]:
            ends = self.links.pop(link)
            self.sent = deque(each for each in self.sent if each[1] != link)
            (other,) = set(ends) - {name}
            self[other].hand(ServerLinkClosed(link, name, "crash"))
        self[name].restart(with_rows=with_rows)
        for other in others:
            self.open(name, other)

    def deliver(self) -> bool:
        """Deliver the next message; return False if there is none."""
        if not self.sent:
            return False
        sender, link, payload = self.sent.popleft()
        if link in self.links:
            (receiver,) = set(self.links[link]) - {sender}
            assert payload[:1] == HANDOVER_PREFIX
            message = decode(payload[1:])
            kind = message.what if isinstance(message, Part) else type(message).__name__
            self.trace.append((sender, receiver, kind))
            self[receiver].hand(ServerMessageReceived(link, sender, payload[1:]))
        return True

    def run(self) -> None:
        """Deliver all messages."""
        while self.deliver():
            pass

    def say(self, sender: str, receiver: str, *messages: Message) -> None:
        """Let a server send what its machine would not, and take the answers off the links."""
        for message in messages:
            link = self.link(sender, receiver)
            self[receiver].hand(ServerMessageReceived(link, sender, encode(message)[1:]))

    def answers(self, sender: str) -> list[Message]:
        """Take the messages of a server that are on their way."""
        taken = [decode(payload[1:]) for name, _, payload in self.sent if name == sender]
        self.sent.clear()
        return taken
