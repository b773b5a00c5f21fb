"""TCP connections of an endpoint: their assignment to connections, and their handshakes (RFC 4145, RFC 8122).

An accepted TCP connection is unassigned until it proves that it has the secret of a pair. Until then it may send only
two small frames, within a short timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from wanderbus.errors import RemoteProtocolError
from wanderbus.hosts import network_of
from wanderbus.machine import CancelTimer, RandomSource, SetTimer, StreamClosed, StreamReceived
from wanderbus.parameters.transports import TcpConfig
from wanderbus.refusals import Limited
from wanderbus.tcp.connection import Connection
from wanderbus.tcp.frames import (
    HELLO,
    NONCE_BYTES,
    PROOF,
    RESET,
    WELCOME,
    decode_hello,
    decode_proof,
    decode_welcome,
    encode,
    encode_hello,
    encode_proof,
    encode_welcome,
)
from wanderbus.tcp.interface import Counters, Phase, TcpTarget
from wanderbus.tcp.stream import TcpStream, is_same, make_proof, make_welcome
from wanderbus.transport import Outputs

HELLO_TIMER: Final = "hello"
"""First part of the keys of our timers; the second is the number of the TCP connection."""


class StreamTable:
    """Every TCP connection that is open, being opened or being closed.

    :param connections: the open connections by local id
    :param allocated: the local ids that will be opened
    :param on_reset: called with a connection that the peer does not know
    """

    def __init__(
        self,
        random: RandomSource,
        config: TcpConfig,
        counters: Counters,
        connections: dict[int, Connection],
        allocated: set[int],
        on_reset: Callable[[Connection, float, Outputs], None],
        *,
        socket: str,
        fingerprint: bytes,
    ) -> None:
        self._random = random
        self._config = config
        self._counters = counters
        self._connections = connections
        self._allocated = allocated
        self._on_reset = on_reset
        self._socket = socket
        self._fingerprint = fingerprint
        self._accepted: dict[int, TcpStream] = {}
        self._dialled: dict[int, TcpStream] = {}
        self._parked: dict[int, TcpStream] = {}
        self._attempts = 0

    def __len__(self) -> int:
        return len(self._accepted) + len(self._dialled)

    def dial(self, connection: Connection, outputs: Outputs) -> None:
        """Open a TCP connection for ``connection``, which has a target."""
        assert connection.target is not None
        self._attempts += 1
        self._counters.opened += 1
        stream = TcpStream(self._socket, msgspec.structs.replace(connection.target, attempt=self._attempts))
        stream.connection = connection
        nonce = self._random.token(NONCE_BYTES)
        stream.hello = encode_hello(connection.generation, connection.remote_id, connection.local_id, nonce)
        self._dialled[self._attempts] = stream
        connection.dialled(stream)
        outputs.append(stream.send(stream.hello))

    def receive(self, item: StreamReceived, now: float, outputs: Outputs) -> Connection | None:
        """Process data of a TCP connection; return the connection that it concerned, if any."""
        stream = self._find(item, now, outputs)
        if stream is None or stream.is_over():
            return None
        before = stream.connection
        try:
            for kind, number, body in stream.reader.frames(item.data):
                if stream.phase is Phase.PROVEN:
                    assert stream.connection is not None
                    stream.connection.take(kind, number, body, now, outputs)
                else:
                    self._shake_hands(stream, kind, number, body, now, outputs)
                if stream.is_over():
                    break
        except RemoteProtocolError as error:
            self._counters.malformed += 1
            self._end(stream, str(error), now, outputs)
        return stream.connection or before

    def closed(self, item: StreamClosed, now: float, outputs: Outputs) -> Connection | None:
        """Remove a closed TCP connection; return the connection that it belonged to, if any."""
        if isinstance(item.target, TcpTarget):
            stream = self._dialled.pop(item.target.attempt, None)
        else:
            stream = self._accepted.pop(item.connection, None)
        if stream is None:
            return None
        self._unwatch(stream, outputs)
        connection = stream.connection
        if connection is not None:
            connection.lost(stream, item.reason, now)
        return connection

    def expired(self, number: int, now: float, outputs: Outputs) -> None:
        """Close a TCP connection whose timeout for a proof has expired."""
        stream = self._accepted.get(number)
        if stream is not None and stream.watched:
            stream.watched = False
            self._counters.silent += 1
            host = network_of(stream.target.address[0])
            outputs.append(Limited("tcp_channels.hello_s_max", host, "connection closed without a valid proof in time"))
            self._end(stream, "no proof in time", now, outputs)

    def opened(self, connection: Connection, now: float, outputs: Outputs) -> None:
        """Answer a HELLO that arrived before the connection was opened here."""
        stream = self._parked.pop(connection.local_id, None)
        if stream is not None:
            self._welcome(stream, now, outputs)

    def _find(self, item: StreamReceived, now: float, outputs: Outputs) -> TcpStream | None:
        if isinstance(item.target, TcpTarget):
            stream = self._dialled.get(item.target.attempt)
            if stream is not None and stream.number is None:
                stream.number = item.connection
                if stream.is_over():
                    stream.close(outputs)
            return stream
        stream = self._accepted.get(item.connection)
        if stream is None:
            self._counters.accepted += 1
            stream = self._accepted[item.connection] = TcpStream(
                self._socket, TcpTarget(item.transport, item.source), item.connection
            )
            stream.watched = True
            outputs.append(SetTimer((HELLO_TIMER, item.connection), now + self._config.hello_s_max))
        return stream

    def _shake_hands(
        self, stream: TcpStream, kind: int, number: int, body: bytes, now: float, outputs: Outputs
    ) -> None:
        phase = stream.phase
        if phase is Phase.ACCEPTED and kind == HELLO:
            self._take_hello(stream, number, body, now, outputs)
        elif phase is Phase.WELCOMED and kind == PROOF:
            self._take_proof(stream, number, body, now, outputs)
        elif phase is Phase.CALLING and kind == WELCOME:
            self._take_welcome(stream, number, body, now, outputs)
        elif phase is Phase.CALLING and kind == RESET and stream.connection is not None:
            self._on_reset(stream.connection, now, outputs)
        else:
            raise RemoteProtocolError(f"frame type {kind:#04x} came too early", status=None)

    def _take_hello(self, stream: TcpStream, generation: int, body: bytes, now: float, outputs: Outputs) -> None:
        local_id, remote_id, nonce = decode_hello(body)
        stream.hello = encode_hello(generation, local_id, remote_id, nonce)
        stream.local_id, stream.remote_id, stream.generation = local_id, remote_id, generation
        if local_id in self._allocated:
            self._counters.early += 1
            if (before := self._parked.get(local_id)) is not None:
                self._end(before, "replaced by another connection for the same id", now, outputs)
            stream.phase = Phase.PARKED
            self._parked[local_id] = stream
        else:
            self._welcome(stream, now, outputs)

    def _welcome(self, stream: TcpStream, now: float, outputs: Outputs) -> None:
        connection = self._admitted(stream, now, outputs)
        if connection is not None:
            receiver, nonce = connection.receiver, self._random.token(NONCE_BYTES)
            stream.phase = Phase.WELCOMED
            stream.welcome = make_welcome(
                connection.secret, stream.hello, nonce, receiver.expected, receiver.grantable, self._fingerprint
            )
            outputs.append(stream.send(stream.welcome))

    def _take_proof(self, stream: TcpStream, expected: int, body: bytes, now: float, outputs: Outputs) -> None:
        connection = self._admitted(stream, now, outputs)
        if connection is None:
            return
        grant, proof = decode_proof(body)
        made = make_proof(connection.secret, stream.hello, stream.welcome, expected, grant, self._fingerprint)
        if not is_same(made, encode_proof(expected, grant, proof)):
            self._forged(stream, now, outputs)
            return
        connection.adopt(stream, expected, grant, now, outputs)
        connection.peer_generation = stream.generation
        self._unwatch(stream, outputs)

    def _take_welcome(self, stream: TcpStream, expected: int, body: bytes, now: float, outputs: Outputs) -> None:
        connection = stream.connection
        assert connection is not None, "input of a closed stream is ignored"
        grant, nonce, proof = decode_welcome(body)
        stream.welcome = encode_welcome(expected, grant, nonce, proof)
        secret, fingerprint, receiver = connection.secret, stream.target.fingerprint or b"", connection.receiver
        if not is_same(make_welcome(secret, stream.hello, nonce, expected, grant, fingerprint), stream.welcome):
            self._forged(stream, now, outputs)
            return
        connection.adopt(stream, expected, grant, now, outputs)
        connection.send_first(
            make_proof(secret, stream.hello, stream.welcome, receiver.expected, receiver.grant(), fingerprint)
        )

    def _admitted(self, stream: TcpStream, now: float, outputs: Outputs) -> Connection | None:
        """Return the connection that the HELLO names; if it is not permitted, refuse it and return None."""
        connection = self._connections.get(stream.local_id)
        if connection is None:
            self._counters.resets += 1
            stream.phase = Phase.REFUSED
            outputs.append(stream.send(encode(RESET, stream.local_id)))
        elif connection.remote_id != stream.remote_id or connection.target is not None:
            self._counters.wrong_pair += 1
            self._end(stream, "its HELLO names another pair", now, outputs)
        elif stream.generation < connection.peer_generation:
            self._counters.stale += 1
            self._end(stream, "its generation is outdated", now, outputs)
        else:
            return connection
        return None

    def _forged(self, stream: TcpStream, now: float, outputs: Outputs) -> None:
        self._counters.forged += 1
        self._end(stream, "its proof is invalid", now, outputs)

    def _end(self, stream: TcpStream, reason: str, now: float, outputs: Outputs) -> None:
        """Close a TCP connection because of its input, or for lack of it."""
        if stream.connection is not None:
            stream.connection.lost(stream, reason, now)
        self._unwatch(stream, outputs)
        stream.close(outputs)

    def _unwatch(self, stream: TcpStream, outputs: Outputs) -> None:
        """Cancel the timer for its proof."""
        if stream.watched:
            stream.watched = False
            outputs.append(CancelTimer((HELLO_TIMER, stream.number)))
        if self._parked.get(stream.local_id) is stream:
            del self._parked[stream.local_id]
