"""An agent's publishes in flight: bounded in number, in the order of the calls, each with a response.

Events of an outbox wait there for their turn; the device's own is opened when it is first used (SPEC G-20).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from wanderbus import protocol
from wanderbus.client.error_mapping import publish_error
from wanderbus.client.machine.messages import PublishesDelayed, PublishEvent, PublishSettled
from wanderbus.client.reports import OutboxRefusal, OutboxSize
from wanderbus.errors import Closed, ConfigurationError, EventError, WanderbusError
from wanderbus.event import HELD_BACK, Event, EventId, Value, check_event, too_large, unencodable
from wanderbus.limits import EVENT_BYTES_MOST
from wanderbus.machine import Input
from wanderbus.runtime.system_random import suspended_s, wall_us
from wanderbus.subscription import check_event_subject
from wanderbus.tokens import TokenBucket, bucket_of_slices

if TYPE_CHECKING:
    from wanderbus.client.agent_sockets import AgentSockets
    from wanderbus.client.outbox import Outbox

_log = logging.getLogger("wanderbus.agent")

UNSETTLED_MAX: Final = 512
"""Most publishes in flight; further calls wait. It is below the number that the broker remembers per device."""


class PublishCalls:
    """Numbers events, and passes each response to the call that waits for it."""

    def __init__(self, rate: PublishRate, feed: Callable[[PublishEvent], None]) -> None:
        self._rate = rate
        self._feed = feed
        self.held_back = 0
        """Number of events that were not sent because nobody wants them."""
        self.wait_reason = ""
        """Reason for which the broker does not answer, if it has given one."""
        self._last = 0
        self._open: dict[int, asyncio.Future[EventId]] = {}
        self._slots = asyncio.Semaphore(UNSETTLED_MAX)

    @property
    def unsettled(self) -> int:
        """Return the number of publishes without a response."""
        return len(self._open)

    async def publish(self, event: bytes, check: Callable[[], None]) -> EventId:
        """Publish an event from :func:`encoded` in its turn; ``check`` is called just before and may raise an error."""
        await self._slots.acquire()
        try:
            await self._rate.turn()
            check()
        except BaseException:
            self._slots.release()
            raise
        self._last += 1
        settled: asyncio.Future[EventId] = asyncio.get_running_loop().create_future()
        self._open[self._last] = settled
        self._feed(PublishEvent(self._last, event, suspended_s=suspended_s()))
        return await settled

    def take(self, given: PublishSettled | PublishesDelayed, broker: str) -> None:
        """Pass a response of ``broker`` to the call that waits for it, or log why the broker has none yet."""
        if isinstance(given, PublishSettled):
            self._settle(given, broker)
            return
        if given.reason:
            _log.warning("publishes wait: %s", given.reason)
        elif self.wait_reason:
            _log.warning("publishes wait no longer")
        self.wait_reason = given.reason

    def _settle(self, publish: PublishSettled, broker: str) -> None:
        self.count(publish)
        settled = self._open.pop(publish.number)
        self._slots.release()
        if settled.done():
            return
        if publish.id is not None:
            settled.set_result(publish.id)
        else:
            settled.set_exception(publish_error(publish, broker))

    def count(self, publish: PublishSettled) -> None:
        """Count a response, also to an event of the outbox."""
        self.held_back += publish.id == HELD_BACK

    def close(self, reason: WanderbusError) -> None:
        """Fail all pending calls with ``reason``."""
        for settled in self._open.values():
            self._slots.release()
            if not settled.done():
                settled.set_exception(reason)
                settled.exception()
        self._open.clear()


def encoded(event: Event) -> bytes:
    """Return the bytes of ``event``, for the outbox and for the message; the event is encoded here only.

    :raises EventError: it is invalid
    :raises LimitExceeded: it is too large for every broker; the conversation knows the bound of its own
    """
    check_event(event)
    check_event_subject(event.subject)
    try:
        payload = protocol.encode_event(event)
    except (TypeError, ValueError, OverflowError) as error:
        raise unencodable(event) or EventError(f"the event cannot be encoded: {error}") from None
    if (size := len(payload)) > EVENT_BYTES_MOST:
        raise too_large(size, EVENT_BYTES_MOST)
    return payload


class PublishRate:
    """Gate that admits publishes in order, ``per_s`` per second; without limit if that is None.

    With a limit it admits nothing while the broker cannot be reached: those publishes would be sent in one burst later.
    """

    def __init__(self, per_s: float | None) -> None:
        if per_s is not None and not per_s > 0:
            raise ConfigurationError(f"publish_per_s must be above 0, not {per_s!r}")
        self._per_s = per_s
        self._bucket: TokenBucket | None = None
        self._order = asyncio.Lock()
        self._connected = asyncio.Event()
        self._closed = asyncio.Event()

    def connected(self, yes: bool) -> None:
        """Set whether the broker can be reached."""
        if yes:
            self._connected.set()
        else:
            self._connected.clear()

    def close(self) -> None:
        """Admit all waiting calls; they fail because the agent is closed."""
        self._per_s = None
        self._connected.set()
        self._closed.set()

    async def turn(self) -> None:
        """Wait for the caller's turn, in the order of the calls."""
        if self._per_s is None:
            return
        async with self._order:
            while not self._taken():
                await self._pause()

    def _taken(self) -> bool:
        if self._per_s is None:
            return True
        now = asyncio.get_running_loop().time()
        if self._bucket is None:
            self._bucket = bucket_of_slices(self._per_s)
        return self._connected.is_set() and self._bucket.take(now)

    async def _pause(self) -> None:
        """Wait until the broker can be reached, or the bucket has a token, or the gate is closed."""
        if not self._connected.is_set():
            await self._connected.wait()
            return
        assert self._bucket is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._bucket.full_at()):
                await self._closed.wait()


def event_of(subject: str | Event, attributes: Mapping[str, Value] | None, published_us: int | None) -> Event:
    """Return the event that the arguments of :meth:`Agent.publish` describe, with its time."""
    if isinstance(subject, Event):
        if attributes is not None or published_us is not None:
            raise TypeError(
                "publish() accepts no other arguments beside an Event: set attributes and published_us in it"
            )
        attributes, published_us, subject = subject.attributes, subject.published_us, subject.subject
    elif attributes is None:
        raise TypeError("publish() needs a subject and attributes, or an Event")
    return Event(subject, dict(attributes), wall_us() if published_us is None else published_us)


class OwnOutbox:
    """Opens the outbox of a device once, however many calls ask for it.

    :param check_open: raises :class:`Closed` when the agent is not open
    """

    def __init__(
        self,
        end: AgentSockets,
        most: OutboxSize,
        feed: Callable[[Input], None],
        rate: PublishRate,
        report: Callable[[OutboxRefusal], None],
        check_open: Callable[[], object],
    ) -> None:
        self._end = end
        self.most = most
        self._feed = feed
        self._rate = rate
        self._report = report
        self._check_open = check_open
        self._outbox: Outbox | None = None
        self._opening = asyncio.Lock()

    @property
    def size(self) -> OutboxSize:
        """Return the number of events in the outbox, and their bytes."""
        return OutboxSize() if self._outbox is None else self._outbox.size

    async def opened(self) -> Outbox:
        """Return the outbox, opened if need be; :class:`Closed` if the agent is closed meanwhile."""
        self._check_open()
        async with self._opening:
            if self._outbox is None:
                # Only agents with an outbox load its file and its writer.
                from wanderbus.client.outbox import Outbox

                self._outbox = await Outbox.load(
                    self._end.outbox_file(),
                    self._end.outbox_owner,
                    self.most,
                    self._feed,
                    self._rate,
                    self._report,
                )
        try:
            self._check_open()
        except Closed:
            self._outbox.close()
            raise
        return self._outbox

    def settle(self, settled: PublishSettled) -> None:
        """Handle the broker's answer to an event of the outbox."""
        assert self._outbox is not None
        self._outbox.settle(settled)

    async def finish(self) -> None:
        """Stop sending, and wait until everything is written."""
        if self._outbox is not None:
            await self._outbox.finish()

    def close(self) -> None:
        """Close the outbox if it is open; its events stay on the device."""
        if self._outbox is not None:
            self._outbox.close()
