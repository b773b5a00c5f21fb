"""Who waits for which session: to be established, updated or gone."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Any

from wanderbus.errors import WanderbusError
from wanderbus.mobility.session.session import SIPSession
from wanderbus.mobility.session.status import SIPCommunicationStatus


class Waiting:
    """The futures that sessions settle, by session id."""

    def __init__(self) -> None:
        self._established: dict[str, asyncio.Future[SIPSession]] = {}
        self._updated: dict[str, list[asyncio.Future[SIPSession]]] = {}
        self._removed: dict[str, list[asyncio.Future[None]]] = {}

    def for_established(self, id: str) -> asyncio.Future[SIPSession]:
        """Return what ends when the new session ``id`` is established, or with why it is not."""
        established = self._established[id] = _future()
        return established

    def for_updated(self, id: str) -> asyncio.Future[SIPSession]:
        """Return what ends when no update of ours is under way in session ``id`` any more."""
        updated: asyncio.Future[SIPSession] = _future()
        self._updated.setdefault(id, []).append(updated)
        return updated

    def for_removed(self, id: str) -> asyncio.Future[None]:
        """Return what ends when session ``id`` is gone, however that comes."""
        removed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._removed.setdefault(id, []).append(removed)
        return removed

    def agreed(self, session: SIPSession) -> None:
        """Both sides of ``session`` agreed; an update of ours may still be under way after theirs."""
        if session.communication is not SIPCommunicationStatus.CONNECTED:
            return
        ended = [*self._updated.pop(session.id, ())]
        if (established := self._established.pop(session.id, None)) is not None:
            ended.append(established)
        for each in ended:
            if not each.done():
                each.set_result(session)

    def removed(self, id: str, error: WanderbusError) -> None:
        """Session ``id`` is gone: ``error`` is for those who wanted something else."""
        disappointed = [*self._updated.pop(id, ())]
        if (established := self._established.pop(id, None)) is not None:
            disappointed.append(established)
        for each in disappointed:
            if not each.done():
                each.set_exception(error)
        for gone in self._removed.pop(id, ()):
            if not gone.done():
                gone.set_result(None)

    def stop(self, error: WanderbusError) -> None:
        """Every session is gone."""
        for id in {*self._established, *self._updated, *self._removed}:
            self.removed(id, error)


class Settled:
    """Await it to wait until ``futures`` have all come to an end, good or bad; it may be left alone too."""

    def __init__(self, futures: Sequence[asyncio.Future[SIPSession]]) -> None:
        self._everything = asyncio.gather(*futures, return_exceptions=True) if futures else None

    def __await__(self) -> Generator[Any, None, None]:
        if self._everything is not None:
            yield from asyncio.shield(self._everything).__await__()


def _future() -> asyncio.Future[SIPSession]:
    return asyncio.get_running_loop().create_future()
