"""Handovers of one user's sessions, over the entries of all logs (SPEC L-02, T-08; decision 0145)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

SessionT = TypeVar("SessionT")

Key = tuple[str, int]
"""Name of a session, and the epoch of its next owner."""


class Handover(msgspec.Struct, kw_only=True):
    """One session's way from server to server; each time is by the clock of the server whose step it is.

    ``source`` and ``target`` are None if no record says them. ``notifications`` and ``bytes`` are those of the whole
    session. ``taken_us`` is the first acknowledgement at the target, if a device was connected when the source fenced
    the session, of a match that was generated at ``matched_us`` of the event at ``event_offset``.
    """

    session: str
    owner_epoch: int
    source: str | None = None
    target: str | None = None
    cause: str | None = None
    awaited_us: int | None = None
    fenced_us: int | None = None
    imported_us: int | None = None
    done_us: int | None = None
    withdrawn_us: int | None = None
    notifications: int | None = None
    bytes: int | None = None
    taken_us: int | None = None
    matched_us: int | None = None
    event_offset: int | None = None


class SessionMoves(Generic[SessionT]):
    """Handovers, sessions on their way and bound subscriptions of one user: shared by the folds over several logs."""

    def __init__(self) -> None:
        self.bound: dict[str, str] = {}
        """Device of each subscription that is bound to one."""
        self._handovers: dict[Key, Handover] = {}
        self._fenced: dict[Key, SessionT] = {}

    def handover(self, key: Key) -> Handover:
        """Return the handover with a key, a new one if none is known."""
        if (found := self._handovers.get(key)) is None:
            found = self._handovers[key] = Handover(session=key[0], owner_epoch=key[1])
        return found

    def fence(self, key: Key, session: SessionT) -> None:
        """Keep a session that has left its server."""
        self._fenced[key] = session

    def has_left(self, key: Key) -> bool:
        """Return whether a session is on its way."""
        return key in self._fenced

    def arrive(self, key: Key) -> SessionT | None:
        """Return a session that comes to its next server, None if it has left none of these logs."""
        return self._fenced.pop(key, None)

    def rest(self) -> Iterator[tuple[Handover, SessionT]]:
        """Yield the sessions that have not arrived in any of these logs."""
        for key, session in self._fenced.items():
            yield self.handover(key), session

    def handovers(self) -> Iterator[Handover]:
        """Yield all handovers, in the order in which they are known."""
        yield from self._handovers.values()
