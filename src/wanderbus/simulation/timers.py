"""Timers of a simulated host."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from wanderbus.simulation.world import World


class Timers:
    """Timers by key; ``fire`` is called with the key of each one that is due."""

    def __init__(self, world: World, fire: Callable[[Hashable], None]) -> None:
        self._world = world
        self._fire = fire
        self._active: dict[Hashable, object] = {}

    @property
    def keys(self) -> list[Hashable]:
        """Return the keys of the active timers."""
        return list(self._active)

    def set(self, key: Hashable, at: float) -> None:
        """Set the timer ``key`` to the virtual second ``at``, in place of an earlier one."""
        token = self._active[key] = object()

        def fire() -> None:
            if self._active.get(key) is token:
                del self._active[key]
                self._fire(key)

        self._world.at(at, fire)

    def cancel(self, key: Hashable) -> None:
        """Cancel the timer ``key``, if it is active."""
        self._active.pop(key, None)

    def clear(self) -> None:
        """Cancel all timers."""
        self._active.clear()
