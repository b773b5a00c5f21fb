"""Host of one machine that is killed and started again: each life is a node of its own."""

from __future__ import annotations

from typing import Generic, TypeVar

from wanderbus.machine import Input
from wanderbus.simulation.node import Node

M = TypeVar("M")


class SimulatedHost(Generic[M]):
    """A process across its lives, each of which has a machine of ``kind``; a subclass makes the nodes."""

    node: Node
    """The node of this life; while the process is down, that of the last one."""

    def __init__(self, kind: type[M]) -> None:
        self._kind = kind

    @property
    def running(self) -> bool:
        """Return whether the process runs."""
        node = getattr(self, "node", None)
        return node is not None and node.alive

    @property
    def machine(self) -> M:
        """Return the machine of this life, or of the last one."""
        assert isinstance(self.node.machine, self._kind)
        return self.node.machine

    def feed(self, *inputs: Input) -> None:
        """Feed inputs to the machine, if the process runs."""
        if self.running:
            self.node.feed(inputs)

    def kill(self) -> None:
        """Die as by kill -9."""
        self.node.kill()
