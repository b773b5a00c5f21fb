"""HTTP server in the loop of the process: one application on the bounded connections of :mod:`.streams`.

uvicorn's protocol class reads requests and runs the application. Its own server is not used: that installs handlers of
signals, and limits neither connections nor handshakes nor the time of a request.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from wanderbus.machine import Address, Input, StreamClosed, StreamReceived
from wanderbus.parameters.transports import PageLimits
from wanderbus.refusals import Limited
from wanderbus.runtime.net.streams import Streams

if TYPE_CHECKING:
    from starlette.types import ASGIApp

HEAD_BYTES_MAX: Final = 16 * 1024
"""Length of a request without its body."""

AHEAD_BYTES_MAX: Final = 64 * 1024
"""Bytes that a client may send before it has the answer to its request."""

# A stranger must not fill the log: uvicorn warns of each request that it cannot read.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


class HttpServer:
    """Serves ``application`` on ``address`` between :meth:`start` and :meth:`close`; over TLS with ``tls``.

    :param note: receives what a limit refused or closed
    """

    def __init__(
        self,
        application: ASGIApp,
        address: Address,
        tls: ssl.SSLContext | None = None,
        limits: PageLimits | None = None,
        note: Callable[[Limited], None] = lambda limited: None,
    ) -> None:
        self.address = address
        """Its address; once started, with the port in use."""
        self._config = Config(
            application,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        self._tls = tls
        self._limits = limits or PageLimits()
        self._note = note
        self._state = ServerState()
        self._requests: dict[int, _Requests] = {}
        self._streams: Streams | None = None

    async def start(self) -> None:
        """Bind the address and serve; ``OSError`` if it cannot be bound."""
        streams = Streams("http", self._take, count(1), server_tls=self._tls, limits=self._limits, note=self._note)
        kind = "TCP" if self._tls is None else "TLS"
        self.address = streams.listen({kind: self.address})[kind]
        self._streams = streams

    async def close(self) -> None:
        """Close the connections, and the socket."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams.close()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)

    def _take(self, given: Input) -> None:
        match given:
            case StreamReceived(connection=number, data=data) if self._streams is not None:
                requests = self._requests.get(number)
                if requests is None:
                    transport = _Transport(self._streams, number, given.source, self.address, self._tls)
                    requests = self._requests[number] = _Requests(self._config, self._state, self._limits)
                    requests.connection_made(transport)
                requests.data_received(data)
            case StreamClosed(connection=number):
                if (requests := self._requests.pop(number, None)) is not None:
                    requests.connection_lost(None)


class _Transport(asyncio.Transport):
    """A connection of ``streams``, as the protocol sees it."""

    def __init__(
        self, streams: Streams, number: int, peer: Address, local: Address, tls: ssl.SSLContext | None
    ) -> None:
        super().__init__({"peername": peer, "sockname": local, "sslcontext": tls})
        self._streams = streams
        self._number = number
        self._is_closing = False
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._streams.write(self._number, bytes(data))

    def close(self) -> None:
        self._is_closing = True
        self._streams.end_connection(self._number)

    def abort(self) -> None:
        self._is_closing = True
        self._streams.close_connection(self._number)

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class _Requests(H11Protocol):
    """Requests of a connection, which is closed unless each of them comes and is answered in time."""

    def __init__(self, config: Config, state: ServerState, limits: PageLimits) -> None:
        super().__init__(config, state, {})
        self._idle_s = limits.idle_s_max
        self._ahead_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        if cast(_Transport, self.transport).is_paused:
            self._ahead_bytes += len(data)
            if self._ahead_bytes > AHEAD_BYTES_MAX:
                self.transport.abort()
                return
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._ahead_bytes = 0
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        """Give the peer time for its next request."""
        if self._timer is not None:
            self._timer.cancel()
        if self._idle_s is not None:
            self._timer = self.loop.call_later(self._idle_s, self.transport.abort)
