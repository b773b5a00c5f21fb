"""Messages about interest that a channel gets when a session moves from one server to another (SPEC L-03)."""

from __future__ import annotations

import pytest

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

NAMES = ("s1", "s2", "s3")
ALICE, BOB, CAROL = (f"sip:{name}@{DOMAIN}" for name in ("alice", "bob", "carol"))
WANTED = "x > 5"


class Domain:
    """Three servers; ``s1`` has the channel of every subject, and sessions move from ``s2`` to ``s3``."""

    def __init__(self, mode: InterestMode, *, is_decentralised: bool) -> None:
        self.world = World(1)
        self.nodes: dict[str, HandoverNode] = {}
        self.links = DomainLinks(self.world, self.nodes)
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
            node = self.nodes[name] = HandoverNode(self.world, name, channels, BrokerConfig(sweep_s=None))
            node.others, node.links = others, self.links
        for node in self.nodes.values():
            node.start()
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

    def move(self) -> None:
        """Move Alice's session from ``s2`` to ``s3``."""
        self.nodes["s2"].move(ALICE, "default", "s3")
        self.wait()
        assert [each.session for each in self.nodes["s3"].disk.records() if isinstance(each, SessionImported)]


def says_something_about_interest(payload: bytes) -> bool:
    """Return whether a message adds or removes interest."""
    if payload[:1] == INTEREST_PREFIX:
        return isinstance(decode_interest(payload[1:]), InterestChanged | InterestWhole)
    if payload[:1] in (CAUSAL_PREFIX, HANDOVER_PREFIX):
        return False
    return isinstance(protocol.decode_from_agent(payload), protocol.Subscribe | protocol.Unsubscribe)


@pytest.fixture
def to_channel(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The senders of all messages about interest to the server that has the channel."""
    sent: list[str] = []
    send = DomainLink.send

    def tapped(self: DomainLink, node: HandoverNode, payload: bytes) -> None:
        if self.other(node).name == NAMES[0] and says_something_about_interest(payload):
            sent.append(node.name)
        send(self, node, payload)

    monkeypatch.setattr(DomainLink, "send", tapped)
    return sent


@pytest.mark.parametrize("of_others", [WANTED, "x > 0"])
@pytest.mark.parametrize("mode", ["perfect", "none"])
@pytest.mark.parametrize("is_decentralised", [False, True])
@pytest.mark.parametrize(
    ("target_has_it", "source_needs_it", "senders"),
    [(True, True, []), (True, False, ["s2"]), (False, True, ["s3"]), (False, False, ["s2", "s3"])],
)
def test_l03_a_channel_is_told_only_what_changes(
    to_channel: list[str],
    is_decentralised: bool,
    mode: InterestMode,
    of_others: str,
    target_has_it: bool,
    source_needs_it: bool,
    senders: list[str],
) -> None:
    domain = Domain(mode, is_decentralised=is_decentralised)
    if target_has_it:
        domain.subscribe(BOB, "s3", of_others)
    if source_needs_it:
        domain.subscribe(CAROL, "s2", of_others)
    domain.subscribe(ALICE, "s2", WANTED)
    assert to_channel, "the messages are counted"
    to_channel.clear()
    domain.move()
    assert sorted(to_channel) == senders


@pytest.mark.parametrize("is_decentralised", [False, True])
def test_l03_interest_that_has_moved_ends_with_its_subscription(to_channel: list[str], is_decentralised: bool) -> None:
    domain = Domain("perfect", is_decentralised=is_decentralised)
    phone = domain.subscribe(ALICE, "s2", WANTED)
    domain.move()
    to_channel.clear()
    (identity,) = phone.asked
    phone.unsubscribe(identity)
    domain.wait()
    assert phone.asked[identity].state == "ended"
    assert to_channel == ["s3"]
