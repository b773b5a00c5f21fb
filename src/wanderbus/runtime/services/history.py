"""The service ``history``: it answers for the records that the log of its server has no more (SPEC T-05)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from wanderbus.broker.messages import HistoryRead, HistoryWanted, OffsetWanted
from wanderbus.errors import StorageError
from wanderbus.runtime.log.history_source import NoSource, SourceAway
from wanderbus.runtime.log.log_reader import oldest_record
from wanderbus.runtime.services.backoff import Backoff
from wanderbus.runtime.services.caller import ServiceCaller
from wanderbus.runtime.services.frames import ServiceAway
from wanderbus.runtime.services.service import Handlers

NAME: Final = "history"

OFFSET: Final = ("history.offset", 1)
READ: Final = ("history.read", 1)

LOOKUP_S_MAX: Final = 60.0
"""Timeout for the offset of a point in the past, which may need a search."""

PIECE_S_MAX: Final = 5.0
"""Timeout for a piece: subscriptions that read the log wait meanwhile."""


class OffsetAsked(msgspec.Struct, frozen=True):
    """Request for the first offset of a subscription in the log of ``server`` in ``incarnation``.

    :param log_begins: first record that the log still has; a service that lacks one before it has to refuse
    """

    wanted: OffsetWanted
    server: str
    incarnation: int
    log_begins: int


class Archive(Protocol):
    """The records from which the service answers.

    A method raises :class:`StorageError` if they cannot answer a request, and :class:`ServiceAway` if they may later.
    """

    def offset(self, asked: OffsetAsked) -> int:
        """Return the first offset to read."""
        ...

    def read(self, wanted: HistoryWanted) -> HistoryRead:
        """Return a piece, which begins with the first record that is wanted and may end early."""
        ...


def handlers_of(archive: Archive) -> Handlers:
    """Return the functions of a service that answers from ``archive``."""
    asked = msgspec.msgpack.Decoder(OffsetAsked)
    wanted = msgspec.msgpack.Decoder(HistoryWanted)
    return {
        OFFSET: lambda body: archive.offset(asked.decode(body)),
        READ: lambda body: archive.read(wanted.decode(body)),
    }


class RemoteHistory:
    """The service as a source of history of the server in ``data_dir``; ``identity`` returns server and incarnation.

    A service that does not answer is away: who reads already waits for it, and one line is logged.
    """

    def __init__(self, data_dir: Path, identity: Callable[[], tuple[str, int]]) -> None:
        self._log_directory = data_dir / "log"
        self._identity = identity
        # Each is used by one thread: a search must not delay the pieces.
        self._lookups = ServiceCaller(data_dir, NAME, LOOKUP_S_MAX)
        self._pieces = ServiceCaller(data_dir, NAME, PIECE_S_MAX)
        self._backoff = Backoff(f"the service {NAME}", "subscriptions wait for records that the log has no more")
        self._not_before = 0.0
        """Monotonic second of the next attempt, while the service is away."""

    def offset(self, wanted: OffsetWanted) -> int:
        """Return the first offset of a subscription."""
        self._require_known()
        asked = OffsetAsked(wanted, *self._identity(), oldest_record(self._log_directory))
        try:
            return self._lookups.ask(*OFFSET, asked, int)
        except ServiceAway as error:
            raise SourceAway(f"older records are in the lake, but {error}; try again when it runs", 0.0) from None

    def read(self, wanted: HistoryWanted) -> HistoryRead:
        """Return a piece; :class:`SourceAway` while the service does not answer."""
        self._require_known()
        if (left_s := self._not_before - time.monotonic()) > 0:
            raise SourceAway("the service history does not answer", left_s)
        try:
            answer = self._pieces.ask(*READ, wanted, HistoryRead)
            if answer.piece != wanted.piece or not wanted.first < answer.end <= wanted.end:
                raise ServiceAway(f"the service {NAME} answers with another piece; start it again")
        except ServiceAway as error:
            pause_s = self._backoff.next_s(str(error))
            self._not_before = time.monotonic() + pause_s
            raise SourceAway(str(error), pause_s) from None
        except StorageError:
            self._backoff.reset()
            raise
        self._backoff.reset()
        return answer

    def close(self) -> None:
        """End the connections; requests that wait fail."""
        self._backoff.close()
        for caller in (self._lookups, self._pieces):
            caller.close()

    def _require_known(self) -> None:
        if not self._pieces.is_known:
            raise NoSource("no service has records that the log lacks")
