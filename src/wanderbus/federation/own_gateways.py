"""Gateways of the own domain, as one of them sees them: whose turn it is, and who may have acted meanwhile."""

from __future__ import annotations

from collections.abc import Sequence


class OwnGateways:
    """The gateways of the domain of gateway ``name``, in the order in which they take turns."""

    def __init__(self, gateways: Sequence[str], name: str) -> None:
        self._before = frozenset(gateways[: gateways.index(name)])
        self.behind = tuple(gateways[gateways.index(name) + 1 :])
        """Those whose turn comes later, in their order: they open links for this one that it cannot open."""
        self._others = frozenset(gateways) - {name}
        self._up: set[str] = set()
        self._has_been_alone = bool(self._others)

    @property
    def is_in_turn(self) -> bool:
        """Return whether this gateway should use all links of its domain, for all that it knows."""
        return not self._before & self._up

    @property
    def may_have_acted(self) -> bool:
        """Return whether another gateway may have had links since :meth:`begin_anew`, because it was out of sight."""
        return self._has_been_alone

    def begin_anew(self) -> None:
        """Note that all that this gateway knows is of now."""
        self._has_been_alone = not self._others <= self._up

    def up(self, server: str) -> None:
        """Note that a server can be reached."""
        if server in self._others:
            self._up.add(server)

    def down(self, server: str) -> bool:
        """Note that a server cannot be reached; return whether its turn came before that of this gateway."""
        self._has_been_alone |= server in self._others
        self._up.discard(server)
        return server in self._before
