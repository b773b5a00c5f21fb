"""Reliable UDP without signalling: connections are opened on the socket that they then use (SPEC F-09).

::

    dialling side                                          accepting side
        │ HELLO     id, public key, MAC        ──────────▶     │  half open: has keys, sends nothing
        │           repeated with back-off                     │
        │ WELCOME   ids, public key, MAC       ◀──────────     │  again for the same HELLO
      Opened                                                   │
        │ first packet, sealed                 ──────────▶   Opened

Both sides have the secret beforehand. It authenticates HELLO and WELCOME (:mod:`~wanderbus.rudp.handshake_messages`),
and is the salt of the keys, so that a party without it can neither send nor decrypt. The X25519 keys are fresh for each
connection, so that a secret learnt later does not decrypt a recording.

Unauthentic datagrams are dropped, and no answer is longer than its request. A stranger may replay a recorded HELLO; it
then costs a half-open connection. Few of these are kept: a new one replaces the oldest, and each expires unless a
packet sealed with its keys proves that its dialler exists.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from wanderbus.detection import MakeDetector
from wanderbus.errors import RemoteProtocolError
from wanderbus.machine import (
    Address,
    CancelTimer,
    DatagramReceived,
    Input,
    RandomSource,
    SendDatagram,
    SetTimer,
    TimerFired,
)
from wanderbus.parameters.transports import RudpConfig
from wanderbus.rudp.endpoint import Endpoint
from wanderbus.rudp.frames import PLAIN, SEALED, decode_header
from wanderbus.rudp.handshake_messages import HELLO, NO_KEY, WELCOME, OpeningSecret, decode_opening
from wanderbus.rudp.interface import Counters, OpenConnection, Secrets
from wanderbus.rudp.keys import KEY_BYTES, KeyPair
from wanderbus.rudp.openings import Dial, Opened, OpenFailed, Opening, OpeningCounters
from wanderbus.rudp.sealing import Sealer
from wanderbus.transport import CloseConnection, ConnectionReset, Outputs, Probe

HALF_OPEN_MAX: Final = 64
"""Maximum number of connections whose dialler has sent nothing since its HELLO."""

HALF_OPEN_S: Final = 10.0
"""Time that such a connection is kept, seconds: some repetitions of the dialler's first packet."""

_KIND_OFFSET: Final = 16
_HELLO_TIMER: Final = "hello"
_HALF_OPEN_TIMER: Final = "half open"
_IDS = struct.Struct("!QQ")


class _Dialled:
    """A HELLO that waits for its WELCOME; without ``keys`` in plain mode."""

    __slots__ = ("hello", "keys", "remote", "retries", "timeout_s")

    def __init__(self, remote: Address, keys: KeyPair | None, hello: bytes, retries: int, timeout_s: float) -> None:
        self.remote = remote
        self.keys = keys
        self.hello = hello
        self.retries = retries
        self.timeout_s = timeout_s


class _HalfOpen:
    """A connection after its WELCOME and before its first packet; without ``secrets`` and ``opener`` in plain mode."""

    __slots__ = ("expires_at", "hello", "opener", "remote", "secrets", "welcome")

    def __init__(
        self,
        hello: Opening,
        welcome: bytes,
        remote: Address,
        secrets: Secrets | None,
        opener: Sealer | None,
        expires_at: float,
    ) -> None:
        self.hello = hello
        self.welcome = welcome
        self.remote = remote
        self.secrets = secrets
        self.opener = opener
        self.expires_at = expires_at


class DirectEndpoint:
    """An :class:`Endpoint` that opens its connections itself: by :class:`Dial`, or by a HELLO of a peer.

    It has the interface of an endpoint, whose inputs and outputs it forwards. It accepts up to ``connections_max``
    concurrent connections of peers; by default none.

    :param secret: the secret that the peer has too; None only if nothing is to be sealed
    :param sealed: False for plain mode, which the peer must then use as well
    :param make_detector: returns the failure detector of each connection; None for the default (SPEC G-26)
    """

    def __init__(
        self,
        random: RandomSource,
        config: RudpConfig,
        *,
        secret: bytes | None,
        sealed: bool = True,
        connections_max: int = 0,
        socket: str = "data",
        make_detector: MakeDetector | None = None,
    ) -> None:
        if sealed and not secret:
            raise ValueError("sealed connections need a secret")
        self.openings = OpeningCounters()
        self._endpoint = Endpoint(
            random, config, socket=socket, reset_key=random.token(KEY_BYTES), make_detector=make_detector
        )
        self._random = random
        self._config = config
        self._secret = OpeningSecret(secret or b"", sealed=sealed)
        self._sealed = sealed
        self._connections_max = connections_max
        self._socket = socket
        self._dialled: dict[int, _Dialled] = {}
        self._half_open: dict[int, _HalfOpen] = {}
        self._accepted: dict[int, Opening] = {}
        self._welcomed: dict[bytes, int] = {}

    @property
    def counters(self) -> Counters:
        """Return the counters of all connections."""
        return self._endpoint.counters

    def allocate(self) -> int:
        """Return a fresh local id, for :class:`Dial`."""
        return self._endpoint.allocate()

    def rtt_s(self, local_id: int) -> float | None:
        """Return the smoothed round trip of the current path in seconds; None if unknown."""
        return self._endpoint.rtt_s(local_id)

    def unsent_bytes(self, local_id: int) -> int:
        """Return the bytes that wait to be sent for the first time; 0 for an unknown id."""
        return self._endpoint.unsent_bytes(local_id)

    def unconfirmed_bytes(self, local_id: int) -> int:
        """Return the bytes that wait to be sent or acknowledged; 0 for an unknown id."""
        return self._endpoint.unconfirmed_bytes(local_id)

    def all_confirmed(self, local_id: int) -> bool:
        """Return whether the peer has acknowledged everything that was sent or queued; True for an unknown id."""
        return self._endpoint.all_confirmed(local_id)

    def all_acknowledged(self, local_id: int) -> bool:
        """Return whether every packet that needs an ACK was acknowledged; see :meth:`Endpoint.all_acknowledged`."""
        return self._endpoint.all_acknowledged(local_id)

    def step(self, inputs: Iterable[Input], now: float) -> Outputs:
        """Process a batch of inputs at monotonic second ``now``; see :meth:`Endpoint.step`."""
        outputs: Outputs = []
        onward: list[Input] = []
        for item in inputs:
            if type(item) is DatagramReceived:
                data = item.data
                if len(data) > _KIND_OFFSET and HELLO <= data[_KIND_OFFSET] <= WELCOME:
                    self._take_opening(item, now, outputs, onward)
                    continue
                if self._half_open and not self._admit(item, outputs, onward):
                    continue
            elif type(item) is Dial:
                self._dial(item, now, outputs)
                continue
            elif type(item) is CloseConnection:
                self._forget(item.local_id, outputs)
            elif type(item) is TimerFired and type(item.key) is tuple:
                self._timer_fired(item.key, now, outputs, onward)
                continue
            onward.append(item)
        for output in self._endpoint.step(onward, now):
            if type(output) is ConnectionReset:
                self._forget(output.local_id, outputs)
            outputs.append(output)
        return outputs

    def _dial(self, item: Dial, now: float, outputs: Outputs) -> None:
        keys = KeyPair(self._random.token(KEY_BYTES)) if self._sealed else None
        hello = self._secret.hello(item.local_id, keys.public if keys else NO_KEY)
        dialled = _Dialled(item.remote, keys, hello, 0, self._config.initial_timeout_s)
        self._dialled[item.local_id] = dialled
        self._send_hello(item.local_id, dialled, now, outputs)

    def _send_hello(self, local_id: int, dialled: _Dialled, now: float, outputs: Outputs) -> None:
        outputs.append(SendDatagram(self._socket, dialled.remote, dialled.hello))
        outputs.append(SetTimer((_HELLO_TIMER, local_id), now + dialled.timeout_s))

    def _timer_fired(self, key: tuple[str, int], now: float, outputs: Outputs, onward: list[Input]) -> None:
        kind, local_id = key
        if kind == _HALF_OPEN_TIMER:
            self._expire(now, outputs, onward)
        elif (dialled := self._dialled.get(local_id)) is None:
            return
        elif dialled.retries < self._config.retries_max:
            dialled.retries += 1
            dialled.timeout_s = min(dialled.timeout_s * self._config.backoff_factor, self._config.timeout_max_s)
            self._send_hello(local_id, dialled, now, outputs)
        else:
            self._give_up(local_id, False, outputs, onward)

    def _give_up(self, local_id: int, refused: bool, outputs: Outputs, onward: list[Input]) -> None:
        self._forget(local_id, outputs)
        onward.append(CloseConnection(local_id))
        outputs.append(OpenFailed(local_id, refused))

    def _take_opening(self, item: DatagramReceived, now: float, outputs: Outputs, onward: list[Input]) -> None:
        try:
            opening = decode_opening(item.data)
        except RemoteProtocolError:
            self.openings.malformed += 1
            return
        if opening.kind == WELCOME:
            self._take_welcome(opening, outputs, onward)
        elif not self._connections_max:
            self.openings.stale += 1
        elif not self._secret.genuine(opening):
            self.openings.forged += 1
        else:
            self._take_hello(opening, item.source, now, outputs, onward)

    def _take_welcome(self, welcome: Opening, outputs: Outputs, onward: list[Input]) -> None:
        """Open the dialled connection and send a PING, so that the peer soon receives a first packet."""
        local_id, remote_id = welcome.destination_id, welcome.source_id
        dialled = self._dialled.get(local_id)
        if dialled is None:
            self.openings.stale += 1
            return
        if not self._secret.genuine(welcome, dialled.hello):
            self.openings.forged += 1
            return
        if not remote_id:
            self._give_up(local_id, True, outputs, onward)
            return
        try:
            secrets = self._secrets(dialled.keys, welcome.public, local_id, remote_id, first=True)
        except RemoteProtocolError:
            self.openings.forged += 1
            return
        self._forget(local_id, outputs)
        onward += (OpenConnection(local_id, remote_id, dialled.remote, 0, secrets), Probe(local_id))
        outputs.append(Opened(local_id, dialled.remote))

    def _take_hello(self, hello: Opening, source: Address, now: float, outputs: Outputs, onward: list[Input]) -> None:
        """Answer an authentic HELLO, a repeated one with the same WELCOME; drop our own HELLO if it is reflected."""
        known = self._welcomed.get(hello.data)
        if known is not None and (half_open := self._half_open.get(known)) is not None:
            outputs.append(SendDatagram(self._socket, source, half_open.welcome))
        elif known is not None or hello.source_id in self._dialled:
            self.openings.stale += 1
        elif len(self._accepted) >= self._connections_max:
            self.openings.refused += 1
            outputs.append(SendDatagram(self._socket, source, self._secret.refusal(hello)))
        else:
            self._welcome(hello, source, now, outputs, onward)

    def _welcome(self, hello: Opening, source: Address, now: float, outputs: Outputs, onward: list[Input]) -> None:
        local_id = self._endpoint.allocate()
        keys = KeyPair(self._random.token(KEY_BYTES)) if self._sealed else None
        try:
            secrets = self._secrets(keys, hello.public, local_id, hello.source_id, first=False)
        except RemoteProtocolError:
            self.openings.forged += 1
            onward.append(CloseConnection(local_id))
            return
        self._make_room(outputs, onward)
        welcome = self._secret.welcome(hello, local_id, keys.public if keys else NO_KEY)
        if not self._half_open:
            outputs.append(SetTimer((_HALF_OPEN_TIMER, 0), now + HALF_OPEN_S))
        opener = Sealer(secrets, self._config.rekey_packets) if secrets else None
        self._half_open[local_id] = _HalfOpen(hello, welcome, source, secrets, opener, now + HALF_OPEN_S)
        self._welcomed[hello.data] = local_id
        outputs.append(SendDatagram(self._socket, source, welcome))

    def _secrets(
        self, keys: KeyPair | None, public: bytes, local_id: int, remote_id: int, *, first: bool
    ) -> Secrets | None:
        if keys is None:
            return None
        ids = (local_id, remote_id) if first else (remote_id, local_id)
        return keys.secrets(public, salt=self._secret.salt, context=_IDS.pack(*ids), first=first)

    def _make_room(self, outputs: Outputs, onward: list[Input]) -> None:
        """End the oldest half-open connection if there would be too many."""
        room = min(HALF_OPEN_MAX, self._connections_max - len(self._accepted))
        if len(self._half_open) >= room:
            self._end_half_open(next(iter(self._half_open)), outputs, onward)

    def _end_half_open(self, local_id: int, outputs: Outputs, onward: list[Input]) -> None:
        self.openings.expired += 1
        self._forget(local_id, outputs)
        onward.append(CloseConnection(local_id))

    def _expire(self, now: float, outputs: Outputs, onward: list[Input]) -> None:
        for local_id, half_open in list(self._half_open.items()):
            if half_open.expires_at > now:
                outputs.append(SetTimer((_HALF_OPEN_TIMER, 0), half_open.expires_at))
                return
            self._end_half_open(local_id, outputs, onward)

    def _admit(self, item: DatagramReceived, outputs: Outputs, onward: list[Input]) -> bool:
        """Open the half-open connection that ``item`` belongs to, if any; return False if the packet is not authentic.

        The path stays that of the HELLO: if the packet has another source, the endpoint will challenge it first.
        """
        data = item.data
        local_id = int.from_bytes(data[:8], "big")
        half_open = self._half_open.get(local_id)
        if half_open is None:
            return True
        if not _is_first_packet(half_open, data):
            self.openings.forged += 1
            return False
        del self._half_open[local_id]
        remote_id = half_open.hello.source_id
        self._accepted[local_id] = half_open.hello
        onward.append(OpenConnection(local_id, remote_id, half_open.remote, 0, half_open.secrets))
        outputs.append(Opened(local_id, half_open.remote))
        return True

    def _forget(self, local_id: int, outputs: Outputs) -> None:
        """Discard the state of a connection here; the endpoint may still have the connection."""
        if self._dialled.pop(local_id, None) is not None:
            outputs.append(CancelTimer((_HELLO_TIMER, local_id)))
        half_open = self._half_open.pop(local_id, None)
        hello = half_open.hello if half_open else self._accepted.pop(local_id, None)
        if hello is not None:
            del self._welcomed[hello.data]


def _is_first_packet(half_open: _HalfOpen, data: bytes) -> bool:
    """Return whether the dialler sent this packet: it has the keys or, in plain mode, at least knows both ids."""
    try:
        _, source_id, kind, epoch, _, number = decode_header(data)
    except RemoteProtocolError:
        return False
    if source_id != half_open.hello.source_id:
        return False
    if half_open.opener is None:
        return kind == PLAIN
    return kind == SEALED and half_open.opener.open(data, number, epoch) is not None
