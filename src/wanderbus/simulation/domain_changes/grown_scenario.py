"""Simulated domain that grows and shrinks: servers join it and leave it, one restart after the other (SPEC J-11).

The first file has some servers, the second one more, and the third one less. Each server takes a file over when it is
started again, in all orders, while events of both models are published and servers crash. A server leaves once it has
no subscriptions and everybody has its events.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Final

import msgspec

from wanderbus.broker.state.rows import session_key
from wanderbus.simulation.domain_changes.moved_scenario import (
    APART_S,
    CHANGE_S,
    SUBJECTS,
    Layout,
    MovedScenario,
)
from wanderbus.simulation.domains.decentralised_checkers import causal_truth
from wanderbus.simulation.domains.domain_device import DomainDevice

JOINING: Final = "s0"
"""Name of the server that joins: by its name it would be the first one."""
_EMPTY_S: Final = 8.0
"""Time that a server has to become empty before it leaves."""


class GrownScenario(MovedScenario):
    """A world with a domain that a server joins, and that one leaves; set up by the seed."""

    counted: ClassVar = {
        "servers": "servers",
        "joins": "servers that joined",
        "leaves": "servers that left",
        "events": "events",
        "notifications": "notifications",
        "subscriptions": "subscriptions",
        "gaps": "gaps",
        "crashes": "stops and crashes of servers",
    }

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        super().__init__(seed, keep_trace=keep_trace)
        draw, first = self.world.random, self.layouts[0]
        self.joins = self.leaves = 0
        second = msgspec.structs.replace(first, number=2, joined=(JOINING,), tables=1)
        may_leave = [each for each in (JOINING, *self.names) if each not in first.leaders]
        if first.decentralised == SUBJECTS and len(first.leaders) > 1:
            may_leave += first.leaders  # it only spreads interest, and that is a change of the tables
        self._leaving = draw.choice(may_leave)
        third = msgspec.structs.replace(second, number=3, left=(self._leaving,))
        if self._leaving in first.leaders:
            stay = tuple(each for each in first.leaders if each != self._leaving)
            third = msgspec.structs.replace(third, leaders=stay, tables=3)
        self.layouts = [first, second, third]
        self.active_s = CHANGE_S * 3
        self._add_server(JOINING, second)
        self._starts[JOINING] = 0

    def counts(self) -> dict[str, float]:
        return super().counts() | {"joins": self.joins, "leaves": self.leaves}

    def _begin(self) -> None:
        for name in self.names:
            self.nodes[name].start()

    def _plan(self) -> None:
        super()._plan()
        self.world.at_random(60, CHANGE_S + 0.5, CHANGE_S + APART_S, self._publish)
        self.world.at(CHANGE_S * 2 - _EMPTY_S, self._empty)

    def _plan_change(self, layout: Layout, at: float) -> None:
        """Let each server start with another file, one after the other."""
        world, draw = self.world, self.world.random
        if layout.left:
            world.at(at, self._leave)
            return
        for name in (*self.names, JOINING):
            is_first = name == JOINING and draw.random() < 0.7
            self._plan_restart(name, layout, at + (0.5 if is_first else draw.uniform(0.5, APART_S)))

    def _plan_restart(self, name: str, layout: Layout, at: float) -> None:
        self.world.at(at - self.world.random.uniform(0.05, 0.4), partial(self._stop, name))
        self.world.at(at, partial(self._start, name, layout))

    def _start(self, name: str, layout: Layout) -> None:
        self.joins += name == JOINING and not self._starts[name] > 1
        super()._start(name, layout)

    def _device(self) -> DomainDevice:
        """Return a device of a server that serves: the joining one does so before it is started, too."""
        is_leaving = self.world.now > CHANGE_S * 2 - _EMPTY_S
        return self.world.random.choice([each for each in self.devices if not (is_leaving and self._is_leaving(each))])

    def _subscribe(self, device: DomainDevice) -> None:
        if not (self.world.now > CHANGE_S * 2 - _EMPTY_S and self._is_leaving(device)):
            super()._subscribe(device)

    def _is_leaving(self, device: DomainDevice) -> bool:
        return device.node.name == self._leaving

    def _empty(self) -> None:
        """Let the devices of the leaving server end their subscriptions, as a drain would move them."""
        for device in filter(self._is_leaving, self.devices):
            device.unsubscribe_all()

    def _leave(self) -> None:
        """Let the server leave if nothing of it is left, as the command checks; otherwise it stays."""
        if any(self._left_over()):
            return
        self.leaves += 1
        self._stop(self._leaving)
        for name in (*self.names, JOINING):
            if name != self._leaving:
                self._plan_restart(name, self.layouts[2], self.world.now + self.world.random.uniform(0.5, APART_S))

    def _left_over(self) -> Iterator[bool]:
        """Yield whether something is left of the leaving server."""
        node = self.nodes[self._leaving]
        yield not node.alive or bool(node.broker.state.decentralised.causal.outgoing.retained)
        yield any(status.waiting_publishes for status in node.sessions.statuses())
        for device in filter(self._is_leaving, self.devices):
            session = node.broker.state.sessions.get(session_key(device.user, "default"))
            yield not device.is_settled or bool(session and (session.subscriptions or session.waiting))

    # Checks ---------------------------------------------------------------------------------------------------------

    def _check_rest(self) -> None:
        """Check the causal order, and then the servers and devices that are still there."""
        names = (*self.names, JOINING)
        causal = causal_truth(self.nodes[name] for name in names)
        # Others may still send to a server that has left, which nobody there wants.
        left = {names.index(self._leaving): causal.published_origins()} if self.leaves else {}
        self.problems += [*causal.problems, *(f"{dot} was lost for a server" for dot in causal.lost(left))]
        if self.leaves:
            self.problems += self.nodes.pop(self._leaving).problems
            self.devices = [each for each in self.devices if not self._is_leaving(each)]
        super()._check_rest()
        if self._truth is not None and (gaps := self._truth.counts()["gaps"]):
            self.problems.append(f"servers report {gaps} losses, and nothing is lost")
