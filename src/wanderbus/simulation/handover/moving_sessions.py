"""Simulated server whose sessions move, within a domain of its own or one that shares events with others (SPEC L)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wanderbus.broker.sessions.handover_messages import MoveSession
from wanderbus.peers.handover.leaving_sessions import PIECE_BYTES
from wanderbus.peers.parts import HANDOVERS
from wanderbus.peers.session_owners import owns
from wanderbus.simulation.domains.domain_node import DomainNode


class MovesSessions(DomainNode):
    """A server which has links to all others, and moves sessions."""

    others: Sequence[str] = ()
    """The names of the other servers of the domain, which the scenario sets."""

    requested = 0
    """Moves that were requested."""

    piece_bytes = PIECE_BYTES
    """Size of the pieces in which queues move, which the scenario sets."""

    def _request_links(self) -> None:
        super()._request_links()
        for other in self.others:
            self.links.watch(self.name, other)

    def move(self, user: str, session: str, target: str) -> None:
        """Move a session to another server, or to another domain."""
        self.requested += 1
        self._note(f"moves {user}/{session} to {target}")
        self._feed_part(HANDOVERS, [MoveSession(user, session, target)])

    def owns(self, user: str) -> bool:
        """Return whether calls of a user come to this server."""
        return self.alive and owns(self.broker.state, user)

    def check_nothing_waits(self) -> Iterator[str]:
        """Yield what is still on its way though all is quiet."""
        yield from super().check_nothing_waits()
        state = self.broker.state
        incomplete = [each.key for each in state.sessions.values() if each.source]
        left = [*state.exports, *state.rests]
        for what, waiting in (("exports", left), ("awaits", list(state.awaited)), ("awaits the rest of", incomplete)):
            if waiting:
                yield f"{self.name} still {what} {waiting}"
