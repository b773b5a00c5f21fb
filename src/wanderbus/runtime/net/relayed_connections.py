"""TCP through the relay: each connection of a party is joined to a new connection to the other party (DESIGN 6.7).

::

    A ──connects──▶ port of side A │ are the first bytes A's? │──connects──▶ B

Each side is read only as fast as the other accepts data, with a bounded buffer between. When one party ends its
direction, the relay forwards that end; the other party may go on sending for a while.
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
"""Time that one party may go on sending after the other has ended its direction. A party that moved leaves its old
connection open, and the other party closes its own; without a timeout it would count as a connection for hours."""

_ACCEPTED_A_TURN: Final = 64
_PIECE_BYTES: Final = 65_536

_ACCEPT_PAUSE_S: Final = 1.0
"""Pause in accepting after the system refused a connection for want of descriptors."""
_ANSWER_LOOKED_FOR_S: Final = 0.05
"""Pause between two checks whether a party has answered: it may connect before its answer arrives here."""

_JOINED: Final = 2

_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RelayedListener:
    """Port of one side: accepts the connections of its party, and joins each to a connection to the other party."""

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
        """Stop accepting, and close every connection that this port accepted."""
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
                _log.warning("cannot accept a connection: %s", error.strerror)
                # Otherwise the loop would call the reader again and again.
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
        """Forward one connection in both directions; at the end close it and the connection it is joined to."""
        writers: list[asyncio.StreamWriter] = []
        try:
            await self._join(accepted, writers)
        except* OSError as broken:
            self._side.figures.refused += len(writers) < _JOINED
            _log.debug("connection failed: %s", broken.exceptions[0])
            for writer in writers:
                writer.transport.abort()
        finally:
            self._side.leave(host)
            if not writers:
                accepted.close()
            for writer in writers:
                writer.close()

    async def _join(self, accepted: socket.socket, writers: list[asyncio.StreamWriter]) -> None:
        """Check whose connection it is, connect to the other party, and forward until both directions have ended."""
        async with asyncio.timeout(self._limits.opening_s_max):
            reader, writer = await self._opened(writers, sock=accepted)
            opening = await self._opening(reader)
            while not self._side.is_described:
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
            # A data channel has one connection: a party that opens another has abandoned this one.
            left = self._side.other.ids and self._newest is not own
            async with asyncio.timeout(0 if left else HALF_CLOSED_S_MAX):
                await asyncio.wait(both)

    async def _opened(self, writers: list[asyncio.StreamWriter], **where: Any) -> _Ends:
        # A reader buffers up to twice its limit before it stops reading.
        reader, writer = await asyncio.open_connection(limit=self._limits.buffer_bytes // 2, **where)
        writers.append(writer)
        writer.transport.set_write_buffer_limits(self._limits.buffer_bytes)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return reader, writer

    async def _opening(self, reader: asyncio.StreamReader) -> bytes | None:
        """Return the first bytes of a connection if it belongs to the party, else None."""
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
        """Forward ``first`` and then what ``side`` sends, to its end, as fast as the other side accepts it."""
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
