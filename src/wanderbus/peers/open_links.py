"""Open links to the other servers, by server."""

from __future__ import annotations

from collections.abc import Callable

from wanderbus.peers.messages import SendOnServerLink


class OpenLinks:
    """The open links to each server, the newest last; two servers may have one for each of them that opened it."""

    def __init__(self) -> None:
        self._links: dict[str, list[int]] = {}

    @property
    def servers(self) -> frozenset[str]:
        """Return the servers with a link."""
        return frozenset(self._links)

    def newest(self, server: str) -> int | None:
        """Return the newest link to ``server``, None if there is none."""
        return self._links[server][-1] if server in self._links else None

    def send(self, server: str, payload: bytes, emit: Callable[[SendOnServerLink], None]) -> None:
        """Let ``emit`` send ``payload`` on the newest link to ``server``, if there is one."""
        if (link := self.newest(server)) is not None:
            emit(SendOnServerLink(link, payload))

    def opened(self, link: int, server: str) -> None:
        """Add a link."""
        self._links.setdefault(server, []).append(link)

    def closed(self, link: int, server: str) -> bool:
        """Remove a link; return whether it was the last one to ``server``."""
        links = self._links.get(server, [])
        if link in links:
            links.remove(link)
        if links or server not in self._links:
            return False
        del self._links[server]
        return True
