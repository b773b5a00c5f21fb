"""Worklist of a composed machine: passes what its parts emit to other parts, until nothing is left.

::

    inputs ──give──▶ ┌────────────────┐ ──▶ step of the part ──▶ route of the part ──emit──▶ outputs of the whole
                     │ batches, first │                                 │
                     │ in, first out  │ ◀───────────give────────────────┘
                     └────────────────┘

A *part* is a machine inside another machine. The whole never calls the step of a part itself: its step gives each input
to a part, and :meth:`Composition.run` does the rest. A route gets all outputs of one step of its part. It changes the
state of the whole, emits outputs, and gives inputs to parts; it never steps a part, so no call goes in circles.

The order:

1. A batch is one step of its part. Batches are processed in the order in which they were given, and never joined: what
   is given for a connection leaves before a later request to close it.
2. A route gives everything of one kind as one batch, because a larger batch costs less for each input.
3. An output of the whole is emitted when it is routed, so before everything that the same step causes elsewhere.
4. Some outputs precede all others, such as records for the log: the rest is carried out while the disk syncs.
5. ``now`` is the same for all steps of a run, and no part stores it for another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from wanderbus.machine import Input, Output, TimerFired, scoped


class Part:
    """A machine inside another one."""

    __slots__ = ("has_scope", "route", "step")

    def __init__(
        self,
        step: Callable[[Sequence[Any], float], list[Any]],
        route: Callable[[list[Any], float], None],
        has_scope: bool = True,
    ) -> None:
        self.step = step
        """Its step. What one part emits, another may take: its outputs can be inputs of its neighbours."""
        self.route = route
        """Passes on all outputs of one step."""
        self.has_scope = has_scope
        """True if its timers are wrapped with its name."""


class Composition:
    """The parts of one machine by name, the batches that wait for them, and the outputs so far."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}
        self._waiting: deque[tuple[str, Sequence[Input | Output]]] = deque()
        self._preceding: dict[str, list[Input]] = {}
        self._first: list[Output] = []
        self._outputs: list[Output] = []
        self._is_running = False

    def add(self, name: str, part: Part) -> None:
        """Add a part, before the first batch for it."""
        self._parts[name] = part

    def give(self, part: str, inputs: Sequence[Input | Output]) -> None:
        """Add a batch for ``part``; an empty one is ignored."""
        if inputs:
            if self._preceding and part in self._preceding:
                inputs = [*self._preceding.pop(part), *inputs]
            self._waiting.append((part, inputs))

    def precede(self, part: str, given: Input) -> None:
        """Put an input before the next batch for ``part``; it is lost if none follows until :meth:`take_outputs`."""
        self._preceding.setdefault(part, []).append(given)

    def give_timer(self, key: Hashable) -> bool:
        """Add a timer for the part that set it; return False if ``key`` has no name of a part."""
        match key:
            case (str(name), inner) if name in self._parts and self._parts[name].has_scope:
                self.give(name, [TimerFired(inner)])
                return True
        return False

    def emit(self, *outputs: Output) -> None:
        """Add outputs of the whole."""
        self._outputs += outputs

    def emit_first(self, output: Output) -> None:
        """Add an output that precedes all others of this step, except earlier ones of this kind."""
        self._first.append(output)

    def run(self, now: float) -> None:
        """Step the parts at monotonic second ``now`` until no batch waits.

        If a part raises, its batch is lost; the other batches stay and are processed by the next run.
        """
        assert not self._is_running, "a route gives to parts, and does not run them"
        self._is_running = True
        try:
            while self._waiting:
                name, inputs = self._waiting.popleft()
                part = self._parts[name]
                outputs = part.step(inputs, now)
                part.route(scoped(name, outputs) if part.has_scope else outputs, now)
        finally:
            self._is_running = False

    def take_outputs(self) -> list[Output]:
        """Return the outputs since the last call, in order."""
        outputs = self._first + self._outputs
        self._first, self._outputs = [], []
        self._preceding.clear()
        return outputs
