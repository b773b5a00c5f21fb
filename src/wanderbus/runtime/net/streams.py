"""TCP and TLS connections of a machine: opened on demand, shared by target, closed when idle (RFC 3261 18).

Nothing here blocks or looks up host names. The unsent bytes of a connection and the number of connections are bounded:
a peer that does not read loses its connection. At the bound on connections a new one replaces the connection that has
waited longest for a first answer; if all were answered, the new one is closed.

Nagle's algorithm is off on all connections: what a machine sends in one step already is one write.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, cast

from wanderbus.hosts import is_ip_address, network_of
from wanderbus.machine import Address, Input, SendOnStream, StreamClosed, StreamReceived, StreamTarget, shown
from wanderbus.parameters.transports import StreamLimits
from wanderbus.refusals import Limited
from wanderbus.runtime.net.connection_rate import ConnectionRate
from wanderbus.runtime.net.descriptors import connections_max
from wanderbus.runtime.net.handshakes import Handshakes
from wanderbus.runtime.net.tls import fingerprint_tls, shows_fingerprint, sip_domains

_log = logging.getLogger("wanderbus.streams")

StreamTransport = Literal["TCP", "TLS"]

_BACKLOG: Final = 512
_ACCEPTED_A_TURN: Final = 8
"""Connections accepted before others have their turn: starting a TLS handshake takes half a millisecond."""

_ACCEPT_PAUSE_S: Final = 1.0
"""Pause in accepting after the system refused a connection for want of descriptors."""


class _Connection(asyncio.Protocol):
    """One connection; ``transport`` is None until it is open."""

    def __init__(
        self, streams: Streams, number: int, kind: StreamTransport, peer: Address, target: StreamTarget | None
    ) -> None:
        self.number = number
        self.kind = kind
        self.peer = peer
        self.target = target
        self.transport: asyncio.Transport | None = None
        self.unsent = bytearray()
        self.has_received = False
        self.answered = target is not None
        """True if the machine has sent something on it: an answer to valid input, or on a connection opened by us."""
        self.opened_at = self.used_at = 0.0
        self.peer_domains: tuple[str, ...] = ()
        """SIP domains that the verified certificate of the peer names."""
        self.idle_timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.turn: asyncio.Future[None] | None = None
        """Completed when its TLS handshake may begin."""
        self._streams = streams

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._streams.opened(self)

    def data_received(self, data: bytes) -> None:
        self._streams.received(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._streams.lost(self, str(exc) if exc else "closed by the peer")


class Streams:
    """The connections that belong to the socket ``name``; ``numbers`` gives each its number.

    :param feed: receives events as inputs of the machine
    :param server_tls: the context for accepted TLS connections; without it TLS cannot be listened on
    :param client_tls: the context for connections to a target without a fingerprint; without it none can be opened
    :param peer_tls: the context for connections to the server of a SIP domain
    :param note: receives what a limit refused or closed
    :param local_host: the local IP address to open connections from; chosen by the system when None
    """

    def __init__(
        self,
        name: str,
        feed: Callable[[Input], None],
        numbers: Iterator[int],
        *,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
        peer_tls: ssl.SSLContext | None = None,
        local_host: str | None = None,
        limits: StreamLimits | None = None,
        note: Callable[[Limited], None] = lambda limited: None,
    ) -> None:
        self._name = name
        self._feed = feed
        self._numbers = numbers
        self._server_tls = server_tls
        self._client_tls = client_tls
        self._peer_tls = peer_tls
        self._fingerprint_tls: ssl.SSLContext | None = None
        self._local_host = local_host
        self._limits = limits or StreamLimits()
        self._segment_bytes_max = self._limits.segment_bytes_max
        self._note = note
        self._rate = ConnectionRate(self._limits.connections_per_s, self._limits.burst_connections)
        self._handshakes = Handshakes(self._limits.handshakes_max)
        self._connections_max = connections_max(self._limits.connections_max)
        self._loop = asyncio.get_running_loop()
        self._listeners: list[socket.socket] = []
        self._connections: dict[int, _Connection] = {}
        self._by_target: dict[StreamTarget, _Connection] = {}
        self._accepted: Counter[str] = Counter()
        """Number of accepted connections, by host."""
        self._unanswered: dict[int, _Connection] = {}
        """Accepted connections that are not answered yet, the oldest first."""
        self._pauses: set[asyncio.TimerHandle] = set()

    def __len__(self) -> int:
        return len(self._connections)

    def listen(self, addresses: Mapping[str, Address]) -> dict[str, Address]:
        """Accept connections at ``addresses``, by transport, from now on; return them with the ports in use.

        Raises ``OSError`` if an address cannot be bound, with transport and address as its ``filename``; none of the
        addresses is then listened on.
        """
        opened: dict[str, socket.socket] = {}
        try:
            for kind, address in addresses.items():
                if kind == "TLS" and self._server_tls is None:
                    raise OSError(0, "TLS needs a certificate")
                opened[kind] = open_listener(address)
        except OSError as error:
            for each in opened.values():
                each.close()
            raise OSError(error.errno, error.strerror or str(error), f"{kind} port {shown(address)}") from None
        for kind, listener in opened.items():
            self._listeners.append(listener)
            self._loop.add_reader(listener, self._accept, _kind(kind), listener)
        return {kind: listener.getsockname()[:2] for kind, listener in opened.items()}

    def send(self, wanted: SendOnStream) -> None:
        """Send data of the machine on an open connection or a new one."""
        connection = None if wanted.connection is None else self._connections.get(wanted.connection)
        if connection is None and wanted.reopen:
            connection = self._by_target.get(wanted.target) or self._connect(wanted.target)
        if connection is not None:
            self._write(connection, wanted.data)

    def write(self, number: int, data: bytes) -> None:
        """Send data on one open connection; it is lost on an unknown number."""
        if (connection := self._connections.get(number)) is not None:
            self._write(connection, data)

    def end_connection(self, number: int) -> None:
        """Close one connection as soon as what waits for the peer is sent; an unknown number is ignored."""
        connection = self._connections.get(number)
        if connection is not None and connection.transport is not None:
            connection.transport.close()

    def close_connection(self, number: int) -> None:
        """Close one connection; an unknown number is ignored."""
        connection = self._connections.get(number)
        if connection is not None:
            self._drop(connection, "closed by this side")

    def close(self) -> None:
        """Close all connections; data that was already sent is still transmitted."""
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        self._listeners.clear()
        for pause in self._pauses:
            pause.cancel()
        for connection in list(self._connections.values()):
            self._drop(connection, "closed by this side")

    def opened(self, connection: _Connection) -> None:
        """Send the queued data when the connection is open, provided the peer proves to be the one the target names."""
        assert connection.transport is not None
        self._end_handshake(connection)
        if connection.number not in self._connections:
            connection.transport.abort()
            return
        wanted = None if connection.target is None else connection.target.fingerprint
        if wanted is not None and not shows_fingerprint(connection.transport.get_extra_info("ssl_object"), wanted):
            self._drop(connection, "the certificate does not match the announced fingerprint")
            return
        if not self._shows_domain(connection):
            return
        unsent, connection.unsent = bytes(connection.unsent), bytearray()
        if unsent:
            connection.transport.write(unsent)
        self._watch_idle(connection)

    def _shows_domain(self, connection: _Connection) -> bool:
        """Store the SIP domains that the peer has proved; close the connection if the wanted one is not among them."""
        wanted = None if connection.target is None else connection.target.sip_domain
        if connection.kind != "TLS" or (connection.target is not None and wanted is None):
            return True
        assert connection.transport is not None
        connection.peer_domains = sip_domains(connection.transport.get_extra_info("ssl_object"))
        if wanted is None or wanted in connection.peer_domains:
            return True
        names = ", ".join(connection.peer_domains) or "no domain"
        _log.warning(
            "the certificate of %s at %s names %s; nothing is sent there", wanted, shown(connection.peer), names
        )
        self._drop(connection, f"the certificate of {wanted} names {names}")
        return False

    def received(self, connection: _Connection, data: bytes) -> None:
        """Pass received data to the machine."""
        if connection.number not in self._connections:
            return
        connection.has_received = True
        connection.used_at = self._loop.time()
        self._feed(
            StreamReceived(
                self._name,
                connection.number,
                connection.peer,
                data,
                connection.kind,
                connection.target,
                connection.peer_domains,
            )
        )

    def lost(self, connection: _Connection, reason: str) -> None:
        """Remove a connection and report its end, unless it never received data."""
        if self._connections.pop(connection.number, None) is None:
            return
        self._unanswered.pop(connection.number, None)
        self._end_handshake(connection)
        if connection.idle_timer is not None:
            connection.idle_timer.cancel()
        if connection.target is None:
            host = network_of(connection.peer[0])
            self._accepted[host] -= 1
            if not self._accepted[host]:
                del self._accepted[host]
        elif self._by_target.get(connection.target) is connection:
            del self._by_target[connection.target]
        _log.debug("connection with %s on %s closed: %s", connection.peer, self._name, reason)
        if connection.has_received or connection.target is not None:
            self._feed(StreamClosed(self._name, connection.number, reason, connection.target))

    def _drop(self, connection: _Connection, reason: str) -> None:
        if connection.task is not None:
            connection.task.cancel()
        self.lost(connection, reason)
        if connection.transport is not None:
            connection.transport.abort()

    def _accept(self, kind: StreamTransport, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_A_TURN):
            try:
                accepted, peer = listener.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError as error:
                self._note(Limited("descriptors", self._name, f"no connection accepted for 1 s: {error.strerror}"))
                self._pause(kind, listener)
                return
            if not self._has_room_for(host := network_of(peer[0])):
                accepted.close()
                continue
            accepted.setblocking(False)
            self._accepted[host] += 1
            connection = self._add(kind, peer[:2], None)
            self._unanswered[connection.number] = connection
            connection.task = self._loop.create_task(self._greet(connection, accepted))
            connection.task.add_done_callback(functools.partial(_close_if_cancelled, accepted))

    def _has_room_for(self, host: str) -> bool:
        """Return whether another connection may be accepted, if necessary in place of one that is not answered yet."""
        if self._accepted[host] >= self._limits.connections_per_host_max:
            self._limited("connections_per_host_max", host, "connection refused")
            return False
        if not self._rate.admits(host, self._loop.time()):
            self._limited("connections_per_s", host, "connection refused")
            return False
        if len(self._connections) < self._connections_max:
            return True
        if (oldest := next(iter(self._unanswered.values()), None)) is None:
            self._limited("connections_max", host, "connection refused")
            return False
        self._limited("connections_max", network_of(oldest.peer[0]), "silent connection closed to admit another")
        self._drop(oldest, "closed to admit another connection: it was silent")
        return True

    def _limited(self, setting: str, host: str, reason: str) -> None:
        self._note(Limited(f"{self._limits.section}.{setting}", host, f"{reason} ({self._name})"))

    def _pause(self, kind: StreamTransport, listener: socket.socket) -> None:
        """Stop accepting for a moment; otherwise the loop would call the reader again and again."""
        self._loop.remove_reader(listener)

        def resume() -> None:
            self._pauses.discard(handle)
            self._loop.add_reader(listener, self._accept, kind, listener)

        handle = self._loop.call_later(_ACCEPT_PAUSE_S, resume)
        self._pauses.add(handle)

    async def _greet(self, connection: _Connection, accepted: socket.socket) -> None:
        tls = self._server_tls if connection.kind == "TLS" else None
        patience_s = self._limits.handshake_s_max if tls else None
        try:
            if tls is not None:
                await self._wait_for_turn(connection)
            await self._loop.connect_accepted_socket(
                lambda: connection, accepted, ssl=tls, ssl_handshake_timeout=patience_s
            )
        except OSError as error:
            accepted.close()
            self.lost(connection, _reason(error))
        finally:
            connection.task = None

    async def _wait_for_turn(self, connection: _Connection) -> None:
        """Wait until a TLS handshake may begin; raises ``TimeoutError`` after ``handshake_s_max``."""
        number, host = connection.number, network_of(connection.peer[0])
        connection.turn = self._loop.create_future()
        ending = self._handshakes.ask(number, host, self._loop.time())
        if ending is not None and (ended := self._connections.get(ending)) is not None:
            self._limited("handshakes_max", network_of(ended.peer[0]), "slow handshake ended to admit another")
            self._drop(ended, "closed to admit another connection: its handshake was slow")
        if self._handshakes.has_begun(number):
            return
        try:
            async with asyncio.timeout(self._limits.handshake_s_max):
                await connection.turn
        except TimeoutError:
            self._limited("handshakes_max", host, "connection closed: no place for its handshake in time")
            raise

    def _end_handshake(self, connection: _Connection) -> None:
        for number in self._handshakes.leave(connection.number, self._loop.time()):
            turn = self._connections[number].turn
            if turn is not None and not turn.done():
                turn.set_result(None)

    def _connect(self, target: StreamTarget) -> _Connection | None:
        """Begin to open a connection to ``target``; None if that fails at once."""
        kind = _kind(target.transport)
        connection = self._add(kind, target.address, target)
        self._by_target[target] = connection
        if not is_ip_address(target.address[0]):
            self.lost(connection, f"{target.address[0]} is not an IP address")
        elif kind == "TLS" and self._context_for(target) is None:
            self.lost(connection, "TLS is not configured")
        elif len(self._connections) > self._connections_max:
            self.lost(connection, "too many connections are open")
        else:
            connection.task = self._loop.create_task(self._open(connection, target))
            return connection
        return None

    async def _open(self, connection: _Connection, target: StreamTarget) -> None:
        host, port = target.address
        tls = self._context_for(target) if connection.kind == "TLS" else None
        same_family = self._local_host is not None and (":" in self._local_host) == (":" in host)
        try:
            async with asyncio.timeout(self._limits.connect_s_max):
                opened = self._socket_for(host, (self._local_host, 0) if same_family and self._local_host else None)
                try:
                    await self._loop.sock_connect(opened, (host, port))
                except BaseException:
                    opened.close()
                    raise
                await self._loop.create_connection(
                    lambda: connection,
                    ssl=tls,
                    server_hostname=(target.sip_domain or target.server_name or host) if tls else None,
                    sock=opened,
                )
        except (OSError, ValueError) as error:
            if target.sip_domain is not None:
                _log.warning("cannot connect to %s at %s: %s", target.sip_domain, shown(target.address), _reason(error))
            self.lost(connection, _reason(error))
        finally:
            connection.task = None

    def shorten_segments(self) -> None:
        """Open connections with short segments from now on: the path seems to drop long packets."""
        self._segment_bytes_max = StreamLimits().segment_bytes_max

    def _socket_for(self, host: str, local: Address | None) -> socket.socket:
        """Return a socket to connect to ``host``, bound to ``local``; raises OSError."""
        opened = socket.socket(
            socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )
        try:
            opened.setblocking(False)
            if self._segment_bytes_max is not None:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, self._segment_bytes_max)
            if local is not None:
                opened.bind(local)
        except BaseException:
            opened.close()
            raise
        return opened

    def _context_for(self, target: StreamTarget) -> ssl.SSLContext | None:
        if target.sip_domain is not None:
            return self._peer_tls
        if target.fingerprint is None:
            return self._client_tls
        if self._fingerprint_tls is None:
            self._fingerprint_tls = fingerprint_tls()
        return self._fingerprint_tls

    def _add(self, kind: StreamTransport, peer: Address, target: StreamTarget | None) -> _Connection:
        connection = _Connection(self, next(self._numbers), kind, peer, target)
        connection.used_at = self._loop.time()
        connection.opened_at = connection.used_at
        self._connections[connection.number] = connection
        return connection

    def _write(self, connection: _Connection, data: bytes) -> None:
        connection.used_at = self._loop.time()
        if not connection.answered and data.strip(b"\r\n"):  # a pong is no answer (RFC 5626 3.5.1)
            connection.answered = True
            del self._unanswered[connection.number]
        if connection.transport is None:
            connection.unsent += data
            waiting = len(connection.unsent)
        else:
            connection.transport.write(data)
            waiting = connection.transport.get_write_buffer_size()
        if waiting > self._limits.unsent_bytes_max:
            self._limited("unsent_bytes_max", network_of(connection.peer[0]), "connection closed: peer does not read")
            self._drop(connection, "the peer does not read")

    def _watch_idle(self, connection: _Connection) -> None:
        """Close the connection if it was idle for long enough; otherwise check again at the earliest possible time."""
        limits = self._limits
        if connection.answered:
            idle_at = connection.used_at + (math.inf if limits.idle_s_max is None else limits.idle_s_max)
        else:
            idle_at = connection.opened_at + limits.silent_s_max
        if self._loop.time() >= idle_at:
            if not connection.answered:
                self._limited("silent_s_max", network_of(connection.peer[0]), "silent connection closed")
            self._drop(connection, "idle")
        else:
            connection.idle_timer = self._loop.call_at(idle_at, self._watch_idle, connection)


def _kind(transport: str) -> StreamTransport:
    return "TLS" if transport == "TLS" else "TCP"


def open_listener(address: Address) -> socket.socket:
    """Return a listening non-blocking socket; ``OSError`` if ``address`` cannot be bound."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    # With the protocol given, asyncio recognizes TCP, also on accepted sockets, and turns Nagle's algorithm off.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(_BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


def _close_if_cancelled(accepted: socket.socket, task: asyncio.Task[None]) -> None:
    """Close a socket whose task was cancelled before it could pass the socket to a transport."""
    if task.cancelled():
        accepted.close()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no connection in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
