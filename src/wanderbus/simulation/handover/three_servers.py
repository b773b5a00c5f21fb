"""Three servers of which one has all channels, and a session that moves between the others: messages are counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from wanderbus import protocol
from wanderbus.channels.decentralised_channels import CAUSAL_PREFIX, INTEREST_PREFIX, DecentralisedChannels
from wanderbus.channels.directory import Directory, first_table
from wanderbus.channels.groups import ChannelGroups
from wanderbus.channels.interest.interest_set import InterestMode
from wanderbus.channels.interest.messages import InterestChanged, InterestWhole
from wanderbus.channels.interest.messages import decode as decode_interest
from wanderbus.channels.merging import Merging
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.peers.handover.messages import HANDOVER_PREFIX
from wanderbus.records import SessionImported
from wanderbus.simulation.domains.domain_node import DOMAIN
from wanderbus.simulation.domains.links import DomainLink, DomainLinks
from wanderbus.simulation.handover.device import HandoverDevice
from wanderbus.simulation.handover.node import HandoverNode
from wanderbus.simulation.world import World

CHANNEL, SOURCE, TARGET = NAMES = ("s1", "s2", "s3")
"""The server that has the channel of every subject, and those between which the session moves."""

ALICE, BOB, CAROL = (f"sip:{name}@{DOMAIN}" for name in ("alice", "bob", "carol"))
"""The user whose session moves, and others."""

WANTED: Final = "x > 5"
"""Filter of the session that moves."""


class Sent(NamedTuple):
    """A message between two servers."""

    sender: str
    receiver: str
    payload: bytes

    @property
    def is_update(self) -> bool:
        """Return whether it tells the server with the channel of more or less interest."""
        if self.receiver != CHANNEL or self.payload[:1] in (CAUSAL_PREFIX, HANDOVER_PREFIX):
            return False
        if self.payload[:1] == INTEREST_PREFIX:
            return isinstance(decode_interest(self.payload[1:]), InterestChanged | InterestWhole)
        return isinstance(protocol.decode_from_agent(self.payload), protocol.Subscribe | protocol.Unsubscribe)

    @property
    def is_about_session(self) -> bool:
        """Return whether it belongs to the move of a session."""
        return self.payload[:1] == HANDOVER_PREFIX


class _CountingNode(HandoverNode):
    """A server that keeps the messages of others."""

    sent: list[Sent]

    def arrived(self, link: DomainLink, payloads: Sequence[bytes]) -> None:
        self.sent += [Sent(link.other(self).name, self.name, each) for each in payloads]
        super().arrived(link, payloads)


class ThreeServers:
    """The domain; ``sent`` are the messages since the last :meth:`move` began."""

    def __init__(self, mode: InterestMode, *, is_decentralised: bool) -> None:
        self.world = World(1)
        self.sent: list[Sent] = []
        self.nodes: dict[str, HandoverNode] = {}
        links = DomainLinks(self.world, self.nodes)
        key, merging = bytes(32), Merging(mode)
        directory = Directory(ChannelGroups(key, 8), first_table(8, NAMES[:1], key))
        for name in NAMES:
            own = None
            if is_decentralised:
                own = DecentralisedChannels(
                    *(directory, name, NAMES, lambda subject: True, lambda subject: merging, (merging,)),
                    has_ordered=False,
                )
            others = [each for each in NAMES if each != name]
            channels = OwnChannels(directory, name, lambda subject: merging, own, others, b"1")
            node = _CountingNode(self.world, name, channels, BrokerConfig(sweep_s=None))
            self.nodes[name] = node
            node.others, node.links, node.sent = others, links, self.sent
        for each in self.nodes.values():
            each.start()
        self.wait()

    def wait(self) -> None:
        """Let everything happen that is due."""
        self.world.run(self.world.now + 20.0)

    def subscribe(self, user: str, server: str, expression: str) -> HandoverDevice:
        """Let a user subscribe at a server; return the device once that counts."""
        phone = HandoverDevice(self.world, self.nodes[server], user, "phone", 0.001)
        phone.nodes = {server: self.nodes[server]} if user != ALICE else self.nodes
        self.wait()
        phone.subscribe("A", expression)
        self.wait()
        assert phone.asked
        return phone

    def updates(self) -> list[str]:
        """Return the senders of the messages that changed interest at the server with the channel, sorted."""
        return sorted(each.sender for each in self.sent if each.is_update)

    def move(self) -> None:
        """Move Alice's session; raise :class:`RuntimeError` if it does not come to the target."""
        self.sent.clear()
        self.nodes[SOURCE].move(ALICE, "default", TARGET)
        self.wait()
        if not any(isinstance(each, SessionImported) for each in self.nodes[TARGET].disk.records()):
            raise RuntimeError("the session has not moved")


def two_by_two(
    mode: InterestMode, of_others: str, *, is_decentralised: bool, target_has_it: bool, source_needs_it: bool
) -> ThreeServers:
    """Return a domain after a move of a session: others may have its interest at the target, and at the source."""
    domain = ThreeServers(mode, is_decentralised=is_decentralised)
    if target_has_it:
        domain.subscribe(BOB, TARGET, of_others)
    if source_needs_it:
        domain.subscribe(CAROL, SOURCE, of_others)
    domain.subscribe(ALICE, SOURCE, WANTED)
    if not domain.updates():
        raise RuntimeError("no message about interest was counted")
    domain.move()
    return domain
