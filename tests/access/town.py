"""Three servers of a domain with decentralised channels: real brokers, and links that are function calls."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from random import Random

from tests.broker.desk import Desk
from wanderbus.broker.core import Broker
from wanderbus.broker.messages import (
    CausalMessageArrived,
    DirectLinkClosed,
    DirectLinkOpened,
    LinkClosed,
    LinkDropped,
    LinkOpened,
    MatchesWanted,
    SendOnLink,
)
from wanderbus.broker.rollback.messages import ServerStarted
from wanderbus.broker.signals import ForInterest
from wanderbus.channels.decentralised_channels import CAUSAL_PREFIX, INTEREST_PREFIX, DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.interest.interest_set import InterestMode
from wanderbus.channels.interest.multicast import MulticastMissed
from wanderbus.channels.merging import Merging
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.machine import DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.peers.decentralised_interest import DecentralisedInterest
from wanderbus.peers.messages import (
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)
from wanderbus.peers.multicast_group import MulticastGroup
from wanderbus.simulation.domains.multicast_network import GROUP, DrawnRandom
from wanderbus.simulation.engine import SimulatedEngine

DOMAIN = "example.org"
SERVERS = ("s1", "s2", "s3")
KEY = bytes(32)


def channels_of(
    name: str,
    is_decentralised: Callable[[str], bool],
    leaders: Sequence[str],
    *,
    has_ordered: bool,
    is_required: bool,
    mode: InterestMode,
) -> OwnChannels:
    """Channels as the server ``name`` sees them; one of the ``leaders`` leads each."""
    directory = Directory(ChannelGroups(KEY, 4), first_table(4, leaders, KEY))
    merging = Merging("none", for_advertisers=True) if is_required else Merging(mode)
    decentralised = DecentralisedChannels(
        directory, name, SERVERS, is_decentralised, lambda subject: merging, (merging,), has_ordered=has_ordered
    )
    return OwnChannels(directory, name, decentralised=decentralised)


class Post(Desk):
    """A desk that is a server of a town."""

    def __init__(self, town: Town, name: str, channels: OwnChannels, spark_subjects: tuple[str, ...] = ()) -> None:
        self.engine = SimulatedEngine(())
        self.asked: MatchesWanted | None = None
        """Request to the engine that waits for :meth:`match`."""
        self.town = town
        self.name = name
        self.channels = channels
        self.lives = 0
        self.reports: list[Output] = []
        """Reports of the interest to the operator."""
        super().__init__(BrokerConfig(server=name, domain=DOMAIN, spark_subjects=spark_subjects))

    def start(self) -> None:
        self._reading_all.clear()
        self.pieces.clear()
        self.timers.clear()
        assert self.channels.decentralised is not None
        self.lives += 1
        state = self.recovered()
        group = self.town.group(self.name) if self.town.has_multicast else None
        self.interest = DecentralisedInterest(
            self.channels.decentralised, epoch=max(self.lives, state.wall_us), group=group
        )
        self.broker = Broker(state, self.config, channels=self.channels)
        self.give(ServerStarted())
        self.execute(self.interest.start(self.now))

    def perform(self, outputs: Sequence[Output]) -> None:
        others: list[Output] = []
        for each in outputs:
            match each:
                case _ if isinstance(each, ForInterest):
                    self.execute(self.interest.step([each], self.now))
                case SendOnLink(link=link, payload=payload) if link in self.town.wires:
                    self.town.send(self.name, link, payload)
                case LinkDropped(link=link) if link in self.town.wires:
                    self.town.cut(link)
                case MatchesWanted():
                    self.asked = each
                case _:
                    others.append(each)
        super().perform(others)

    def match(self) -> None:
        """Let the engine match everything that is durable."""
        while (asked := self.asked) is not None:
            self.engine.log = self.log
            answer = self.engine.read(asked, self.broker._journal.durable)
            if not answer.is_lost and answer.next == asked.first and asked.subscriptions is None:
                return
            self.asked = None
            self.give(answer)

    def execute(self, outputs: Sequence[Input | Output]) -> None:
        """Execute outputs of the interest."""
        for each in outputs:
            match each:
                case SendOnServerLink(link=link, payload=payload):
                    self.town.send(self.name, link, payload)
                case SendDatagram(data=data):
                    self.town.send_to_group(data)
                case MulticastMissed():
                    self.reports.append(each)
                case SetTimer(key=key, at=at):
                    self.timers["interest", key] = at
                case Input() if not hasattr(each, "server"):
                    self.give(each)

    def later(self, seconds: float) -> None:
        """Advance the clock, and fire the timers that are due."""
        end = self.now + seconds
        while self.timers and min(self.timers.values()) <= end:
            key = min(self.timers, key=lambda each: self.timers[each])
            self.now = max(self.now, self.timers.pop(key))
            if isinstance(key, tuple) and key[0] == "interest":
                self.execute(self.interest.step([TimerFired(key[1])], self.now))
            else:
                self.give(TimerFired(key))
        self.now = end


class Town:
    """Servers, and links in both directions between all of them; messages of a stopped way wait."""

    def __init__(
        self,
        is_decentralised: Callable[[str], bool] = lambda subject: True,
        leaders: Sequence[str] = ("s1",),
        *,
        has_ordered: bool = False,
        is_required: bool = False,
        has_multicast: bool = False,
        mode: InterestMode = "perfect",
        spark_subjects: tuple[str, ...] = (),
    ) -> None:
        """Start the servers; the engine beside each matches the ``spark_subjects``, ``mode`` is that of merging."""
        self.has_multicast = has_multicast
        self.leaders = leaders
        self.datagrams: list[bytes] = []
        """All datagrams that were sent to the multicast group."""
        self.deaf: set[str] = set()
        """Servers that get no datagrams."""
        self.interest_messages = 0
        """Messages about interest that links have carried."""
        self._under_way: deque[bytes] = deque()
        self._new_lives = 0
        self.wires: dict[int, tuple[str, str]] = {}
        """Opener and acceptor of each link."""
        self.sent: deque[tuple[str, int, bytes, int]] = deque()
        """Messages under way: the sender, the link, the bytes, and the hops behind it when it arrives."""
        self.hops = 0
        """Hops behind the message that is being processed; 0 for what an agent has caused."""
        self.hops_max = 0
        """Most hops of a message since a test set it to 0."""
        self.stopped: set[tuple[str, str]] = set()
        self.down: set[str] = set()
        self.causal = 0
        """Messages of the causal order that were sent, by all servers."""
        self.causal_to: Counter[str] = Counter()
        """Messages of the causal order that each server received."""
        self._links = 1000
        self.posts = {
            name: Post(
                self,
                name,
                channels_of(
                    name, is_decentralised, leaders, has_ordered=has_ordered, is_required=is_required, mode=mode
                ),
                spark_subjects,
            )
            for name in SERVERS
        }
        for name in SERVERS:
            self.connect(name)

    def __getitem__(self, name: str) -> Post:
        return self.posts[name]

    def connect(self, name: str) -> None:
        """Open the links of a server, to and from all others that run."""
        self.down.discard(name)
        for other in SERVERS:
            if other != name and other not in self.down:
                self.open(name, other)
                self.open(other, name)
        self.run()

    def open(self, opener: str, acceptor: str) -> None:
        """Open a link in place of an earlier one."""
        for link in [each for each, ends in self.wires.items() if ends == (opener, acceptor)]:
            self.cut(link)
        self._links += 1
        self.wires[self._links] = opener, acceptor
        for name, is_ours, other in ((opener, True, acceptor), (acceptor, False, opener)):
            post = self.posts[name]
            post.execute(post.interest.step([ServerLinkOpened(self._links, other, is_ours)], post.now))
            if not is_ours:
                post.give(LinkOpened(self._links, f"sip:{other}@servers.{DOMAIN}", "server", is_server=True))
            if opener < acceptor:
                post.give(DirectLinkOpened(self._links, other))

    def filters_at_leader(self, origin: str) -> list[str]:
        """The filters of a server that the first leader holds."""
        (proxies,) = self.posts[self.leaders[0]].interest._proxies
        tables = [proxies.incoming.filters(each) for each in proxies.incoming.routes() if each[0] == origin]
        return [each.expression for table in tables for each in table]

    def cut(self, link: int) -> None:
        """Close a link; what is on its way is lost."""
        opener, acceptor = self.wires.pop(link)
        self.sent = deque(each for each in self.sent if each[1] != link)
        for name, other in ((opener, acceptor), (acceptor, opener)):
            if name not in self.down:
                post = self.posts[name]
                post.execute(post.interest.step([ServerLinkClosed(link, other, "cut")], post.now))
                if name == acceptor:
                    post.give(LinkClosed(link, "cut"))
                if opener < acceptor:
                    post.give(DirectLinkClosed(link, other))

    def kill(self, name: str) -> None:
        """Stop a server; its disk stays."""
        self.down.add(name)
        for link in [each for each, ends in self.wires.items() if name in ends]:
            self.cut(link)

    def restart(self, name: str, *, with_rows: bool = False) -> None:
        """Start a server again from its log, or from its rows and the rest of the log."""
        if name not in self.down:
            self.kill(name)
        self.posts[name].restart(with_rows=with_rows)
        self.connect(name)

    def group(self, name: str) -> MulticastGroup:
        """The multicast group, for a new life of a server."""
        self._new_lives += 1
        random = DrawnRandom(Random(self._new_lives))
        return MulticastGroup(GROUP, KEY, domain=DOMAIN, servers=SERVERS, server=name, random=random)

    def send_to_group(self, data: bytes) -> None:
        """Send a datagram to all servers that are not deaf."""
        self.datagrams.append(data)
        self._under_way.append(data)

    def replay(self, number: int) -> None:
        """Deliver a datagram again that was sent before."""
        self._under_way.append(self.datagrams[number])
        self.run()

    def send(self, name: str, link: int, payload: bytes) -> None:
        """Put a message on a link."""
        self.interest_messages += payload[:1] == INTEREST_PREFIX
        self.causal += payload[:1] == CAUSAL_PREFIX
        if link in self.wires and name not in self.down:
            self.sent.append((name, link, payload, self.hops + 1))

    def run(self) -> None:
        """Deliver all messages but those of the stopped ways."""
        waiting: deque[tuple[str, int, bytes, int]] = deque()
        while self.sent or self._under_way:
            if self._under_way:
                received = DatagramReceived("multicast", GROUP, self._under_way.popleft())
                for post in [each for name, each in self.posts.items() if name not in self.deaf | self.down]:
                    post.execute(post.interest.step([received], post.now))
                continue
            source, link, payload, hops = self.sent.popleft()
            opener, acceptor = self.wires[link]
            target = acceptor if source == opener else opener
            if (source, target) in self.stopped and payload[:1] == CAUSAL_PREFIX:
                waiting.append((source, link, payload, hops))
                continue
            self.hops = hops
            self.hops_max = max(self.hops_max, hops)
            post = self.posts[target]
            if payload[:1] == CAUSAL_PREFIX:
                self.causal_to[target] += 1
                post.give(CausalMessageArrived(link, source, payload[1:]))
            elif payload[:1] == INTEREST_PREFIX:
                post.execute(post.interest.step([ServerMessageReceived(link, source, payload[1:])], post.now))
            self.hops = 0
        self.sent = waiting

    def later(self, seconds: float) -> None:
        """Let time pass everywhere, in small steps."""
        for _ in range(round(seconds / 0.25)):
            for name in SERVERS:
                if name not in self.down:
                    self.posts[name].later(0.25)
            self.run()
