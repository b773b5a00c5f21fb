"""Simulated ordered domain whose channel groups move from leader to leader while users publish (SPEC J-08).

Everything of the ordered domain happens meanwhile: servers crash at every step with torn and lost writes, links break
and are divided, disks fill, publishers filter. In some worlds leaders are gone for a while, or cut off with their
devices, and are replaced by force. In others, subscriptions and readers of channels begin in the past, also in that of
former leaders.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence
from functools import partial
from typing import ClassVar, Final

import msgspec

from wanderbus import protocol
from wanderbus.channels.directory import Directory
from wanderbus.channels.own_channels import OwnChannels
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.domains.domain_node import DOMAIN, DomainNode
from wanderbus.simulation.domains.group_truth import ForcedTruth, GroupTruth, MovedTruth, accepted_by
from wanderbus.simulation.domains.ordered_scenario import ACTIVE_S, OrderedScenario
from wanderbus.subscription import EVERY_SUBJECT

OPERATOR: Final = f"sip:operator@{DOMAIN}"
_WITH_PAST: Final = 10
_PAST_WORLDS: Final = (2, 3, 7)
"""Remainders by ``_WITH_PAST`` of the seeds of worlds in which subscriptions and readers begin in the past."""
_WITH_FORCE: Final = 4
"""One of so many worlds has leaders that are replaced by force, if its publishers do not filter."""
_FORCE_S: Final = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Times after the loss of a leader at which it is to be replaced: its links fail first."""
_LAYOUT: Final = b"the only file"


class GroupNode(DomainNode):
    """A server that is asked to move channel groups."""

    def move_group(self, group: int, target: str, *, force: bool = False) -> None:
        """Move a group to another leader, whichever leads it now."""
        if self.alive:
            self._note(f"moves group {group} to {target}{' by force' * force}")
            self._visit(OPERATOR, protocol.MoveGroup(1, group, target, force))


class GroupScenario(OrderedScenario):
    """A world with an ordered domain whose groups move, set up by the seed."""

    counted: ClassVar = OrderedScenario.counted | {
        "requests": "requested moves of channel groups",
        "moves": "moves of channel groups",
        "stays": "moves that were given up",
        "replaced": "leaders that were replaced by force",
        "seams": "seams between leaders that subscriptions have read",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        self.requests = 0
        self._group_of = next(iter(self.nodes.values())).channels.directory.groups.group_of
        self.moved: GroupTruth | None = None
        self._is_forcing = seed % _WITH_FORCE == 0 and not self._is_filtering and len(self.nodes) > 2

    def _begins_in_past(self, seed: int) -> bool:
        return seed % _WITH_PAST in _PAST_WORLDS

    def _has_readers(self, seed: int) -> bool:
        return self._begins_in_past(seed)

    def _leaders_of_past(self, node: DomainNode, subject: str) -> Collection[str]:
        if subject == EVERY_SUBJECT:
            return ()
        earlier = node.broker.state.groups.row(self._group_of(subject)).earlier
        return {each.server for each in earlier} | {node.channels.leader(subject)}

    def _accepted(self, subjects: Container[str]) -> Iterator[tuple[int, int]]:
        for node in self.nodes.values():
            for each in accepted_by(node):
                if each.record.event.subject in subjects:
                    yield each.epoch, each.offset

    def _channels(self, directory: Directory, name: str, names: Sequence[str]) -> OwnChannels:
        others = [each for each in names if each != name]
        return OwnChannels(directory, name, self._merging_of, None, others, _LAYOUT)

    def _make_node(self, name: str, channels: OwnChannels, config: BrokerConfig) -> DomainNode:
        roles = msgspec.structs.replace(config, roles={OPERATOR: "administrator"})
        node = GroupNode(self.world, name, channels, roles)
        node.is_fixed = False
        return node

    def counts(self) -> dict[str, float]:
        moves, stays = (0, 0) if self.moved is None else (self.moved.moves, self.moved.stays)
        replaced = set()
        if isinstance(self._truth, ForcedTruth):
            replaced = {each[1:3] for several in self._truth.replacements.values() for each in several}
        own = {"requests": self.requests, "moves": moves, "stays": stays, "replaced": len(replaced)}
        return super().counts() | own

    def _plan(self) -> None:
        super()._plan()
        draw = self.world.random
        for _ in range(draw.choice([3, 10, 30]) if len(self.nodes) > 1 else 0):
            self.world.at(draw.uniform(2.0, ACTIVE_S), self._move_group)
        for _ in range(draw.choice([0, 40, 150])):
            self.world.at(draw.uniform(0.5, ACTIVE_S), self._publish)
        for _ in range(draw.choice([2, 4, 8]) if self._is_forcing else 0):
            self.world.at(draw.uniform(1.0, ACTIVE_S), self._lose_leader)

    def _move_group(self) -> None:
        """Move the group of a subject, while events of it are published; often a server crashes during that."""
        draw, node = self.world.random, self._node()
        assert isinstance(node, GroupNode)
        subject = self._subject()
        group = self._group_of(subject)
        leader = node.channels.directory.table.leaders[group].server
        target = draw.choice([each for each in self.nodes if each != leader])
        self.requests += 1
        node.move_group(group, target)
        for _ in range(draw.choice([0, 3, 10])):
            self.world.after(draw.uniform(0.0, 1.5), lambda: self._device().publish(self._event(subject)))
        if draw.random() < 0.3:
            crashing = self.nodes[draw.choice([leader, target, self._node().name])]
            self.world.after(draw.uniform(0.0, 0.5), partial(self._crash_soon, crashing))

    def _lose_leader(self) -> None:
        """Let a leader be gone, or cut off with its devices, and replace it while events of its group are published."""
        draw, subject = self.world.random, self._subject()
        group = self._group_of(subject)
        leader = self._node().channels.directory.table.leaders[group].server
        target = draw.choice([each for each in self.nodes if each != leader])
        away_s = draw.choice([3.0, 6.0, 15.0])
        if draw.random() < 0.3:
            self.partitions += 1
            self.links.partition({leader: 1})
            self.world.after(away_s, lambda: self.links.partition({}))
        else:
            self._crash_now(self.nodes[leader], away_s)
        for seconds in _FORCE_S:
            self.world.after(seconds, partial(self._force, group, target))
        for _ in range(draw.choice([3, 10, 30])):
            publish = partial(self._device().publish, self._event(subject), outbox=draw.random() < 0.5)
            self.world.after(draw.uniform(0.0, 1.5 * away_s), publish)
        if draw.random() < 0.3:
            self.world.after(draw.choice(_FORCE_S) + 0.1, partial(self._crash_soon, self.nodes[target]))

    def _force(self, group: int, target: str) -> None:
        """Replace the leader of a group; it is refused while anybody has a link with that."""
        self.requests += 1
        node = self.nodes[target]
        assert isinstance(node, GroupNode)
        node.move_group(group, target, force=True)

    def _crash_soon(self, node: DomainNode) -> None:
        """Crash a server when it next writes: each step of a move is a record at some server."""
        node.disk.on_append = lambda: self.world.after(0.0, lambda: self._crash_now(node))

    def _make_truth(self) -> MovedTruth:
        truth = ForcedTruth if self._is_forcing else MovedTruth
        return truth(self.nodes, self.devices)

    def _check_promises(self) -> None:
        super()._check_promises()
        assert isinstance(self._truth, MovedTruth)
        self._truth.problems.clear()
        self._truth.check_acceptance(self._group_of)
        self.moved = GroupTruth(self.nodes, self._truth)
        self.problems += [*self._truth.problems, *self.moved.problems]
