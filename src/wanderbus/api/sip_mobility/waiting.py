"""Futures of sessions: established, updated or removed."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Any

from wanderbus.errors import WanderbusError
from wanderbus.mobility.session.session import SIPCommunicationStatus, SIPSession


class SessionFutures:
    """The futures that sessions settle, by session id."""

    def __init__(self) -> None:
        self._established: dict[str, asyncio.Future[SIPSession]] = {}
        self._updated: dict[str, list[asyncio.Future[SIPSession]]] = {}
        self._removed: dict[str, list[asyncio.Future[None]]] = {}

    def for_established(self, id: str) -> asyncio.Future[SIPSession]:
        """Return a future for the new session ``id``: established, or the error."""
        established = self._established[id] = _future()
        return established

    def for_updated(self, id: str) -> asyncio.Future[SIPSession]:
        """Return a future that completes when no update of ours is under way in session ``id`` any more."""
        updated: asyncio.Future[SIPSession] = _future()
        self._updated.setdefault(id, []).append(updated)
        return updated

    def for_removed(self, id: str) -> asyncio.Future[None]:
        """Return a future that completes when session ``id`` has ended, for any reason."""
        removed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._removed.setdefault(id, []).append(removed)
        return removed

    def agreed(self, session: SIPSession) -> None:
        """Complete the futures of ``session`` after an agreement; an update of ours may still follow the peer's."""
        if session.communication is not SIPCommunicationStatus.CONNECTED:
            return
        ended = [*self._updated.pop(session.id, ())]
        if (established := self._established.pop(session.id, None)) is not None:
            ended.append(established)
        for each in ended:
            if not each.done():
                each.set_result(session)

    def removed(self, id: str, error: WanderbusError) -> None:
        """Complete the futures of the ended session ``id``: ``error`` is for those that expected another result."""
        failed = [*self._updated.pop(id, ())]
        if (established := self._established.pop(id, None)) is not None:
            failed.append(established)
        for each in failed:
            if not each.done():
                each.set_exception(error)
        for gone in self._removed.pop(id, ()):
            if not gone.done():
                gone.set_result(None)

    def stop(self, error: WanderbusError) -> None:
        """Fail the futures of every session."""
        for id in {*self._established, *self._updated, *self._removed}:
            self.removed(id, error)


class Settled:
    """Awaitable that waits until all ``futures`` have completed, with or without errors; awaiting it is optional."""

    def __init__(self, futures: Sequence[asyncio.Future[SIPSession]]) -> None:
        self._everything = asyncio.gather(*futures, return_exceptions=True) if futures else None

    def __await__(self) -> Generator[Any, None, None]:
        if self._everything is not None:
            yield from asyncio.shield(self._everything).__await__()


def _future() -> asyncio.Future[SIPSession]:
    return asyncio.get_running_loop().create_future()
