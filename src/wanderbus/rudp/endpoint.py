"""Reliable UDP on one local socket: many connections, told apart by their ids (SPEC F, DESIGN 6.1 to 6.3).

A datagram belongs to a connection by its pair of ids, whatever address it came from: a peer that moved goes on
being understood. Where answers go is changed by :class:`~wanderbus.rudp.interface.ChangePath` alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from wanderbus.errors import LimitExceeded, RemoteProtocolError
from wanderbus.machine import DatagramReceived, Input, Output, RandomSource, SendDatagram, TimerFired
from wanderbus.rudp.config import RudpConfig
from wanderbus.rudp.connection import Connection
from wanderbus.rudp.frames import PACKET, decode_ids, encode_reset
from wanderbus.rudp.interface import (
    ChangePath,
    CloseConnection,
    ConnectionFailed,
    ConnectionReset,
    Counters,
    OpenConnection,
    Probe,
    SendMessage,
)

_DEFAULT_CONFIG = RudpConfig()

Touched = dict[int, Connection]
"""The connections that a batch concerned, in the order in which it came to them."""


class Endpoint:
    """The machine; timers are keyed by local id, one for each connection."""

    def __init__(self, random: RandomSource, config: RudpConfig = _DEFAULT_CONFIG, *, socket: str = "data") -> None:
        self.counters = Counters()
        self._random = random
        self._config = config
        self._socket = socket
        self._connections: dict[int, Connection] = {}
        self._allocated: set[int] = set()

    def allocate(self) -> int:
        """Return a fresh local id: 63 bits that nobody can guess, never 0.

        Until it is opened or closed, what arrives for it is dropped without a RESET: the peer may have learnt the
        id in the answer that has not reached us yet.
        """
        while True:
            local_id = int.from_bytes(self._random.token(8), "big") >> 1
            if local_id and local_id not in self._connections and local_id not in self._allocated:
                self._allocated.add(local_id)
                return local_id

    def rtt_s(self, local_id: int) -> float | None:
        """Return the smoothed round trip of the present path in seconds; None if unknown."""
        connection = self._connections.get(local_id)
        return connection.sender.round_trip.smoothed_s if connection else None

    def unsent_bytes(self, local_id: int) -> int:
        """Return how much waits to be sent for the first time, in bytes of DATA frames; 0 for an unknown id."""
        connection = self._connections.get(local_id)
        return connection.sender.unsent_bytes if connection else 0

    def all_confirmed(self, local_id: int) -> bool:
        """Return whether the peer has acknowledged everything that was to be sent; True for an unknown id."""
        connection = self._connections.get(local_id)
        return connection is None or connection.sender.all_confirmed

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take a batch of inputs at monotonic second ``now``.

        :raises LimitExceeded: a message to send exceeds ``message_bytes_max``; nothing of the batch was done.
        """
        batch = list(inputs)
        self._check_sizes(batch)
        outputs: list[Output] = []
        touched: Touched = {}
        for item in batch:
            if type(item) is SendMessage:
                connection = self._connections.get(item.local_id)
                if connection is not None:
                    connection.sender.queue(item.payload)
                    touched[item.local_id] = connection
            elif type(item) is DatagramReceived:
                self._take_datagram(item, now, outputs, touched)
            else:
                self._take_request(item, outputs, touched)
        for local_id, connection in touched.items():
            if not connection.flush(now, outputs):
                self._remove(local_id, touched=None, outputs=outputs)
                outputs.append(ConnectionFailed(local_id))
        return outputs

    def _check_sizes(self, batch: list[Input]) -> None:
        most = self._config.message_bytes_max
        for item in batch:
            if type(item) is SendMessage and len(item.payload) > most:
                raise LimitExceeded(
                    f"a message has {len(item.payload)} bytes, at most {most} can be sent", "message_bytes_max"
                )

    def _take_datagram(self, item: DatagramReceived, now: float, outputs: list[Output], touched: Touched) -> None:
        data = item.data
        if item.socket != self._socket:
            return
        try:
            if len(data) > self._config.datagram_bytes_max:
                raise RemoteProtocolError("a datagram is too long", status=None)
            local_id, remote_id, kind = decode_ids(data)
        except RemoteProtocolError:
            self.counters.malformed += 1
            return
        connection = self._connections.get(local_id)
        if connection is None:
            self._answer_unknown(item, local_id, remote_id, kind, outputs)
        elif connection.remote_id != remote_id:
            self.counters.wrong_pair += 1
        elif kind == PACKET:
            connection.receive(data, now, outputs)
            touched[local_id] = connection
        else:
            self._remove(local_id, touched, outputs)
            outputs.append(ConnectionReset(local_id))

    def _answer_unknown(
        self, item: DatagramReceived, local_id: int, remote_id: int, kind: int, outputs: list[Output]
    ) -> None:
        """Answer a packet for an id that is not open with a RESET.

        A RESET is shorter than any packet and is never answered, so it neither amplifies nor loops (RFC 9000 10.3.3).
        """
        if local_id in self._allocated:
            self.counters.early += 1
            return
        self.counters.unknown += 1
        if kind == PACKET:
            self.counters.resets += 1
            outputs.append(SendDatagram(self._socket, item.source, encode_reset(remote_id, local_id)))

    def _take_request(self, item: Input, outputs: list[Output], touched: Touched) -> None:
        if isinstance(item, OpenConnection):
            self._open(item, outputs, touched)
            return
        if isinstance(item, CloseConnection):
            self._allocated.discard(item.local_id)
            self._remove(item.local_id, touched, outputs)
            return
        local_id: object
        if isinstance(item, TimerFired):
            local_id = item.key
        elif isinstance(item, ChangePath | Probe):
            local_id = item.local_id
        else:
            return
        connection = self._connections.get(local_id) if isinstance(local_id, int) else None
        if connection is None:
            return
        touched[connection.local_id] = connection
        match item:
            case TimerFired():
                connection.timer_fired()
            case ChangePath(remote=remote, generation=generation):
                connection.change_path(remote, generation)
            case Probe():
                connection.sender.ping()

    def _open(self, item: OpenConnection, outputs: list[Output], touched: Touched) -> None:
        self._allocated.discard(item.local_id)
        self._remove(item.local_id, touched, outputs)
        self._connections[item.local_id] = Connection(item, self._config, self._socket, self.counters)

    def _remove(self, local_id: int, touched: Touched | None, outputs: list[Output]) -> None:
        """Forget a connection, for the rest of this batch as well."""
        connection = self._connections.pop(local_id, None)
        if connection is None:
            return
        connection.close(outputs)
        if touched is not None:
            touched.pop(local_id, None)
