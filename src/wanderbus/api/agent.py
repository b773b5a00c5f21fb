"""The agent for applications: publish, subscribe, and never mind where the device is (SPEC A-11).

The work is done by the machine in :mod:`wanderbus.agent`; here are its sockets, its futures and its readers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from wanderbus.agent.messages import (
    AgentStatusChanged,
    Arrived,
    Ask,
    Connect,
    ConnectRefused,
    Disconnect,
    Disconnected,
    PublishEvent,
    PublishSettled,
    RequestSettled,
    ServerUnreachable,
    Took,
)
from wanderbus.api.dispatch import Dispatcher, Item
from wanderbus.api.ends import End
from wanderbus.api.notifications import Notifications
from wanderbus.api.refusals import connect_error, request_error
from wanderbus.api.status_changes import StatusChange, StatusChanges, Watchers
from wanderbus.api.unclaimed import Unclaimed
from wanderbus.broker import protocol
from wanderbus.errors import (
    Closed,
    EventError,
    LimitExceeded,
    LocalProtocolError,
    Refused,
    RemoteProtocolError,
    Unreachable,
    WanderbusError,
)
from wanderbus.event import Event, EventId, Value, check_event
from wanderbus.filters import parse
from wanderbus.limits import EVENT_BYTES_MAX, MESSAGE_BYTES_MAX
from wanderbus.machine import Output, shown
from wanderbus.runtime.ambient import wall_us
from wanderbus.runtime.driver import Driver, Unmade
from wanderbus.subscription import QueuePolicy, Restriction, Subscription

_log = logging.getLogger("wanderbus.agent")

PUBLISHES_UNSETTLED_MAX = 512
"""Publishes under way at once; further calls wait their turn (below what the broker remembers of a device)."""

CLOSE_S_MAX = 5.0
"""How long :meth:`Agent.close` waits for the broker."""


class Agent:
    """A user's connection to the broker; made by :func:`~wanderbus.connect`, an async context manager.

    Entering it raises :class:`UnknownUser`, :class:`WrongPassword` or :class:`Refused` as the server answers,
    :class:`Unreachable` when nobody does, :class:`ConfigurationError` for a local address that cannot be used.
    """

    def __init__(self, end: End, *, connect_s_max: float) -> None:
        self._end = end
        self._trouble = ""
        self._connect_s_max = connect_s_max
        self._status = "DISCONNECTED"
        self._driver: Driver | None = None
        self._dispatcher = Dispatcher()
        self._unclaimed = Unclaimed(self._dispatcher, self._begin_query, self._acknowledge)
        self._published = 0
        self._requested = 0
        self._publishes: dict[int, asyncio.Future[EventId]] = {}
        self._requests: dict[int, asyncio.Future[Sequence[Subscription]]] = {}
        self._request_texts: dict[int, str] = {}
        self._readers: set[Notifications] = set()
        self._watchers = Watchers()
        self._slots = asyncio.Semaphore(PUBLISHES_UNSETTLED_MAX)
        self._abandoned: set[asyncio.Future[Sequence[Subscription]]] = set()
        self._opened = False

    @property
    def uri(self) -> str:
        """Return the user's URI; of the original ECI, the address by which it is known once it is open."""
        return self._end.properties.uri

    @property
    def status(self) -> str:
        """Return the ECIAgent Status: ``CONNECTED`` or ``DISCONNECTED`` (SPEC E-07)."""
        return self._status

    async def __aenter__(self) -> Self:
        if self._opened:
            raise Closed("an agent is opened once; connect() makes another")
        self._opened = True
        self._disconnected = asyncio.Event()
        try:
            self._start()
            async with asyncio.timeout(self._connect_s_max):
                await self._attached
        except TimeoutError:
            self._shut(Closed("the agent never connected"))
            wanted, trouble = self._end.properties, f" ({self._trouble})" if self._trouble else ""
            raise Unreachable(
                f"no broker {wanted.broker} could be reached through {shown(wanted.server)} in "
                f"{self._connect_s_max:g} s{trouble}; is it up (wanderbus up)?"
            ) from None
        except BaseException:
            self._shut(Closed("the agent never connected"))
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def publish(
        self, subject: str, attributes: Mapping[str, Value], *, published_us: int | None = None
    ) -> EventId:
        """Publish an event; return its id when it is durable at the broker, however long that takes.

        Calls made at once keep their order. Raises :class:`~wanderbus.errors.EventError` for what cannot be
        published, :class:`LimitExceeded` for an event too large, :class:`Refused` by the broker, :class:`Closed`.
        Cancelling the call does not take back an event that is on its way.
        """
        event = check_event(Event(subject, dict(attributes), wall_us() if published_us is None else published_us))
        try:
            _check_message(protocol.Publish(2**40, event))
        except LocalProtocolError as error:
            raise EventError(f"the event cannot be published: {error}") from None
        if (size := protocol.size_of(event)) > EVENT_BYTES_MAX:
            raise LimitExceeded(f"the event takes {size} bytes, {EVENT_BYTES_MAX} is the most", "event_bytes_max")
        await self._slots.acquire()
        if self._driver is None:
            self._slots.release()
        driver = self._driving()
        self._published += 1
        settled: asyncio.Future[EventId] = asyncio.get_running_loop().create_future()
        self._publishes[self._published] = settled
        driver.feed(PublishEvent(self._published, event))
        return await settled

    def subscribe(
        self,
        subject: str,
        expression: str = "",
        *,
        keep: bool = False,
        lifetime_s: float | None = None,
        restrictions: Iterable[Restriction] = (),
        this_device_only: bool = False,
        queue: QueuePolicy | None = None,
        gaps: bool = False,
    ) -> Notifications:
        """Return the notifications of a subscription, to be opened with ``async with``.

        :param expression: an expression of interest; an empty one matches every event of the subject
        :param keep: the subscription outlives the block; the same call finds it again, also after a crash
        :param lifetime_s: it expires after this time, whether connected or not (SPEC X17)
        :param restrictions: when notifications may be generated (SPEC H)
        :param this_device_only: notify this device alone (SPEC E-05)
        :param queue: bounds of what waits for it while nobody can be reached, inside those of the broker (SPEC G-18)
        :param gaps: yield a :class:`~wanderbus.Gap` where notifications were dropped
        :raises FilterError: the expression cannot be read; ``error.pointed()`` shows where
        """
        parse(expression)
        self._requested += 1
        request = protocol.Subscribe(
            self._requested,
            subject,
            expression,
            lifetime_s,
            tuple(restrictions),
            this_device_only,
            queue or QueuePolicy(),
        )
        return Notifications(self, request, keep=keep, gaps=gaps)

    async def unsubscribe(self, subscription: str) -> None:
        """End a subscription by its id; what it has queued is still delivered (SPEC G-07)."""
        await self.ask(protocol.Unsubscribe(self._next_request(), subscription))

    async def subscriptions(self) -> Sequence[Subscription]:
        """Return the session's subscriptions as the broker holds them (SPEC G-08)."""
        return await self._begin_query()

    async def renew(self, subscription: str, lifetime_s: float | None) -> Subscription:
        """Let a subscription live ``lifetime_s`` from now, None for good; return it."""
        (renewed,) = await self.ask(protocol.Renew(self._next_request(), subscription, lifetime_s))
        return renewed

    async def restrict(self, subscription: str, restrictions: Iterable[Restriction]) -> Subscription:
        """Give a subscription these restrictions in place of its own; return it (SPEC H-10)."""
        request = protocol.Restrict(self._next_request(), subscription, tuple(restrictions))
        (restricted,) = await self.ask(request)
        return restricted

    async def rebind(self, local_address: str) -> None:
        """Use ``local_address`` from now on, and stop following the route: for hosts with several addresses.

        Raises :class:`ConfigurationError` if it cannot be used; the address of before then stays.
        """
        self._driving()
        self._end.rebind(local_address)

    def changes(self) -> StatusChanges:
        """Iterate over every change of status and every completed move from this call on, until the agent is closed."""
        return self._watchers.watch()

    async def close(self) -> None:
        """Leave in order: what was acknowledged reaches the broker, the SIP session ends, subscriptions stay."""
        driver = self._driver
        if driver is None:
            return
        try:
            if self._end.ephemeral and self._status == "CONNECTED":
                with contextlib.suppress(TimeoutError, WanderbusError):
                    async with asyncio.timeout(CLOSE_S_MAX):
                        await self.ask(protocol.Leave(self._next_request()))
            if self._abandoned and self._status == "CONNECTED":
                await asyncio.wait(self._abandoned, timeout=CLOSE_S_MAX)
            driver.feed(Disconnect())
            async with asyncio.timeout(CLOSE_S_MAX):
                await self._disconnected.wait()
        except TimeoutError:
            _log.info("%s closed without an answer from the server", self.uri)
        finally:
            self._shut(Closed("the agent was closed"))

    async def ask(self, request: Any) -> Sequence[Subscription]:
        """Make one request of the broker's protocol and return the subscriptions it answers with."""
        return await self.begin(request)

    def begin(self, request: Any) -> asyncio.Future[Sequence[Subscription]]:
        """Make one request of the broker's protocol; return its answer to come."""
        driver = self._driving()
        _check_message(request)
        answered: asyncio.Future[Sequence[Subscription]] = asyncio.get_running_loop().create_future()
        self._requests[request.request] = answered
        self._request_texts[request.request] = getattr(request, "expression", "")
        driver.feed(Ask(request))
        return answered

    def _begin_query(self) -> asyncio.Future[Sequence[Subscription]]:
        return self.begin(protocol.Query(self._next_request()))

    def claim(self, subscription: Subscription, reader: Notifications) -> None:
        """Let ``reader`` have the notifications of ``subscription``; :class:`LocalProtocolError` if another does."""
        if self._dispatcher.is_read(subscription.id):
            raise LocalProtocolError(
                "this agent reads the same subscription already; leave that block first, or vary the expression"
            )
        self._readers.add(reader)
        self._unclaimed.bequeath(subscription)
        self._acknowledge(self._dispatcher.claim(subscription.id, reader))

    def release(self, subscription: str, reader: Notifications, untaken: Iterable[Item], *, ended: bool) -> None:
        """End a reader; see :meth:`Dispatcher.release`."""
        self._readers.discard(reader)
        self._acknowledge(self._dispatcher.release(subscription, untaken, ended=ended))

    def abandon(self, answered: asyncio.Future[Sequence[Subscription]]) -> None:
        """End the subscription that ``answered`` brings: nobody waits for it any more, so nobody would read it."""
        self._abandoned.add(answered)
        answered.add_done_callback(self._end_abandoned)

    def _end_abandoned(self, answered: asyncio.Future[Sequence[Subscription]]) -> None:
        self._abandoned.discard(answered)
        if self._driver is None or answered.cancelled() or answered.exception() is not None:
            return
        for subscription in answered.result():
            if not self._dispatcher.is_read(subscription.id):
                self.begin(protocol.Unsubscribe(self._next_request(), subscription.id)).cancel()
                self._acknowledge(self._dispatcher.release(subscription.id, (), ended=True))

    def took(self, subscription: str, number: int) -> None:
        """The application has taken what ``subscription`` had up to ``number``."""
        self._acknowledge(self._dispatcher.took(subscription, number))

    def _acknowledge(self, number: int | None) -> None:
        if number is not None and self._driver is not None:
            self._driver.feed(Took(number))

    def _next_request(self) -> int:
        self._requested += 1
        return self._requested

    def _driving(self) -> Driver:
        if self._driver is None:
            raise Closed("the agent is not open; use it inside its async with block")
        return self._driver

    def _start(self) -> None:
        # The machine has to know its addresses, so the sockets come first; nothing arrives before the loop turns.
        self._driver = Driver(Unmade(), self._report)
        self._end.open(self._driver)
        self._driver.feed(Connect())
        # The first answer shows that the broker has attached us, not just that it was reached.
        self._attached = self._begin_query()

    def _report(self, output: Output) -> None:
        match output:
            case Arrived(item=item):
                self._acknowledge(self._dispatcher.arrived(item))
                self._unclaimed.look()
            case PublishSettled():
                self._settle_publish(output)
            case RequestSettled():
                self._settle_request(output)
            case AgentStatusChanged(status=status, address=address, reason=reason):
                self._status = status
                self._watchers.tell(StatusChange(status, shown(address), wall_us(), reason))
            case ConnectRefused():
                self._refused(output)
            case ServerUnreachable(reason=reason):
                self._trouble = reason
            case Disconnected():
                self._disconnected.set()

    def _settle_publish(self, publish: PublishSettled) -> None:
        settled = self._publishes.pop(publish.number)
        self._slots.release()
        if settled.done():
            return
        if publish.id is not None:
            settled.set_result(publish.id)
        elif not publish.answered:
            settled.set_exception(self._unanswered(publish.reason))
        else:
            settled.set_exception(Refused(f"the broker refused the event: {publish.reason}"))

    def _settle_request(self, settled: RequestSettled) -> None:
        answered = self._requests.pop(settled.request)
        text = self._request_texts.pop(settled.request)
        self._unclaimed.known(settled.subscriptions)
        if answered.done():
            return
        if settled.refusal is None:
            answered.set_result(settled.subscriptions)
        elif not settled.answered:
            answered.set_exception(self._unanswered(settled.refusal.reason))
        else:
            answered.set_exception(request_error(settled.refusal, text))

    def _unanswered(self, reason: str | None) -> Unreachable:
        return Unreachable(f"{self._end.properties.broker}: {reason}")

    def _refused(self, refused: ConnectRefused) -> None:
        error = connect_error(refused, self._end.properties)
        if not self._attached.done():
            self._attached.set_exception(error)
        elif not self._attached.cancelled() and self._attached.exception() is None:
            _log.warning("the server refuses this agent now: %s", error)

    def _shut(self, reason: WanderbusError) -> None:
        self._end.close()
        self._unclaimed.close()
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        self._status = "DISCONNECTED"
        unsettled: list[asyncio.Future[Any]] = [*self._publishes.values(), *self._requests.values()]
        for future in unsettled:
            if not future.done():
                future.set_exception(reason)
                future.exception()
        for _ in range(len(self._publishes)):
            self._slots.release()
        self._publishes.clear()
        self._requests.clear()
        for reader in self._readers:
            reader.fail(reason)
        self._watchers.close()


def _check_message(message: protocol.AgentMessage) -> None:
    """Raise :class:`LocalProtocolError` for what the broker could not read, :class:`LimitExceeded` if too large."""
    try:
        payload = protocol.encode(message)
        protocol.decode_from_agent(payload)
    except (TypeError, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"it cannot be encoded: {error}") from None
    except RemoteProtocolError as error:
        raise LocalProtocolError(f"it would be {error}") from None
    if (size := len(payload)) > MESSAGE_BYTES_MAX:
        raise LimitExceeded(f"the message takes {size} bytes, {MESSAGE_BYTES_MAX} is the most", "message_bytes_max")
