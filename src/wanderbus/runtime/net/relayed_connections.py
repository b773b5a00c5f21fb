"""TCP through the relay: what a party connects with is joined to a connection to the other party (DESIGN 6.7).

::

    A ──connects──▶ port of side A │ are the first bytes A's? │──connects──▶ B

Each side is read only as fast as the other takes it, with a bounded buffer between. When one has nothing more to say,
the other hears that, and may go on itself for a while.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, Final

from wanderbus.machine import Address
from wanderbus.relay import RelayLimits, Side
from wanderbus.runtime.net.streams import open_listener

_log = logging.getLogger("wanderbus.relay")

HALF_CLOSED_S_MAX: Final = 3.0
"""How long one party may go on when the other has said all. Who has moved away does not close what it left behind, and
the other party does; what is not closed then would count as a connection for hours, and leave no room for more."""

_ACCEPTED_A_TURN: Final = 64
_PIECE_BYTES: Final = 65_536

_ACCEPT_PAUSE_S: Final = 1.0
"""How long nothing is accepted after the system refused to, for want of descriptors."""
_ANSWER_LOOKED_FOR_S: Final = 0.05
"""Pause between two looks whether a party has answered, which may connect before its answer is here."""

_JOINED: Final = 2

_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Listener:
    """The port of one side: accepts the connections of its party, and joins each to one to the other party."""

    def __init__(self, side: Side, address: Address, limits: RelayLimits) -> None:
        self._side = side
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._newest: asyncio.Task[None] | None = None
        self._local_host = address[0]
        self._socket = open_listener(address)
        self._pause: asyncio.TimerHandle | None = None
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Accept no more, and close every connection that came by this port."""
        self._loop.remove_reader(self._socket)
        if self._pause is not None:
            self._pause.cancel()
        self._socket.close()
        for task in self._tasks:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_A_TURN):
            try:
                accepted, source = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                _log.warning("a connection cannot be accepted now: %s", error.strerror)
                # The reader would be called without end.
                self._loop.remove_reader(self._socket)
                self._pause = self._loop.call_later(_ACCEPT_PAUSE_S, self._loop.add_reader, self._socket, self._accept)
                return
            if self._side.admit(source[0]):
                task = self._loop.create_task(self._serve(accepted, source[0]))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                accepted.close()

    async def _serve(self, accepted: socket.socket, host: str) -> None:
        """Carry what comes on one connection, and close it and the one that it is joined to."""
        writers: list[asyncio.StreamWriter] = []
        try:
            await self._join(accepted, writers)
        except* OSError as broken:
            self._side.figures.refused += len(writers) < _JOINED
            _log.debug("a connection broke: %s", broken.exceptions[0])
            for writer in writers:
                writer.transport.abort()
        finally:
            self._side.leave(host)
            if not writers:
                accepted.close()
            for writer in writers:
                writer.close()

    async def _join(self, accepted: socket.socket, writers: list[asyncio.StreamWriter]) -> None:
        """Look whose connection it is, connect to the other party, and carry until both have said all."""
        async with asyncio.timeout(self._limits.opening_s_max):
            reader, writer = await self._opened(writers, sock=accepted)
            opening = await self._opening(reader)
            while not self._side.said:
                await asyncio.sleep(_ANSWER_LOOKED_FOR_S)
            target = self._side.target
            if opening is None or target is None:
                self._side.figures.refused += 1
                return
            from_there, there = await self._opened(
                writers, host=target[0], port=target[1], local_addr=(self._local_host, 0)
            )
        self._side.figures.connections += 1
        self._newest = own = asyncio.current_task()
        async with asyncio.TaskGroup() as group:
            both = [
                group.create_task(self._carry(self._side, opening, reader, there)),
                group.create_task(self._carry(self._side.other, b"", from_there, writer)),
            ]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            # A data channel has one connection: who has opened another has left this one behind.
            left = self._side.other.ids and self._newest is not own
            async with asyncio.timeout(0 if left else HALF_CLOSED_S_MAX):
                await asyncio.wait(both)

    async def _opened(self, writers: list[asyncio.StreamWriter], **where: Any) -> _Ends:
        # A reader holds up to twice its limit before the other side has to wait.
        reader, writer = await asyncio.open_connection(limit=self._limits.buffer_bytes // 2, **where)
        writers.append(writer)
        writer.transport.set_write_buffer_limits(self._limits.buffer_bytes)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return reader, writer

    async def _opening(self, reader: asyncio.StreamReader) -> bytes | None:
        """Return the first bytes of a connection that is the party's; None if it is not."""
        opening = b""
        while (judged := self._side.judge(opening)) is None:
            piece = await reader.read(_PIECE_BYTES)
            if not piece:
                return None
            opening += piece
        return opening if judged else None

    async def _carry(
        self, side: Side, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Write what ``side`` says, ``first`` before it, to its end, as fast as the other one takes it."""
        piece = first
        while piece or (piece := await reader.read(_PIECE_BYTES)):
            wait_s = side.carry(len(piece), self._loop.time())
            writer.write(piece)
            await writer.drain()
            piece = b""
            if wait_s:
                await asyncio.sleep(wait_s)
        if writer.can_write_eof():
            writer.write_eof()
