"""Check of SPEC E-07: ECIAgent Status and User Status equal the Remote Media Status after every step of a world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from wanderbus.access.access_server import AccessServer
from wanderbus.client.machine.core import AgentMachine
from wanderbus.mobility.session.session import RemoteMediaStatus

Watched = tuple[str, AgentMachine, str]
"""An agent's name, its machine, and the ECIAgent Status that it reported last."""


class StatusWatch:
    """Notes in :attr:`problems` the first difference of each agent, and of each user at the server.

    ``agents`` and ``server`` return the machines that run at the moment.
    """

    def __init__(self, agents: Callable[[], Iterable[Watched]], server: Callable[[], AccessServer | None]) -> None:
        self._agents = agents
        self._server = server
        self._problems: dict[str, str] = {}

    @property
    def problems(self) -> list[str]:
        """Return one line for each agent and user with a difference."""
        return list(self._problems.values())

    def look(self, now: float) -> None:
        """Compare all statuses at virtual second ``now``."""
        for whose, problem in self._differences():
            self._problems.setdefault(whose, f"{whose}: {problem} at {now:.3f} s")

    def _differences(self) -> Iterator[tuple[str, str]]:
        for name, agent, reported in self._agents():
            media = agent.media_status.value
            status = "CONNECTED" if agent.connected else "DISCONNECTED"
            if not media == status == reported:
                yield name, f"the agent is {status}, reported {reported}, and its media are {media}"
        server = self._server()
        if server is not None:
            for user, statuses in server.media_statuses().items():
                media = "CONNECTED" if RemoteMediaStatus.CONNECTED in statuses else "DISCONNECTED"
                if server.broker.status(user) != media:
                    yield f"{user} at the broker", f"the user is {server.broker.status(user)} and the media are {media}"
