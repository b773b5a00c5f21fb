"""Four cases of a handover, with real servers and in the model: who needs interest, and what it costs (SPEC L-03)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from wanderbus.channels.directory import first_table
from wanderbus.channels.groups import GROUPS, ChannelGroups
from wanderbus.evaluation.handover.fabric import Fabric, plane_delay_s
from wanderbus.evaluation.handover.rendezvous import COVERING, RendezvousNetwork
from wanderbus.evaluation.handover.sessions import MobileSession
from wanderbus.simulation.handover.three_servers import ALICE, WANTED, two_by_two
from wanderbus.simulation.world import World
from wanderbus.subscription import Subscription

_OF_OTHERS = "x > 0"
_SUBJECT = "A"
_KEY = bytes(32)
_CHANNEL, _SOURCE, _TARGET = 0, 1, 2


class Messages(msgspec.Struct, frozen=True):
    """Messages of one handover: to the channel, and the others between servers."""

    updates: int
    control: int


class CountedCase(msgspec.Struct, frozen=True):
    """One case: if others have interest that covers the moved one at the target, and at the source."""

    target_has_it: bool
    source_needs_it: bool
    servers: Messages
    """Messages of real brokers and links, in the simulated domain."""
    model: Messages

    @property
    def name(self) -> str:
        """Return a name for the case."""
        target = "covered" if self.target_has_it else "uncovered"
        return f"{target}_{'needed' if self.source_needs_it else 'unneeded'}"


def counted_cases() -> Iterator[CountedCase]:
    """Yield the cases in which 0, 1, 1 and 2 messages to the channel are expected."""
    for target_has_it in (True, False):
        for source_needs_it in (True, False):
            yield CountedCase(
                target_has_it,
                source_needs_it,
                _of_servers(target_has_it, source_needs_it),
                _of_model(target_has_it, source_needs_it),
            )


def _of_servers(target_has_it: bool, source_needs_it: bool) -> Messages:
    domain = two_by_two(
        COVERING.mode,
        _OF_OTHERS,
        is_decentralised=False,
        target_has_it=target_has_it,
        source_needs_it=source_needs_it,
    )
    return Messages(len(domain.updates()), sum(each.is_about_session for each in domain.sent))


def _of_model(target_has_it: bool, source_needs_it: bool) -> Messages:
    world = World(1)
    fabric = Fabric(world, plane_delay_s([(0.0, 0.0)] * 3))
    leaders = first_table(GROUPS, [f"s{_CHANNEL}"], _KEY)
    network = RendezvousNetwork(fabric, 3, ChannelGroups(_KEY), leaders, covers=True)
    if target_has_it:
        network.want(_TARGET, {"bob": (_SUBJECT, _OF_OTHERS)})
    if source_needs_it:
        network.want(_SOURCE, {"carol": (_SUBJECT, _OF_OTHERS)})
    session = MobileSession(0, [Subscription("alice-1-1", ALICE, "default", _SUBJECT, WANTED)], _SOURCE)
    network.serve(session)
    world.run(math.inf)
    fabric.forget_counts()
    network.walk(session, _TARGET)
    world.run(math.inf)
    return Messages(fabric.messages["update"], fabric.messages["handover"])
