"""The agent for applications: publish, subscribe, and never mind where the device is (SPEC A-11).

The work is done by the machine in :mod:`wanderbus.agent`; here are its sockets, its futures and its readers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Literal, Self, overload

from wanderbus import protocol
from wanderbus.client.agent_sockets import End
from wanderbus.client.disconnection_hooks import DisconnectionHooks
from wanderbus.client.error_mapping import connect_error, not_reached
from wanderbus.client.machine.messages import (
    AgentStatusChanged,
    Arrived,
    Connect,
    ConnectRefused,
    Disconnect,
    Disconnected,
    PublishSettled,
    RequestSettled,
    ServerUnreachable,
    SubscriptionNotRead,
    SubscriptionOver,
)
from wanderbus.client.machine.path_choice import Way
from wanderbus.client.notifications import Notifications
from wanderbus.client.outbox import Outbox, OutboxConfig, OutboxSize
from wanderbus.client.pacing import Turnstile
from wanderbus.client.publishes import Publishing, checked
from wanderbus.client.readers import Readers
from wanderbus.client.reports import Ending, Listeners, OutboxRefusal, Reports, StatusChange
from wanderbus.client.requests import Requests
from wanderbus.completion import public_names
from wanderbus.errors import Closed, Unreachable, WanderbusError
from wanderbus.event import Event, EventId, Position, Value
from wanderbus.filters import parse
from wanderbus.machine import Input, Output, shown
from wanderbus.refusal_table import Limited
from wanderbus.runtime.net.driver import Driver, Unmade
from wanderbus.runtime.system_random import wall_us
from wanderbus.subscription import Format, QueuePolicy, Restriction, Subscription, instant_us

_log = logging.getLogger("wanderbus.agent")

CLOSE_S_MAX = 5.0
"""How long :meth:`Agent.close` waits for the broker."""


class Agent:
    """A user's connection to the broker; made by :func:`~wanderbus.connect`, an async context manager.

    Entering it raises :class:`UnknownUser`, :class:`WrongPassword` or :class:`Refused` as the server answers,
    :class:`Unreachable` when nobody does, :class:`ConfigurationError` for a local address that cannot be used. With the
    setting ``offline`` it is entered at once, and :meth:`connected` raises these.
    """

    def __init__(
        self,
        end: End,
        *,
        connect_s_max: float,
        publish_per_s: float | None = None,
        outbox: OutboxConfig | None = None,
        offline: bool = False,
        hooks: DisconnectionHooks | None = None,
    ) -> None:
        self._end = end
        self._offline = offline
        self._trouble = ""
        self._dropped = 0
        """SIP messages that were dropped unread."""
        self._connect_s_max = connect_s_max
        self._status = "DISCONNECTED"
        self._data_way: Way = "udp"
        self._driver: Driver | None = None
        self._requests = Requests(self._feed)
        self._turnstile = Turnstile(publish_per_s)
        self._publishing = Publishing(self._turnstile, self._feed)
        self._outbox_config = outbox or OutboxConfig()
        self._outbox: Outbox | None = None
        self._outbox_opening = asyncio.Lock()
        self._readers = Readers(self._requests)
        self._changes: Listeners[StatusChange] = Listeners()
        self._endings: Listeners[Ending] = Listeners()
        self._refusals: Listeners[OutboxRefusal] = Listeners()
        self._hooks = hooks or DisconnectionHooks()
        self._opened = False

    def __repr__(self) -> str:
        wanted = self._end.properties
        state = self._status if self._driver else "closed" if self._opened else "not open yet"
        return f"<Agent {self.uri} {state}; broker {wanted.broker} through {shown(wanted.server)}>"

    def __dir__(self) -> list[str]:
        return public_names(self)

    @property
    def uri(self) -> str:
        """Return the user's URI; of the original ECI, the address by which it is known once it is open."""
        return self._end.properties.uri

    @property
    def status(self) -> str:
        """Return the ECIAgent Status: ``CONNECTED`` or ``DISCONNECTED`` (SPEC E-07)."""
        return self._status

    @property
    def data_way(self) -> str:
        """Return the way of the data channel: ``udp``, ``udp-relay``, ``tcp`` or ``tcp-relay`` (SPEC I-08)."""
        return self._data_way

    @property
    def outbox(self) -> OutboxSize:
        """Return how much waits in the outbox of this device (SPEC G-20)."""
        return OutboxSize() if self._outbox is None else self._outbox.size

    async def __aenter__(self) -> Self:
        if self._opened:
            raise Closed("an agent is opened once; connect() makes another")
        self._opened = True
        self._disconnected = asyncio.Event()
        try:
            await self._end.locate(self._connect_s_max)
            self._start()
            if self._end.has_outbox:
                await self._open_outbox()
            if not self._offline:
                await self.connected()
        except BaseException:
            self._shut(Closed("the agent never connected"))
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connected(self) -> None:
        """Wait until the broker has attached this agent for the first time, or raise what entering would.

        :class:`Unreachable` after ``connect_s_max``; an agent that was entered goes on trying.
        """
        self._driving()
        try:
            async with asyncio.timeout(self._connect_s_max):
                await asyncio.shield(self._attached)
        except TimeoutError:
            raise not_reached(self._end.properties, self._connect_s_max, self._trouble) from None

    @overload
    async def publish(
        self,
        subject: str,
        attributes: Mapping[str, Value],
        *,
        published_us: int | None = None,
        wait: bool = True,
        outbox: Literal[False] = False,
    ) -> EventId: ...

    @overload
    async def publish(
        self,
        subject: str,
        attributes: Mapping[str, Value],
        *,
        published_us: int | None = None,
        wait: bool = True,
        outbox: Literal[True],
    ) -> None: ...

    async def publish(
        self,
        subject: str,
        attributes: Mapping[str, Value],
        *,
        published_us: int | None = None,
        wait: bool = True,
        outbox: bool = False,
    ) -> EventId | None:
        """Publish an event; return its id when it is durable at the broker, however long that takes.

        An attribute of several values is a list; :func:`wanderbus.gathered` makes them of repeated names.
        Calls made at once keep their order. Cancelling the call does not take back an event that is on its way.

        :param wait: False raises :class:`Unreachable` at once while the agent is DISCONNECTED (SPEC X25), and so does
            an ``on_disconnected`` of :func:`~wanderbus.connect` that returns ``"error"``
        :param outbox: return None when the event is durable on this device. It is published when the broker can be
            reached, after those before it and exactly once, also by a later agent of the same device; see
            :meth:`outbox_refusals`
        :raises EventError: it cannot be published
        :raises LimitExceeded: it is too large, or for the time being there is no room, here or at the broker
        :raises Refused: the broker declined it
        :raises ConfigurationError: this device cannot have an outbox
        :raises StorageError: the outbox cannot be used
        """
        event = checked(Event(subject, dict(attributes), wall_us() if published_us is None else published_us))
        if outbox:
            await (await self._open_outbox()).put(event)
            return None

        def check() -> None:
            self._driving()
            if self._status != "CONNECTED" and (not wait or self._hooks.while_away == "error"):
                raise Unreachable(
                    f"{self._end.properties.broker} cannot be reached now; wait for it, or use the outbox"
                )

        check()
        return await self._publishing.publish(event, check)

    def subscribe(
        self,
        subject: str,
        expression: str = "",
        *,
        keep: bool = False,
        lifetime_s: float | None = None,
        until: datetime | None = None,
        restrictions: Iterable[Restriction] = (),
        this_device_only: bool = False,
        queue: QueuePolicy | None = None,
        gaps: bool = False,
        language: str = "eci",
        format: Format = "event",
        resume: Position | None = None,
    ) -> Notifications:
        """Return the notifications of a subscription, to be opened with ``async with``.

        Without a block, ``async for`` opens it; then it ends with ``aclose()``, or with the agent.

        :param expression: an expression of interest; an empty one matches every event of the subject
        :param keep: the subscription outlives the block; the same call finds it again, also after a crash
        :param lifetime_s: it expires after this time, whether connected or not (SPEC X17)
        :param until: it expires then, in place of ``lifetime_s``; a time zone is part of it
        :param restrictions: when notifications may be generated (SPEC H)
        :param this_device_only: notify this device alone (SPEC E-05)
        :param queue: bounds of what waits for it while nobody can be reached, inside those of the broker (SPEC G-18)
        :param gaps: yield a :class:`~wanderbus.Gap` where notifications were dropped
        :param language: what ``expression`` is in: ``eci``, ``cesql`` (CloudEvents SQL) or ``xml`` (SPEC U-04, O-01)
        :param format: ``xml`` gives each notification its text in XML too, ``notification.xml`` (SPEC O-03)
        :param resume: the last position of this subscription that the application has committed with its results:
            what follows it comes, whether or not it was seen before (DESIGN 5.5)
        :raises FilterError: the expression cannot be read; ``error.pointed()`` shows where
        """
        parse(expression, language)
        request = protocol.Subscribe(
            self._requests.next_request(),
            subject,
            expression,
            lifetime_s,
            tuple(restrictions),
            this_device_only,
            queue or QueuePolicy(),
            _instant_us(until),
            language,
            format,
            resume=resume,
        )
        return Notifications(self, self._readers, request, keep=keep, gaps=gaps)

    async def unsubscribe(self, subscription: str) -> None:
        """End a subscription by its id; what it has queued is still delivered (SPEC G-07)."""
        await self._requests.ask(protocol.Unsubscribe(self._requests.next_request(), subscription))

    async def subscriptions(self) -> Sequence[Subscription]:
        """Return the session's subscriptions as the broker holds them (SPEC G-08)."""
        return await self._requests.ask(protocol.Query(self._requests.next_request()))

    async def renew(
        self, subscription: str, lifetime_s: float | None = None, *, until: datetime | None = None
    ) -> Subscription:
        """Let a subscription live ``lifetime_s`` from now, or ``until`` then; without either for good. Return it.

        One that ended a while ago lives again, with the same id (SPEC X21).
        """
        request = protocol.Renew(self._requests.next_request(), subscription, lifetime_s, _instant_us(until))
        (renewed,) = await self._requests.ask(request)
        return renewed

    async def restrict(self, subscription: str, restrictions: Iterable[Restriction]) -> Subscription:
        """Give a subscription these restrictions in place of its own; return it (SPEC H-10)."""
        request = protocol.Restrict(self._requests.next_request(), subscription, tuple(restrictions))
        (restricted,) = await self._requests.ask(request)
        return restricted

    async def rebind(self, local_address: str) -> None:
        """Use ``local_address`` from now on, and stop following the route: for hosts with several addresses.

        Raises :class:`ConfigurationError` if it cannot be used; the address of before then stays.
        """
        self._driving()
        self._end.rebind(local_address)

    def changes(self) -> Reports[StatusChange]:
        """Iterate over every change of status and every completed move from this call on, until the agent is closed."""
        return self._changes.listen()

    def endings(self) -> Reports[Ending]:
        """Iterate over subscriptions that end unasked from this call on, until the agent is closed (SPEC G-10)."""
        return self._endings.listen()

    def outbox_refusals(self) -> Reports[OutboxRefusal]:
        """Iterate over what the broker will not have of the outbox from this call on, until the agent is closed."""
        return self._refusals.listen()

    async def close(self) -> None:
        """Leave in order: what was acknowledged reaches the broker, the SIP session ends, subscriptions stay."""
        driver = self._driver
        if driver is None:
            return
        self._hooks.close()
        try:
            if self._end.ephemeral and self._status == "CONNECTED":
                with contextlib.suppress(TimeoutError, WanderbusError):
                    async with asyncio.timeout(CLOSE_S_MAX):
                        # A subscription that nobody waited for is ended first: nobody else could end it.
                        await self._readers.abandoned(CLOSE_S_MAX)
                        await self._requests.ask(protocol.Leave(self._requests.next_request()))
            if self._status == "CONNECTED":
                await self._readers.abandoned(CLOSE_S_MAX)
            driver.feed(Disconnect())
            if self._attached.done() and self._attached.exception() is None:
                try:
                    async with asyncio.timeout(CLOSE_S_MAX):
                        await self._disconnected.wait()
                except TimeoutError:
                    _log.info("%s closed without an answer from the server", self.uri)
            if self._outbox is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_S_MAX):
                        await self._outbox.finish()
        finally:
            self._shut(Closed("the agent was closed"))

    def _driving(self) -> Driver:
        if self._driver is None:
            raise Closed("the agent is not open; use it inside its async with block")
        return self._driver

    def _feed(self, given: Input) -> None:
        self._driving().feed(given)

    async def _open_outbox(self) -> Outbox:
        """Return the outbox of this device; it may be that the agent is closed meanwhile."""
        self._driving()
        async with self._outbox_opening:
            if self._outbox is None:
                self._outbox = await Outbox.load(
                    self._end.outbox_file(),
                    self._end.outbox_owner,
                    self._outbox_config,
                    self._feed,
                    self._turnstile,
                    self._refusals.tell,
                )
                if self._driver is None:
                    self._outbox.close()
        self._driving()
        return self._outbox

    def _start(self) -> None:
        # The machine has to know its addresses, so the sockets come first; nothing arrives before the loop turns.
        self._driver = Driver(Unmade(), self._report)
        self._end.open(self._driver)
        self._driver.feed(Connect())
        # The first answer shows that the broker has attached us, not just that it was reached.
        self._attached = self._requests.begin(protocol.Query(self._requests.next_request()))
        self._attached.add_done_callback(_retrieved)

    def _report(self, output: Output) -> None:
        match output:
            case Arrived(item=item, subscriptions=subscriptions):
                self._readers.arrived(item, subscriptions)
            case PublishSettled(outbox=True):
                assert self._outbox is not None
                self._outbox.settle(output)
            case PublishSettled():
                self._publishing.settle(output, self._end.properties.broker)
            case RequestSettled():
                self._readers.known(output.subscriptions)
                self._requests.settle(output, self._end.properties.broker)
            case SubscriptionOver():
                self._readers.over(output)
                self._endings.tell(Ending(output.subscription, output.reason, output.successor))
            case SubscriptionNotRead(subscription=subscription, waiting=waiting):
                self._readers.not_read(subscription, waiting)
            case AgentStatusChanged():
                self._status_changed(output)
            case ConnectRefused():
                self._refused(output)
            case ServerUnreachable(reason=reason):
                self._trouble = reason
            case Disconnected():
                self._disconnected.set()
            case Limited():
                self._limited(output)

    def _limited(self, limited: Limited) -> None:
        """Log what strangers had dropped: the first time, and each time that their count has doubled."""
        before, self._dropped = self._dropped, self._dropped + limited.count
        if before.bit_length() != self._dropped.bit_length():
            _log.warning(
                "%s %s were dropped so far, the last from %s: a flood (%s)",
                self._dropped,
                limited.reason,
                limited.party,
                limited.limit,
            )

    def _status_changed(self, change: AgentStatusChanged) -> None:
        now_us, waiting = wall_us(), self._publishing.unsettled
        if change.way != self._data_way:
            _log.info("%s: %s", self.uri, change.reason)
        self._status, self._data_way = change.status, change.way
        self._turnstile.connected(change.status == "CONNECTED")
        self._changes.tell(StatusChange(change.status, shown(change.address), now_us, change.reason))
        if change.status == "CONNECTED":
            self._hooks.connected(waiting, self.outbox)
        else:
            self._hooks.disconnected(change.reason, now_us, waiting, self.outbox)

    def _refused(self, refused: ConnectRefused) -> None:
        error = connect_error(refused, self._end.properties)
        if not self._attached.done():
            self._attached.set_exception(error)
            if self._offline:
                _log.warning("the server refuses this agent: %s", error)
        elif not self._attached.cancelled() and self._attached.exception() is None:
            _log.warning("the server refuses this agent now: %s", error)

    def _shut(self, reason: WanderbusError) -> None:
        self._end.close()
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        self._status = "DISCONNECTED"
        self._hooks.close()
        self._turnstile.close()
        if self._outbox is not None:
            self._outbox.close()
        self._publishing.close(reason)
        self._requests.close(reason)
        self._readers.close(reason)
        for listeners in (self._changes, self._endings, self._refusals):
            listeners.close()


def _retrieved(attached: asyncio.Future[RequestSettled]) -> None:
    """Take the error of an attachment: an agent that was entered offline may not ask for it."""
    if not attached.cancelled():
        attached.exception()


def _instant_us(until: datetime | None) -> int | None:
    return None if until is None else instant_us(until)
