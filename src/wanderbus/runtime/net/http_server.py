"""HTTP server in the loop of the process: one application, with bounds on connections, heads and time."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from wanderbus.machine import Address

if TYPE_CHECKING:
    from starlette.types import ASGIApp

CONNECTIONS_MAX: Final = 64
"""Connections at a time; a further one is closed at once."""

SOURCE_CONNECTIONS_MAX: Final = 16
"""Those of one address."""

IDLE_S_MAX: Final = 15.0
"""Time that a connection has for its next request, until the whole of it is here and answered."""

HEAD_BYTES_MAX: Final = 16 * 1024
"""Length of a request without its body."""

# A stranger must not fill the log: uvicorn warns of each request that it cannot read.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


class HttpServer:
    """Serves ``application`` on ``address`` between :meth:`start` and :meth:`close`; over TLS with ``tls``."""

    def __init__(self, application: ASGIApp, address: Address, tls: ssl.SSLContext | None = None) -> None:
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
            timeout_keep_alive=int(IDLE_S_MAX),
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        self._tls = tls
        self._state = ServerState()
        self._sources = Counter[str]()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Bind the address and serve; ``OSError`` if it cannot be bound."""
        host, port = self.address
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, host, port, ssl=self._tls)
        self.address = (host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Close the connections, and the socket."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for each in list(self._state.connections):
            each.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        await asyncio.gather(*self._state.tasks, return_exceptions=True)
        await server.wait_closed()

    def _connection(self) -> _Connection:
        return _Connection(self._config, self._state, self._sources)


class _Connection(H11Protocol):
    """A connection that is closed unless a whole request was answered within :data:`IDLE_S_MAX`."""

    def __init__(self, config: Config, state: ServerState, sources: Counter[str]) -> None:
        super().__init__(config, state, {})
        self._sources = sources
        self._source = ""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._source = self.client[0] if self.client is not None else "?"
        self._sources[self._source] += 1
        if len(self.connections) > CONNECTIONS_MAX or self._sources[self._source] > SOURCE_CONNECTIONS_MAX:
            transport.abort()
            return
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._sources[self._source] -= 1
        if not self._sources[self._source]:
            del self._sources[self._source]
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        """Give the peer time for its next request."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(IDLE_S_MAX, self.transport.abort)
