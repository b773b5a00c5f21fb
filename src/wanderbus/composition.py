"""Worklist of a composed machine: passes what its parts emit to other parts, until nothing is left.

::

    inputs ──give──▶ ┌────────────────┐ ──▶ step of the part ──▶ route of the part ──emit──▶ outputs of the whole
                     │ batches, first │                                 │
                     │ in, first out  │ ◀───────────give────────────────┘
                     └────────────────┘

A *part* is a machine inside another machine. The type checker knows what each part takes and emits, and refuses to give
it anything else. The whole never calls the step of a part itself: its step gives each input to a part, and
:meth:`Composition.run` does the rest. A route gets all outputs of one step of its part. It changes the state of the
whole, emits outputs, and gives inputs to parts; it never steps a part, so no call goes in circles.

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
from typing import Any, Generic, TypeVar

from wanderbus.machine import TimerFired, scoped

In = TypeVar("In", contravariant=True)
"""Union of what a part takes; outputs of one part can be inputs of another."""
Out = TypeVar("Out")
"""Union of what a part emits."""
Whole = TypeVar("Whole")
"""Union of what the whole emits."""


class Part(Generic[In, Out]):
    """Handle of a machine inside another one: its name, and the types of its inputs and outputs.

    :param has_scope: whether its timers are wrapped with its name
    """

    __slots__ = ("has_scope", "name")

    def __init__(self, name: str, *, has_scope: bool = True) -> None:
        self.name = name
        self.has_scope = has_scope


class Composition(Generic[Whole]):
    """The parts of one machine, the batches that wait for them, and the outputs so far."""

    def __init__(self) -> None:
        self._parts: dict[Part[Any, Any], tuple[Callable[[Any, float], Any], Callable[[Any, float], None]]] = {}
        """Step and route of each part."""
        self._by_name: dict[object, Part[Any, Any]] = {}
        """Parts whose timers have their names."""
        self._waiting: deque[tuple[Part[Any, Any], Sequence[Any]]] = deque()
        self._preceding: dict[Part[Any, Any], list[Any]] = {}
        self._first: list[Whole] = []
        self._outputs: list[Whole] = []
        self._is_running = False

    def add(
        self,
        part: Part[In, Out],
        step: Callable[[Sequence[In], float], list[Out]],
        route: Callable[[list[Out], float], None],
    ) -> None:
        """Add a part before the first batch for it; ``route`` passes on all outputs of one ``step``."""
        self._parts[part] = step, route
        if part.has_scope:
            self._by_name[part.name] = part

    def give(self, part: Part[In, Any], inputs: Sequence[In]) -> None:
        """Add a batch for ``part``; an empty one is ignored."""
        if inputs:
            if self._preceding and part in self._preceding:
                inputs = [*self._preceding.pop(part), *inputs]
            self._waiting.append((part, inputs))

    def precede(self, part: Part[In, Any], given: In) -> None:
        """Put an input before the next batch for ``part``; it is lost if none follows until :meth:`take_outputs`."""
        self._preceding.setdefault(part, []).append(given)

    def give_timer(self, key: Hashable) -> bool:
        """Add a timer for the part that set it; return False if ``key`` has no name of a part."""
        match key:
            case (name, inner) if part := self._by_name.get(name):
                self.give(part, [TimerFired(inner)])
                return True
        return False

    def emit(self, *outputs: Whole) -> None:
        """Add outputs of the whole."""
        self._outputs += outputs

    def emit_first(self, output: Whole) -> None:
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
                part, inputs = self._waiting.popleft()
                step, route = self._parts[part]
                outputs = step(inputs, now)
                route(scoped(part.name, outputs) if part.has_scope else outputs, now)
        finally:
            self._is_running = False

    def take_outputs(self) -> list[Whole]:
        """Return the outputs since the last call, in order."""
        outputs = self._first + self._outputs
        self._first, self._outputs = [], []
        self._preceding.clear()
        return outputs
