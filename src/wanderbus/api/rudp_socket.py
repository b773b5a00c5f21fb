"""Socket of reliable UDP and its channels, the implementation of :mod:`wanderbus.api.rudp`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Self

import msgspec

from wanderbus.detection import DetectorFailed, MakeDetector
from wanderbus.errors import (
    Closed,
    ConfigurationError,
    ConnectionLost,
    LimitExceeded,
    NoResponse,
    Refused,
    Unreachable,
    WanderbusError,
)
from wanderbus.machine import Address, Input, Output, shown
from wanderbus.rudp import PathChanged, RudpConfig
from wanderbus.rudp.handshake import DirectEndpoint
from wanderbus.rudp.interface import Counters
from wanderbus.rudp.openings import Dial, Opened, OpenFailed
from wanderbus.runtime.net.driver import Driver
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.transport import (
    CloseConnection,
    ConnectionFailed,
    ConnectionReset,
    Consumed,
    FinishSending,
    MessageReceived,
    PeerFinished,
    Probe,
    SendMessage,
)

_log = logging.getLogger("wanderbus.rudp")

UNSENT_BYTES_MAX: Final = 2**18
"""Bytes of unsent messages above which :meth:`Channel.send` waits."""

CONSUMED_MESSAGES: Final = 64
CONSUMED_BYTES: Final = 2**16
"""Bytes that are consumed before the peer is informed; small against the thousand datagrams that it may send ahead."""

CLOSE_S_MAX: Final = 5.0
"""Time for which :meth:`Channel.close` waits for a further acknowledgement, in seconds."""

LINGER_S: Final = 1.0
"""Time for which it then waits for the peer's close, and acknowledges it, in seconds."""

KEEPALIVE_S: Final = 5.0
"""Default keepalive interval of an idle channel, in seconds."""

PROBE_AFTER_S: Final = (0.0, 0.1, 0.3, 0.7)
"""Delays of the probes after a change of address, in seconds."""

_SOCKET: Final = "data"


class Channel:
    """One connection; made by :func:`connect` or returned by a :class:`Listener`. Leaving its block closes it.

    A channel whose peer is unreachable, or no longer knows it, raises :class:`Unreachable` or
    :class:`ConnectionLost` from then on; messages received before can still be read.
    """

    def __init__(self, socket: ChannelSocket, local_id: int, remote: Address) -> None:
        self.remote = remote
        """Address of the peer, as last verified."""
        self._socket = socket
        self._local_id = local_id
        self._inbox: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._read_messages = 0
        self._read_bytes = 0
        self._unsent_bytes = 0
        self._waits: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._peer_finished = False
        self._closing = False
        self._error: WanderbusError | None = None

    @property
    def rtt_s(self) -> float | None:
        """Return the smoothed round trip of the present path in seconds; None before the first one."""
        return self._socket.endpoint.rtt_s(self._local_id)

    @property
    def counters(self) -> Counters:
        """Return the numbers of sent, repeated and discarded packets of the socket; a listener's channels share it."""
        return self._socket.endpoint.counters

    async def send(self, message: bytes) -> None:
        """Enqueue ``message`` for delivery; waits while too much is unsent, but not for its arrival.

        :raises LimitExceeded: it is longer than ``message_bytes_max`` of the configuration
        :raises Unreachable: the peer does not respond any more
        :raises Closed: the channel is closed, on either side
        """
        if len(message) > self._socket.config.message_bytes_max:
            raise LimitExceeded(
                f"a message has {len(message)} bytes, at most {self._socket.config.message_bytes_max} can be sent",
                "message_bytes_max",
            )
        if self._unsent_bytes >= self._socket.unsent_bytes_max:
            await self._until(self._has_room)
        if self._closing or self._error is not None:
            self._check()
        self._unsent_bytes += len(message) + 1
        self._socket.feed(self, SendMessage(self._local_id, message))

    async def drain(self) -> None:
        """Wait until the peer has acknowledged everything; errors as for :meth:`send`."""
        await self._until(self._is_settled)
        self._check()

    async def close(self) -> None:
        """Wait until everything is acknowledged, close the channel on both sides, and drop it.

        :raises NoResponse: for 5 s nothing more was acknowledged, so the peer may lack the end
        :raises ConnectionLost: the peer no longer knew the channel before everything was acknowledged
        """
        if self._closing:
            return
        self._closing = True
        try:
            if self._error is None:
                await self._finish()
        finally:
            self._abandon(Closed("the channel is closed"))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._inbox:
            if self._peer_finished or (self._closing and self._error is not None):
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            self._arrived.clear()
            await self._arrived.wait()
        message = self._inbox.popleft()
        self._read_messages += 1
        self._read_bytes += len(message)
        if self._read_messages >= CONSUMED_MESSAGES or self._read_bytes >= CONSUMED_BYTES:
            self._socket.feed(self, Consumed(self._local_id, self._read_messages))
            self._read_messages = self._read_bytes = 0
        return message

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the channel; after an exception without a close to the peer, so that the data do not seem complete."""
        if kind is None:
            await self.close()
        else:
            self._abandon(Closed("the channel is closed"))

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closing:
            raise Closed("the channel is closed; open another")

    def _has_room(self) -> bool:
        return self._unsent_bytes < self._socket.unsent_bytes_max // 2

    def _is_settled(self) -> bool:
        return not self._unsent_bytes and self._socket.endpoint.all_confirmed(self._local_id)

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds after a step of the machine, or the channel is closed."""
        if self._error is None and not condition():
            await self._next(condition)

    async def _next(self, condition: Callable[[], bool]) -> None:
        """Wait as :meth:`_until` does, but for at least one step, which processes the requests."""
        done = asyncio.get_running_loop().create_future()
        self._waits.append((condition, done))
        self._socket.watch(self)
        await done

    async def _finish(self) -> None:
        """Send the close and wait for its ACK; then wait a little, so that the peer can do the same.

        The ACK of the peer's close may be lost, so this side waits until the peer is known to have it. If the peer's
        close has arrived and everything is acknowledged, silence is no error: the peer may be gone.
        """
        unsettled = not self._is_settled()
        self._socket.feed(self, FinishSending(self._local_id))
        if not await self._settles(CLOSE_S_MAX if unsettled or not self._peer_finished else LINGER_S):
            self._error = NoResponse(
                f"{shown(self.remote)} did not acknowledge everything: silent for {CLOSE_S_MAX:g} s"
            )
        if self._error is not None:
            if unsettled or not self._peer_finished:
                raise self._error
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await self._until(lambda: self._peer_finished)
                await self._until(lambda: self._socket.endpoint.all_acknowledged(self._local_id))

    async def _settles(self, patience_s: float) -> bool:
        """Wait until all is acknowledged, or the channel is closed; False if no progress within ``patience_s``."""
        await self._next(lambda: True)
        left_bytes = math.inf
        while (now_left_bytes := self._socket.endpoint.unconfirmed_bytes(self._local_id)) < left_bytes:
            left_bytes = now_left_bytes
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._until(self._is_settled)
                    return True
        return False

    def _abandon(self, error: WanderbusError) -> None:
        """Drop the connection; every waiting caller gets ``error``."""
        if self._error is None:
            self._error = error
        self._socket.forget(self)
        self._arrived.set()
        self._check_waiters()

    def _check_waiters(self) -> bool:
        """Wake the callers whose condition holds now; return whether to check again after the next step."""
        if self._unsent_bytes:
            self._unsent_bytes = self._socket.endpoint.unsent_bytes(self._local_id)
        remaining = []
        for condition, done in self._waits:
            if done.done():
                continue
            if self._error is not None or condition():
                done.set_result(None)
            else:
                remaining.append((condition, done))
        self._waits = remaining
        return bool(self._unsent_bytes or remaining)

    def _on_report(self, report: Output) -> None:
        """Handle a report of the machine on this connection."""
        match report:
            case PathChanged(remote=remote):
                self.remote = remote
            case PeerFinished():
                self._peer_finished = True
                self._arrived.set()
                self._check_waiters()
            case ConnectionFailed(reason=reason):
                self._abandon(Unreachable(f"{shown(self.remote)}: {reason}; open a new channel when it can be reached"))
            case ConnectionReset():
                self._abandon(
                    ConnectionLost(f"{shown(self.remote)} has closed the channel or was restarted; open a new one")
                )


class ChannelSocket:
    """One socket, its machine, and its channels.

    To the driver it acts as the machine, so that it can act after each step.
    """

    def __init__(
        self,
        secret: bytes | None,
        sealed: bool,
        config: RudpConfig | None,
        connections_max: int = 0,
        make_detector: MakeDetector | None = None,
    ) -> None:
        wanted = config or RudpConfig(keepalive_s=KEEPALIVE_S)
        self.config = msgspec.structs.replace(wanted, consume_at_once=False, ack_delay_s=0.0)
        self.unsent_bytes_max = min(UNSENT_BYTES_MAX, self.config.send_queue_bytes_max // 4)
        self.endpoint = DirectEndpoint(
            SystemRandom(),
            self.config,
            secret=secret,
            sealed=sealed,
            connections_max=connections_max,
            socket=_SOCKET,
            make_detector=make_detector,
        )
        self.opened: asyncio.Queue[Channel | OpenFailed | None] = asyncio.Queue()
        """Results of opened connections in either direction; None when the socket is closed."""
        self._loop = asyncio.get_running_loop()
        self._driver = Driver(self, self._on_report, on_fault=self._end)
        self._channels: dict[int, Channel] = {}
        self._watched: set[Channel] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end(None)

    def bind(self, local: Address) -> Address:
        """Bind the UDP port; return its address."""
        try:
            return self._driver.bind({_SOCKET: local})[_SOCKET]
        except (OSError, OverflowError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise ConfigurationError(f"UDP port {shown(local)} cannot be used: {reason}; give another") from None

    async def dial(self, remote: Address, connect_s_max: float) -> Channel:
        """Open a connection to ``remote``."""
        self._driver.feed(Dial(self.endpoint.allocate(), remote))
        answer: Channel | OpenFailed | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(connect_s_max):
                answer = await self.opened.get()
        if isinstance(answer, Channel):
            return answer
        if answer is not None and answer.refused:
            raise Refused(f"{shown(remote)} has its maximum number of channels (connections_max); try again later")
        raise NoResponse(
            f"{shown(remote)} does not respond; check that a listener with the same secret and encryption runs there"
        )

    def feed(self, channel: Channel, request: Input) -> None:
        """Pass ``request`` to the machine, and let ``channel`` check its conditions afterwards."""
        self._driver.feed(request)
        self._watched.add(channel)

    def moved(self, channel: Channel) -> bool:
        """Probe the peer from our new address, several times, since the first packets may be lost."""
        for delay_s in PROBE_AFTER_S:
            self._loop.call_later(delay_s, self._driver.feed, Probe(channel._local_id))
        return True

    def watch(self, channel: Channel) -> None:
        """Let ``channel`` check its conditions after each step, as long as it needs that."""
        self._watched.add(channel)

    def forget(self, channel: Channel) -> None:
        """Remove ``channel`` and its connection."""
        self._watched.discard(channel)
        if self._channels.pop(channel._local_id, None) is not None:
            self._driver.feed(CloseConnection(channel._local_id))

    def step(self, inputs: Iterable[Input], now: float) -> Sequence[Output]:
        """Step the machine; then let the watched channels check their conditions."""
        outputs = self.endpoint.step(inputs, now)
        for channel in list(self._watched):
            if not channel._check_waiters():
                self._watched.discard(channel)
        return outputs

    def _on_report(self, report: Output) -> None:
        if type(report) is MessageReceived:  # the most frequent report, inlined for speed
            if (reader := self._channels.get(report.local_id)) is not None:
                reader._inbox.append(report.payload)
                reader._arrived.set()
            return
        if type(report) is DetectorFailed:
            _log.warning("failure detectors failed %s times so far: %s", report.count, report.reason)
            return
        local_id: int = report.local_id  # type: ignore[attr-defined]  # every other report of the machine has it
        if (known := self._channels.get(local_id)) is not None:
            known._on_report(report)
        elif isinstance(report, Opened):
            channel = self._channels[local_id] = Channel(self, local_id, report.remote)
            self.opened.put_nowait(channel)
        elif isinstance(report, OpenFailed):
            self.opened.put_nowait(report)

    def _end(self, fault: Exception | None) -> None:
        """Close the socket; callers of its channels get an error."""
        self._driver.close()
        self.opened.put_nowait(None)
        if fault is not None:
            _log.error("a reliable UDP socket was closed by an internal error", exc_info=fault)
        reason = f"after a fault: {fault!r}" if fault else "with its connect() or listen()"
        for channel in list(self._channels.values()):
            channel._abandon(Closed(f"the channel ended {reason}"))
