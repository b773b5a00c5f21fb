"""Endpoint of reliable UDP on one local socket: many connections, identified by ids (SPEC F, DESIGN 6.1 to 6.3).

A datagram belongs to a connection by its pair of ids, whatever its source address, so packets of a peer that moved are
still accepted. The address of the peer changes by :class:`~wanderbus.transport.ChangePath`, or by a challenge that the
peer answered from its new address.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from wanderbus.detection import Detectors, MakeDetector, RetriesDetector
from wanderbus.errors import LimitExceeded, RemoteProtocolError
from wanderbus.machine import Address, DatagramReceived, Input, RandomSource, SendDatagram, TimerFired
from wanderbus.parameters.transports import RudpConfig
from wanderbus.rudp.connection import Connection
from wanderbus.rudp.frames import PLAIN, RESET, TOKEN_BYTES, Header, decode_header, encode_reset, reset_token
from wanderbus.rudp.interface import (
    ChangePath,
    CloseConnection,
    ConnectionReset,
    Consumed,
    Counters,
    FinishSending,
    MovedHere,
    OpenConnection,
    Probe,
    SendMessage,
    ValidatePath,
)
from wanderbus.rudp.sealing import Awake
from wanderbus.transport import Outputs

_DEFAULT_CONFIG = RudpConfig()

Touched = dict[int, Connection]
"""Connections that a batch concerned, in the order of its inputs."""


class Endpoint:
    """The machine; timers are keyed by local id, one for each connection.

    ``reset_key`` is a secret that outlives the process: with the same key a restarted endpoint can prove to peers that
    it has lost their connections. Without a key only plain connections can be reset, by anybody who knows their ids.
    ``make_detector`` returns the failure detector of each connection; None for the default (SPEC G-26).
    """

    def __init__(
        self,
        random: RandomSource,
        config: RudpConfig = _DEFAULT_CONFIG,
        *,
        socket: str = "data",
        reset_key: bytes = b"",
        make_detector: MakeDetector | None = None,
    ) -> None:
        self.counters = Counters()
        self._random = random
        self._config = config
        self._socket = socket
        self._reset_key = reset_key
        self._detectors = Detectors(RetriesDetector(config.retries_max), make_detector)
        self._awake = Awake()
        self._connections: dict[int, Connection] = {}
        self._allocated: set[int] = set()

    def allocate(self) -> int:
        """Return a fresh local id: 63 unpredictable bits, never 0.

        Until it is opened or closed, packets for it are dropped without a RESET: the peer may have learnt the id from
        an answer that has not arrived here yet.
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
        """Return the smoothed round trip of the current path in seconds; None if unknown."""
        connection = self._connections.get(local_id)
        return connection.sender.round_trip.smoothed_s if connection else None

    def unsent_bytes(self, local_id: int) -> int:
        """Return the bytes of DATA frames that wait to be sent for the first time; 0 for an unknown id."""
        connection = self._connections.get(local_id)
        return connection.sender.unsent_bytes if connection else 0

    def unconfirmed_bytes(self, local_id: int) -> int:
        """Return the bytes of DATA frames that wait to be sent or acknowledged; 0 for an unknown id."""
        connection = self._connections.get(local_id)
        return connection.sender.unconfirmed_bytes if connection else 0

    def all_confirmed(self, local_id: int) -> bool:
        """Return whether the peer has acknowledged everything that was sent or queued; True for an unknown id."""
        connection = self._connections.get(local_id)
        return connection is None or connection.all_confirmed

    def reached(self, local_id: int) -> bool:
        """Return whether the peer has acknowledged a packet on the current path; False for an unknown id."""
        connection = self._connections.get(local_id)
        return connection is not None and connection.reached

    def proved_address(self, local_id: int) -> Address | None:
        """Return the peer's address once it has acknowledged a packet there; None before, and for an unknown id."""
        connection = self._connections.get(local_id)
        return connection.remote if connection is not None and connection.reached else None

    def all_acknowledged(self, local_id: int) -> bool:
        """Return whether every packet that needs an ACK was sent and acknowledged, PINGs too; True for an unknown id.

        After FINISH of both sides it proves that the peer knows that all of its data has arrived, so that this side may
        close.
        """
        connection = self._connections.get(local_id)
        return connection is None or connection.all_acknowledged

    def newest_acknowledged(self, local_id: int) -> int:
        """Return the highest number of a packet that the peer has acknowledged, -1 before the first or unknown."""
        connection = self._connections.get(local_id)
        return connection.sender.newest_acknowledged if connection else -1

    def step(self, inputs: Iterable[Input], now: float) -> Outputs:
        """Process a batch of inputs at monotonic second ``now``.

        :raises LimitExceeded: a message to send exceeds ``message_bytes_max``; nothing of the batch was done.
        """
        batch = list(inputs)
        self._check_sizes(batch)
        outputs: Outputs = []
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
                self._take_request(item, now, outputs, touched)
        for connection in touched.values():
            connection.flush(now, outputs)
        return outputs

    def _check_sizes(self, batch: list[Input]) -> None:
        most = self._config.message_bytes_max
        for item in batch:
            if type(item) is SendMessage and len(item.payload) > most:
                raise LimitExceeded(
                    f"a message has {len(item.payload)} bytes, at most {most} can be sent", "message_bytes_max"
                )

    def _take_datagram(self, item: DatagramReceived, now: float, outputs: Outputs, touched: Touched) -> None:
        data = item.data
        if item.socket != self._socket:
            return
        try:
            if len(data) > self._config.datagram_bytes_max:
                raise RemoteProtocolError("a datagram is too long", status=None)
            header = decode_header(data)
        except RemoteProtocolError:
            self.counters.malformed += 1
            return
        local_id = header[0]
        connection = self._connections.get(local_id)
        if connection is None:
            self._answer_unknown(item, header, outputs)
        elif connection.remote_id != header[1]:
            self.counters.wrong_pair += 1
        elif header[2] == RESET:
            self._take_reset(connection, reset_token(data), outputs, touched)
        else:
            connection.receive(header, data, item.source, now, outputs)
            touched[local_id] = connection

    def _take_reset(self, connection: Connection, token: bytes, outputs: Outputs, touched: Touched) -> None:
        """Accept a RESET with the token that the peer announced inside the connection (RFC 9000 10.3.1)."""
        if connection.peer_token is None or not hmac.compare_digest(token, connection.peer_token):
            self.counters.forged += 1
            return
        self._remove(connection.local_id, outputs, touched)
        outputs.append(ConnectionReset(connection.local_id))

    def _answer_unknown(self, item: DatagramReceived, header: Header, outputs: Outputs) -> None:
        """Answer a packet for an id that is not open with a RESET.

        A RESET is not longer than any packet and never answered, so it neither amplifies nor loops (RFC 9000 10.3.3).
        """
        local_id, remote_id, kind = header[:3]
        if local_id in self._allocated:
            self.counters.early += 1
        elif kind == RESET:
            self.counters.unsolicited += 1
        else:
            self.counters.unknown += 1
            token = self._token(local_id, sealed=kind != PLAIN)
            if token:
                self.counters.resets += 1
                outputs.append(SendDatagram(self._socket, item.source, encode_reset(remote_id, local_id, token)))

    def _token(self, local_id: int, *, sealed: bool) -> bytes:
        """Return the token of our RESET for ``local_id``; empty if a stranger could compute it too."""
        if sealed and not self._reset_key:
            return b""
        return hmac.digest(self._reset_key, local_id.to_bytes(8, "big"), "sha256")[:TOKEN_BYTES]

    def _take_request(self, item: Input, now: float, outputs: Outputs, touched: Touched) -> None:
        if isinstance(item, OpenConnection):
            self._open(item, now, outputs, touched)
            return
        if isinstance(item, CloseConnection):
            self._allocated.discard(item.local_id)
            self._remove(item.local_id, outputs, touched)
            return
        local_id: object = None
        if isinstance(item, TimerFired):
            local_id = item.key
        elif isinstance(item, ChangePath | Consumed | FinishSending | MovedHere | Probe | ValidatePath):
            local_id = item.local_id
        connection = self._connections.get(local_id) if isinstance(local_id, int) else None
        if connection is None:
            return
        if isinstance(item, Consumed):
            # Only a due grant is sent for it: an ACK still waits for the owner's answer.
            connection.receiver.consume(item.messages)
            if connection.receiver.is_grant_due:
                touched[connection.local_id] = connection
            return
        touched[connection.local_id] = connection
        match item:
            case TimerFired():
                connection.timer_fired()
            case ChangePath(remote=remote, generation=generation):
                connection.change_path(remote, generation)
            case ValidatePath(remote=remote, generation=generation):
                connection.validate_path(remote, generation, now)
            case MovedHere(generation=generation):
                connection.moved_here(generation)
            case FinishSending():
                connection.sender.finish()
            case Probe():
                connection.probe()

    def _open(self, item: OpenConnection, now: float, outputs: Outputs, touched: Touched) -> None:
        self._allocated.discard(item.local_id)
        self._remove(item.local_id, outputs, touched)
        token = self._token(item.local_id, sealed=item.secrets is not None)
        connection = Connection(
            item, self._config, self._socket, self.counters, self._random, token, self._detectors, self._awake
        )
        self._connections[item.local_id] = connection
        connection.start(now, outputs)
        if connection.sender.wants_to_send:
            touched[connection.local_id] = connection

    def _remove(self, local_id: int, outputs: Outputs, touched: Touched) -> None:
        """Remove a connection, also from the rest of this batch."""
        connection = self._connections.pop(local_id, None)
        if connection is not None:
            connection.close(outputs)
            touched.pop(local_id, None)
