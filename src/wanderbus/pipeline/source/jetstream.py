"""Messages of a NATS JetStream stream by sequence number, read synchronously (SPEC T-06).

Sequence numbers rise, but a message may have been deleted, so a range may have fewer messages than numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit
from zlib import crc32

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoServersError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from wanderbus.errors import StorageError, WanderbusError
from wanderbus.pipeline.source.options import StreamOptions

Answer = TypeVar("Answer")

MESSAGES_AT_ONCE: Final = 4_096

_CONNECT_S_MAX: Final = 5
_CONNECT_PAUSE_S: Final = 0.1
_FETCH_S_MAX: Final = 10.0
_SEQUENCE_TOKEN: Final = {9: 5}
"""Place of the sequence number in a reply subject, by its number of tokens; from 11 tokens on it is the seventh."""
_SEQUENCE_TOKEN_LATER: Final = 7


class Extent(NamedTuple):
    """The messages that a stream has: those with sequence numbers ``first..end-1``."""

    first: int
    end: int


class Messages(NamedTuple):
    """Messages in order, with their sequence numbers."""

    sequences: list[int]
    payloads: list[bytes | None]


def extent(options: StreamOptions) -> Extent:
    """Return which messages the stream has; ``StorageError`` in one line if it cannot be read."""

    async def ask() -> Extent:
        client = await _connected(options)
        try:
            state = (await client.jetstream().stream_info(options.stream)).state
        finally:
            await client.close()
        return Extent(max(state.first_seq, 1), state.last_seq + 1)

    return _asked(options, ask())


def checksum_before(options: StreamOptions, sequence: int) -> int | None:
    """Return the CRC-32 of the message before ``sequence``; None if the stream has no such message (any more)."""

    async def ask() -> int | None:
        client = await _connected(options)
        try:
            return crc32((await client.jetstream().get_msg(options.stream, sequence - 1)).data or b"")
        except NotFoundError:
            return None
        finally:
            await client.close()

    return _asked(options, ask()) if sequence > 1 else None


def messages(options: StreamOptions, first: int, end: int) -> Iterator[Messages]:
    """Yield the messages with sequence numbers ``first..end-1`` that the stream still has, in groups."""
    loop = asyncio.new_event_loop()
    reading = _Reading(options, first, end)
    try:
        loop.run_until_complete(reading.open())
        while group := loop.run_until_complete(reading.next_group()):
            yield group
    except WanderbusError:
        raise
    except (NatsError, OSError) as error:
        raise _unreadable(options, error) from None
    finally:
        loop.run_until_complete(reading.close())
        loop.close()


def place_of(options: StreamOptions) -> str:
    """Return the name of the stream for errors, without credentials."""
    parts = urlsplit(options.url)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or 4222}/{options.stream}"


def _asked(options: StreamOptions, question: Coroutine[Any, Any, Answer]) -> Answer:
    """Return the answer of the server; ``StorageError`` in one line if there is none."""
    try:
        return asyncio.run(question)
    except WanderbusError:
        raise
    except (NatsError, OSError) as error:
        raise _unreadable(options, error) from None


class _Reading:
    """An ephemeral consumer from one sequence number on."""

    def __init__(self, options: StreamOptions, first: int, end: int) -> None:
        self._options = options
        self._next = first
        self._end = end
        self._client: Client | None = None
        self._pending = 0

    async def open(self) -> None:
        """Connect, and make the consumer."""
        self._client = await _connected(self._options)
        self._consumer = await self._client.jetstream().pull_subscribe(
            "",
            stream=self._options.stream,
            config=ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=self._next,
                ack_policy=AckPolicy.NONE,
                mem_storage=True,
            ),
        )
        self._pending = (await self._consumer.consumer_info()).num_pending or 0

    async def next_group(self) -> Messages | None:
        """Return the next messages of the range; None after the last one."""
        group = Messages([], [])
        while not group.sequences and self._pending and self._next < self._end:
            count = min(MESSAGES_AT_ONCE, self._end - self._next, self._pending)
            try:
                fetched = await self._consumer.fetch(count, timeout=_FETCH_S_MAX)
            except NatsTimeoutError:
                raise StorageError(
                    f"{place_of(self._options)} sends nothing after message {self._next - 1}; see the server's log"
                ) from None
            for message in fetched:
                sequence, self._pending = _numbers(message)
                self._next = sequence + 1
                if sequence < self._end:
                    group.sequences.append(sequence)
                    group.payloads.append(message.data)
        return group if group.sequences else None

    async def close(self) -> None:
        """Leave the server, which then forgets the consumer."""
        if self._client is not None:
            await self._client.close()


def _numbers(message: Msg) -> tuple[int, int]:
    """Return the sequence number of a message, and the number of messages after it."""
    tokens = message.reply.split(".")
    place = _SEQUENCE_TOKEN.get(len(tokens), _SEQUENCE_TOKEN_LATER)
    return int(tokens[place]), int(tokens[place + 3])


async def _connected(options: StreamOptions) -> Client:
    errors: list[Exception] = []

    async def on_error(error: Exception) -> None:
        errors.append(error)

    try:
        return await nats.connect(
            options.url,
            allow_reconnect=False,
            connect_timeout=_CONNECT_S_MAX,
            # The client tries for ever where this is not above 0, also without reconnection.
            max_reconnect_attempts=1,
            reconnect_time_wait=_CONNECT_PAUSE_S,
            error_cb=on_error,
        )
    except NoServersError:
        raise _unreadable(options, errors[-1]) from None


def _unreadable(options: StreamOptions, error: Exception) -> StorageError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return StorageError(
        f"{place_of(options)} cannot be read: {reason}; check the server, and the options url and stream"
    )
