"""Interest of the other servers, as the leaders of the channels have spread it: a table for each leader (SPEC K-05)."""

from __future__ import annotations

from collections.abc import Iterable

from wanderbus.channels.interest.incoming_streams import IncomingStreams, Taken
from wanderbus.channels.interest.messages import FromSender, NumberedFilter, Stream

Route = tuple[str, Stream]
"""A leader, and a stream that it spreads."""


class KnownRoutes:
    """Tables of the streams of all leaders; they outlive links and leaders (SPEC K-08)."""

    def __init__(self) -> None:
        self._of_leader: dict[str, IncomingStreams] = {}

    def routes(self) -> list[Route]:
        """Return what is known."""
        return [(leader, stream) for leader, streams in self._of_leader.items() for stream in streams.streams()]

    def knows(self, route: Route) -> bool:
        """Return whether the interest is known completely up to some version."""
        return self.position(route) is not None

    def filters(self, route: Route) -> list[NumberedFilter]:
        """Return the interest; empty if it is unknown."""
        leader, stream = route
        return self._of_leader[leader].filters(stream) if leader in self._of_leader else []

    def position(self, route: Route) -> tuple[int, int] | None:
        """Return the incarnation and the version of the table; None if the interest is unknown."""
        leader, stream = route
        return self._of_leader[leader].position(stream) if leader in self._of_leader else None

    def receive(self, leader: str, message: FromSender, now: float) -> Taken:
        """Take a message of ``leader``; a repeated one changes nothing.

        Raises :class:`RemoteProtocolError` for an invalid filter.
        """
        return self._of_leader.setdefault(leader, IncomingStreams()).receive(message, now)

    def restart(self) -> None:
        """Begin a new life of this server: no leader has confirmed a table in it yet."""
        for streams in self._of_leader.values():
            streams.restart()

    def is_current(self, route: Route) -> bool:
        """Return whether the leader has confirmed the table since the start of this server."""
        leader, stream = route
        return leader in self._of_leader and self._of_leader[leader].is_current(stream)

    def forget(self, route: Route) -> None:
        """Remove a table."""
        leader, stream = route
        if leader in self._of_leader:
            self._of_leader[leader].forget(stream)

    def clear(self) -> None:
        """Forget everything."""
        self._of_leader.clear()

    def load(self, route: Route, incarnation: int, version: int, filters: Iterable[NumberedFilter]) -> None:
        """Take over a table that was saved."""
        leader, stream = route
        self._of_leader.setdefault(leader, IncomingStreams()).load(stream, incarnation, version, filters)
