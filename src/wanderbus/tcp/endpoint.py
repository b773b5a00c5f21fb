"""Endpoint of the data channel over TCP: many connections, each over one TCP connection at a time (SPEC F-01, F-07).

It has the interface of reliable UDP's endpoint. A connection is a pair of ids; its TCP connection may break and be
replaced, and every message still arrives once and in order.
"""

from __future__ import annotations

from collections.abc import Iterable

from wanderbus.detection import Detectors, MakeDetector, TimeoutDetector
from wanderbus.errors import LimitExceeded
from wanderbus.machine import Address, Input, RandomSource, StreamClosed, StreamReceived, TimerFired
from wanderbus.parameters.transports import TcpConfig
from wanderbus.tcp.connection import Connection
from wanderbus.tcp.interface import Counters, OpenConnection
from wanderbus.tcp.stream_table import HELLO_TIMER, StreamTable
from wanderbus.transport import (
    ChangePath,
    CloseConnection,
    ConnectionReset,
    Consumed,
    FinishSending,
    MovedHere,
    Outputs,
    Probe,
    SendMessage,
)

_DEFAULT_CONFIG = TcpConfig()

_Request = Consumed | FinishSending | ChangePath | MovedHere | Probe
_Touched = dict[int, Connection]


class Endpoint:
    """The machine; timers are keyed by local id, one for each connection, and for unauthenticated TCP connections.

    :param socket: the driver's name for the socket whose TCP connections belong to this endpoint
    :param fingerprint: SHA-256 of the certificate shown to peers that connect; empty without TLS
    :param make_detector: returns the failure detector of each connection; None for the default (SPEC G-26)
    """

    def __init__(
        self,
        random: RandomSource,
        config: TcpConfig = _DEFAULT_CONFIG,
        *,
        socket: str = "data-stream",
        fingerprint: bytes = b"",
        make_detector: MakeDetector | None = None,
    ) -> None:
        self.counters = Counters()
        self._detectors = Detectors(TimeoutDetector(config.ack_timeout_s), make_detector)
        self._random = random
        self._config = config
        self._socket = socket
        self._connections: dict[int, Connection] = {}
        self._allocated: set[int] = set()
        self._streams = StreamTable(
            random,
            config,
            self.counters,
            self._connections,
            self._allocated,
            self._reset,
            socket=socket,
            fingerprint=fingerprint,
        )

    def allocate(self) -> int:
        """Return a fresh local id: 63 unpredictable bits, never 0.

        A HELLO for it waits until it is opened or closed: the peer may have learnt the id from an answer that has not
        arrived here yet.
        """
        while True:
            local_id = int.from_bytes(self._random.token(8), "big") >> 1
            if local_id and local_id not in self._connections and local_id not in self._allocated:
                self._allocated.add(local_id)
                return local_id

    def release(self, local_id: int) -> None:
        """Forget an id that was allocated and never opened."""
        self._allocated.discard(local_id)

    def rtt_s(self, local_id: int) -> float | None:
        """Return the smoothed round trip of the TCP connection in use in seconds; None if unknown."""
        connection = self._connections.get(local_id)
        return connection.sender.rtt_s if connection else None

    def unsent_bytes(self, local_id: int) -> int:
        """Return the bytes of DATA frames that wait to be sent; 0 for an unknown id."""
        connection = self._connections.get(local_id)
        return connection.sender.waiting_bytes if connection else 0

    def reached(self, local_id: int) -> bool:
        """Return whether an authenticated TCP connection carries it; False for an unknown id."""
        connection = self._connections.get(local_id)
        return connection is not None and connection.stream is not None

    def proved_address(self, local_id: int) -> Address | None:
        """Return the address of the peer on the TCP connection in use; None if there is none."""
        connection = self._connections.get(local_id)
        stream = None if connection is None else connection.stream
        return None if stream is None else stream.target.address

    def all_confirmed(self, local_id: int) -> bool:
        """Return whether the peer has acknowledged everything that was sent or queued; True for an unknown id."""
        connection = self._connections.get(local_id)
        return connection is None or connection.sender.all_confirmed

    def step(self, inputs: Iterable[Input], now: float) -> Outputs:
        """Process a batch of inputs at monotonic second ``now``.

        :raises LimitExceeded: a message to send exceeds ``message_bytes_max``; nothing of the batch was done.
        """
        batch = list(inputs)
        self._check_sizes(batch)
        outputs: Outputs = []
        touched: _Touched = {}
        for item in batch:
            connection: Connection | None = None
            if type(item) is SendMessage:
                connection = self._connections.get(item.local_id)
                if connection is not None and not connection.failed:
                    connection.sender.queue(item.payload)
            elif type(item) is StreamReceived and item.socket == self._socket:
                connection = self._streams.receive(item, now, outputs)
            elif type(item) is StreamClosed and item.socket == self._socket:
                connection = self._streams.closed(item, now, outputs)
            else:
                connection = self._take_request(item, now, outputs)
            if connection is not None:
                touched[connection.local_id] = connection
        for local_id, connection in touched.items():
            if self._connections.get(local_id) is connection:
                self._flush(connection, now, outputs)
        return outputs

    def _check_sizes(self, batch: list[Input]) -> None:
        most = self._config.message_bytes_max
        for item in batch:
            if type(item) is SendMessage and len(item.payload) > most:
                raise LimitExceeded(
                    f"a message has {len(item.payload)} bytes, at most {most} can be sent", "message_bytes_max"
                )

    def _flush(self, connection: Connection, now: float, outputs: Outputs) -> None:
        if connection.dial_due(now):
            self._streams.dial(connection, outputs)
        connection.flush(now, outputs)

    def _take_request(self, item: Input, now: float, outputs: Outputs) -> Connection | None:
        """Process a request of the owner, or a timer; return the connection that it concerned."""
        match item:
            case OpenConnection():
                return self._open(item, now, outputs)
            case CloseConnection(local_id=local_id):
                self._allocated.discard(local_id)
                self._remove(local_id, now, outputs)
            case TimerFired(key=(kind, int(number))) if kind == HELLO_TIMER:
                self._streams.expired(number, now, outputs)
            case TimerFired(key=int(local_id)):
                connection = self._connections.get(local_id)
                if connection is not None:
                    connection.timer_fired()
                return connection
            case Consumed() | FinishSending() | ChangePath() | MovedHere() | Probe():
                connection = self._connections.get(item.local_id)
                if connection is not None:
                    _ask(connection, item, now, outputs)
                return connection
        return None

    def _open(self, item: OpenConnection, now: float, outputs: Outputs) -> Connection:
        self._allocated.discard(item.local_id)
        self._remove(item.local_id, now, outputs)
        connection = self._connections[item.local_id] = Connection(
            item, self._config, self.counters, self._detectors, now, outputs
        )
        self._streams.opened(connection, now, outputs)
        return connection

    def _remove(self, local_id: int, now: float, outputs: Outputs) -> None:
        connection = self._connections.pop(local_id, None)
        if connection is not None:
            connection.close(now, outputs)

    def _reset(self, connection: Connection, now: float, outputs: Outputs) -> None:
        """Remove a connection that the peer does not know."""
        self._remove(connection.local_id, now, outputs)
        outputs.append(ConnectionReset(connection.local_id))


def _ask(connection: Connection, item: _Request, now: float, outputs: Outputs) -> None:
    match item:
        case Consumed(messages=messages):
            connection.receiver.consume(messages)
        case FinishSending():
            if not connection.failed:
                connection.sender.finish()
        case ChangePath(remote=remote, generation=generation):
            connection.change_path(remote, generation, now, outputs)
        case MovedHere(generation=generation):
            connection.moved_here(generation, now, outputs)
        case Probe():
            connection.probe(now, outputs)
