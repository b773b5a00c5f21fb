"""The agent: an application's asyncio interface to publish and subscribe from a device that moves (SPEC A-11).

The protocol logic is in the state machines of :mod:`wanderbus.client.machine`; this module connects them to sockets,
futures and readers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from wanderbus import protocol
from wanderbus.client.agent_sockets import AgentSockets
from wanderbus.client.disconnection_hooks import DisconnectionHooks
from wanderbus.client.error_mapping import check_follows, connect_error, not_reached, removal_shown
from wanderbus.client.machine.messages import (
    AgentStatusChanged,
    Connect,
    ConnectRefused,
    DataPathKind,
    Disconnect,
    Disconnected,
    ItemArrived,
    MembershipLost,
    PublishesDelayed,
    PublishSettled,
    RequestSettled,
    ServerKnown,
    ServerUnreachable,
    StreamReplaced,
    SubscriptionNotRead,
    SubscriptionOver,
)
from wanderbus.client.notifications import Item, Notifications
from wanderbus.client.publishes import OwnOutbox, PublishCalls, PublishRate, encoded, event_of
from wanderbus.client.readers import Readers
from wanderbus.client.reports import (
    Ending,
    Listeners,
    MachineWarnings,
    OutboxEnd,
    OutboxRefusal,
    OutboxSize,
    Reports,
    StatusChange,
)
from wanderbus.client.requests import Requests, retrieved, until_us
from wanderbus.client.subscribed_interest import subscribed_interest
from wanderbus.completion import public_names
from wanderbus.errors import Closed, Unreachable, WanderbusError
from wanderbus.event import Event, EventId, Gap, Notification, Position, Value
from wanderbus.machine import Input, Output, shown
from wanderbus.runtime.net.driver import Driver, Unmade
from wanderbus.runtime.system_random import wall_us
from wanderbus.subscription import (
    Format,
    QueuePolicy,
    Restriction,
    SincePoint,
    SubscribeOptions,
    Subscription,
    since_of,
)

if TYPE_CHECKING:
    from wanderbus.channel_events import ChannelEvent, NumbersGone, Place
    from wanderbus.client.advertisement import Advertisement, Advertising
    from wanderbus.client.merged import Merged
    from wanderbus.client.operator import Operator

_log = logging.getLogger("wanderbus.agent")

CLOSE_S_MAX = 5.0
"""Timeout of :meth:`Agent.close` for each request to the broker."""

LEAVE_S_MAX = 2.0
"""Timeout of :meth:`Agent.leave` for ending subscriptions whose caller was cancelled."""


class Agent:
    """A user's connection to the broker: an async context manager, made by :func:`~wanderbus.connect`.

    ``agent = await connect(...)`` opens it without a block; then :meth:`close` has to end it. Opening raises
    :class:`UnknownUser`, :class:`WrongPassword` or :class:`Refused` if the server or the broker refuses,
    :class:`Unreachable` if neither answers, and :class:`ConfigurationError` if the local address cannot be used. With
    the setting ``offline`` entering does not wait, and :meth:`connected` raises these errors.
    """

    def __init__(
        self,
        end: AgentSockets,
        *,
        connect_s_max: float,
        publish_per_s: float | None = None,
        outbox_max: OutboxSize,
        offline: bool = False,
        hooks: DisconnectionHooks | None = None,
    ) -> None:
        self._end = end
        self._offline = offline
        self._trouble = ServerUnreachable("")
        self._warnings = MachineWarnings()
        self._connect_s_max = connect_s_max
        self._status = "DISCONNECTED"
        self._data_path: DataPathKind = "udp"
        self._driver: Driver | None = None
        self._requests = Requests(self._feed)
        self._rate = PublishRate(publish_per_s)
        self._publishing = PublishCalls(self._rate, self._feed)
        self._readers = Readers(self._requests, end)
        self._advertising: Advertising | None = None
        self._changes: Listeners[StatusChange] = Listeners()
        self._endings: Listeners[Ending] = Listeners()
        self._refusals: Listeners[OutboxRefusal] = Listeners()
        self._outbox = OwnOutbox(
            end, outbox_max, self._feed, self._rate, self._refusals.report, check_open=self._driving
        )
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
        """Return the user's URI; for the original ECI, the agent's own address, known once the agent is open."""
        return self._end.properties.uri

    @property
    def status(self) -> str:
        """Return the agent's status: ``CONNECTED`` or ``DISCONNECTED`` (SPEC E-07)."""
        return self._status

    @property
    def data_path(self) -> str:
        """Return the path of the data channel: ``udp``, ``udp-relay``, ``tcp`` or ``tcp-relay`` (SPEC I-08)."""
        return self._data_path

    @property
    def outbox(self) -> OutboxSize:
        """Return the number of events in this device's outbox, and their bytes (SPEC G-20)."""
        return self._outbox.size

    @property
    def held_back(self) -> int:
        """Return the number of events that were not sent because no subscription matches them (SPEC N-02)."""
        return self._publishing.held_back

    def __await__(self) -> Generator[Any, None, Self]:
        """Open the agent without a block: ``agent = await connect(...)``; :meth:`close` ends it."""
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        if self._opened:
            raise Closed("this agent was opened before; call connect() for a new one")
        self._opened = True
        self._disconnected = asyncio.Event()
        try:
            await self._end.locate(self._connect_s_max)
            self._start()
            if self._end.has_outbox:
                await self._outbox.opened()
            if not self._offline:
                await self.connected()
        except BaseException:
            self._shut(Closed("the agent never connected"))
            raise
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def connected(self) -> None:
        """Wait until the broker has attached this agent for the first time; raise the same errors as entering.

        Raise :class:`NoResponse` after ``connect_s_max`` seconds; an agent that was entered keeps retrying.
        """
        self._driving()
        try:
            async with asyncio.timeout(self._connect_s_max):
                await asyncio.shield(self._attached)
        except WanderbusError:
            raise
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

    @overload
    async def publish(self, subject: Event, *, wait: bool = True, outbox: Literal[False] = False) -> EventId: ...

    @overload
    async def publish(self, subject: Event, *, wait: bool = True, outbox: Literal[True]) -> None: ...

    async def publish(
        self,
        subject: str | Event,
        attributes: Mapping[str, Value] | None = None,
        *,
        published_us: int | None = None,
        wait: bool = True,
        outbox: bool = False,
    ) -> EventId | None:
        """Publish an event; return its id when it is durable at the broker, without a timeout.

        An attribute with several values is a list; :func:`wanderbus.merge_repeated` makes it from repeated names.
        Concurrent calls keep their order. Cancelling a call does not withdraw an event that was sent. With
        ``publisher_filtering``, an event that nobody wants is not sent, and the id is :data:`~wanderbus.HELD_BACK`.

        :param subject: the event's subject, or a whole :class:`~wanderbus.Event` in place of subject, attributes and
            ``published_us``
        :param wait: if False, raise :class:`Unreachable` at once while the agent is DISCONNECTED (SPEC X25); the same
            happens if ``on_disconnected`` of :func:`~wanderbus.connect` returned ``"error"``
        :param outbox: return None when the event is durable on this device. The event is published when the broker can
            be reached, exactly once and after the events stored before it, if need be by a later agent of the same
            device; see :meth:`outbox_refusals`
        :raises EventError: the event is invalid
        :raises LimitExceeded: the event is too large, or a limit is reached at present, here or at the broker
        :raises Refused: the broker refused the event
        :raises ConfigurationError: this device cannot have an outbox
        :raises StorageError: the outbox cannot be used
        """
        event = encoded(event_of(subject, attributes, published_us))
        if outbox:
            await (await self._outbox.opened()).put(event)
            return None

        def check() -> None:
            self._driving()
            if self._status != "CONNECTED" and (not wait or self._hooks.while_away == "error"):
                raise Unreachable(
                    f"{self._end.properties.broker} cannot be reached now; retry when connected, or use the outbox"
                )

        check()
        return await self._publishing.publish(event, check)

    @overload
    def subscribe(
        self,
        subject: str = "",
        expression: str = "",
        *,
        gaps: Literal[False] = False,
        **options: Unpack[SubscribeOptions],
    ) -> Notifications[Notification]: ...

    @overload
    def subscribe(
        self, subject: str = "", expression: str = "", *, gaps: bool, **options: Unpack[SubscribeOptions]
    ) -> Notifications[Notification | Gap]: ...

    def subscribe(
        self,
        subject: str = "",
        expression: str = "",
        *,
        pattern: str | None = None,
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
        since: SincePoint | None = None,
        effective: Literal["domain", "everywhere"] = "domain",
    ) -> Notifications[Any]:
        """Return the notifications of a subscription, to be opened with ``async with``.

        ``async for`` without a block opens the subscription too; then ``aclose()`` or closing the agent ends it.

        :param subject: the subject of the events; ``*`` for every subject
        :param expression: an expression of interest; an empty one matches every event of the subject
        :param pattern: a pattern of compound events, in place of a subject and an expression (SPEC T-07): each
            notification is a detection, with the ids of its events as ``events``. Entering the block raises
            :class:`PatternError` for a text that is no pattern
        :param keep: keep the subscription after the block; the same call finds it again, also after a crash
        :param lifetime_s: the subscription expires after this time, connected or not (SPEC X17)
        :param until: the subscription expires at this time, instead of ``lifetime_s``; it must have a time zone
        :param restrictions: conditions on when notifications may be generated (SPEC H)
        :param this_device_only: notify only this device, not the session's other devices (SPEC E-05)
        :param queue: bounds of the subscription's queue while no device can be reached, within the broker's (SPEC G-18)
        :param gaps: yield a :class:`~wanderbus.Gap` where the broker discarded notifications; the items then have the
            type ``Notification | Gap``, otherwise ``Notification``
        :param language: language of ``expression``: ``eci``, ``cesql`` (CloudEvents SQL) or ``xml`` (SPEC U-04, O-01)
        :param format: ``xml`` adds an XML text to each notification, ``notification.xml`` (SPEC O-03)
        :param resume: the last position of this subscription that the application has committed with its results;
            everything after it is delivered, seen before or not, with a gap for what was acknowledged (DESIGN 5.5)
        :param since: begin in the past, then continue live, each event once (SPEC T-05): the events accepted at a time
            or later, those after an :class:`~wanderbus.EventId` or after the :class:`~wanderbus.Position` of a
            notification, or ``"earliest"`` for all that the server keeps. Entering the block raises :class:`Refused` if
            the server no longer has the first of them. The same call finds a kept subscription only with the same point
        :param effective: the block is entered when the subscription counts at every server of the domain or, with
            ``everywhere``, also in all other domains that share types of events and can be reached now (SPEC M-02); one
            that does not confirm it within ten seconds is not waited for
        :raises FilterError: the expression cannot be read; ``error.pointed()`` shows where
        """
        expression, language = subscribed_interest(subject, expression, language, pattern)
        request = protocol.Subscribe(
            self._requests.next_request(),
            subject,
            expression,
            lifetime_s,
            tuple(restrictions),
            this_device_only,
            queue or QueuePolicy(),
            until_us(until),
            language,
            format,
            resume=resume,
            since=None if since is None else since_of(since),
            is_kept=keep,
            everywhere=effective == "everywhere",
        )
        return Notifications(self, self._readers, request, keep=keep, gaps=gaps)

    def read(self, subscription: Subscription, *, gaps: bool = False) -> Notifications[Any]:
        """Return the notifications of a subscription that the session has; its block never ends it (SPEC J-05)."""
        return Notifications(self, self._readers, subscription, keep=True, gaps=gaps)

    def merged(self, *subscriptions: Notifications[Item]) -> Merged[Item]:
        """Return one iteration over several subscriptions in the order of the log, to be opened with ``async with``.

        ``async with agent.merged(agent.subscribe("Price", gaps=True), agent.subscribe("News")) as items:``

        Each notification arrives once, also if several of them match it. The subscriptions must not be open yet.

        :raises LocalProtocolError: none is given, one is given twice, or is of another agent
        """
        from wanderbus.client.merged import Merged

        return Merged(self, self._readers, subscriptions)

    def advertise(
        self, subject: str, expression: str = "", *, keep: bool = False, language: str = "eci"
    ) -> Advertisement:
        """Return a declaration of the events that this device will publish, to be opened with ``async with``.

        Channels of a domain of servers can accept advertised events alone; elsewhere it changes nothing (SPEC A-17).

        :param expression: a filter that all these events match; with an empty one, all events of the subject. An
            attribute may have several values, so ``all Delay > 30`` says more than ``Delay > 30``
        :param keep: keep the advertisement after the block; the same call finds it again, also after a crash
        :raises FilterError: the expression cannot be read; ``error.pointed()`` shows where
        """
        from wanderbus.client.advertisement import Advertisement, Advertising  # few programs need it
        from wanderbus.filters import parse

        parse(expression, language)
        self._advertising = self._advertising or Advertising(self._requests)
        return Advertisement(self._advertising, subject, expression, language, keep=keep)

    async def unsubscribe(self, subscription: str) -> None:
        """End a subscription by its id; notifications already queued are still delivered (SPEC G-07)."""
        await self._requests.ask(protocol.Unsubscribe(self._requests.next_request(), subscription))

    async def subscriptions(self) -> Sequence[Subscription]:
        """Return the session's subscriptions, as stored at the broker (SPEC G-08)."""
        return await self._requests.ask(protocol.Query(self._requests.next_request()))

    async def renew(
        self, subscription: str, lifetime_s: float | None = None, *, until: datetime | None = None
    ) -> Subscription:
        """Extend a subscription by ``lifetime_s`` from now, or to ``until``, else for ever; return it.

        A subscription that ended a short time ago is revived with the same id (SPEC X21).
        """
        request = protocol.Renew(self._requests.next_request(), subscription, lifetime_s, until_us(until))
        (renewed,) = await self._requests.ask(request)
        return renewed

    async def restrict(self, subscription: str, restrictions: Iterable[Restriction]) -> Subscription:
        """Replace the restrictions of a subscription; return the subscription (SPEC H-10)."""
        request = protocol.Restrict(self._requests.next_request(), subscription, tuple(restrictions))
        (restricted,) = await self._requests.ask(request)
        return restricted

    def history(
        self, subject: str, *, first: Place = None, last: Place = None, newest: int | None = None
    ) -> AsyncIterator[ChannelEvent | NumbersGone]:
        """Yield the events of an ordered channel by number, as the servers have them that led it (SPEC K-03).

        Those published after the call may be missing. :class:`~wanderbus.channel_events.NumbersGone` comes where
        numbers are no longer kept, or a former leader cannot answer. The iteration raises :class:`Refused` if the user
        may not subscribe to the subject, if the channel is decentralised, or if its leader cannot be reached now.

        :param first: the lowest number, of the present leader or with an epoch; None for the first that is kept
        :param last: the highest number, itself included; None for the newest event
        :param newest: yield only so many of these events, the newest ones
        """
        from wanderbus.client.channel_history import history  # few programs need it

        return history(self._requests, subject, first, last, newest)

    async def rebind(self, local_address: str, *, along: Sequence[Agent] = ()) -> None:
        """Use ``local_address`` from now on, and stop following the system's route: for hosts with several addresses.

        ``along`` are other agents of this user in this program: they move too, and one update reports all (SPEC D-14).
        Raise :class:`ConfigurationError` if it cannot be used; the agent then keeps the previous address.
        """
        self._driving()
        self._end.rebind(local_address, [each._end for each in along if each._driving()])

    async def handover(self, server: str) -> None:
        """Move this agent's session to another ``server``, and return once it is connected there; see Operator.move.

        :raises ConfigurationError: it is in another domain, where this agent could not follow: its SIP is not over TLS
        """
        check_follows(server, self._end.properties)
        await self.operator.move(self.uri, self._end.properties.session, server)

    def changes(self) -> Reports[StatusChange]:
        """Iterate over every status change and completed move after this call, until the agent is closed."""
        return self._changes.listen()

    def endings(self) -> Reports[Ending]:
        """Iterate over subscriptions that end without a request by this agent, after this call (SPEC G-10)."""
        return self._endings.listen()

    async def outbox_end(self) -> OutboxEnd:
        """Return the number of the last event that was stored in this device's outbox.

        A program that stores events in order can continue after a crash with the first one that is not stored yet.

        :raises ConfigurationError: this device cannot have an outbox
        :raises StorageError: the outbox cannot be used
        """
        return (await self._outbox.opened()).end

    def outbox_refusals(self) -> Reports[OutboxRefusal]:
        """Iterate over events of the outbox that the broker refuses after this call, until the agent is closed."""
        return self._refusals.listen()

    @property
    def operator(self) -> Operator:
        """Return the requests of operators: listings, peek, purge and kick."""
        from wanderbus.client.operator import Operator  # few programs need it

        return Operator(self._requests)

    async def leave(self) -> None:
        """Remove this device from its session: before closing, for a device that will not return.

        The session queues nothing for it any more.
        """
        # First end subscriptions whose caller was cancelled: nobody else could end them.
        await self._readers.abandoned(LEAVE_S_MAX)
        await self._requests.ask(protocol.Leave(self._requests.next_request()))

    async def close(self) -> None:
        """Close gracefully: flush acknowledgements to the broker and end the SIP session; kept subscriptions stay."""
        driver = self._driver
        if driver is None:
            return
        self._hooks.close()
        try:
            if self._end.ephemeral and self._status == "CONNECTED":
                with contextlib.suppress(TimeoutError, WanderbusError):
                    async with asyncio.timeout(CLOSE_S_MAX):
                        await self.leave()
            await self._readers.abandoned(CLOSE_S_MAX, is_connected=self._status == "CONNECTED")
            if self._status == "CONNECTED" and self._advertising is not None:
                await self._advertising.end_unblocked(CLOSE_S_MAX)
            driver.feed(Disconnect())
            if self._attached.done() and self._attached.exception() is None:
                try:
                    async with asyncio.timeout(CLOSE_S_MAX):
                        await self._disconnected.wait()
                except TimeoutError:
                    _log.info("%s closed without a response from the server", self.uri)
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

    def _start(self) -> None:
        # The machine needs its addresses, so the sockets are opened first; they deliver nothing before the loop runs.
        self._driver = Driver(Unmade(), self._report)
        self._end.open(self._driver)
        self._driver.feed(Connect())
        self._readers.end_left()  # before the first request of the application, which may subscribe again
        # The first response shows that the broker has attached this agent, not only that it was reached.
        self._attached = self._requests.begin(protocol.Query(self._requests.next_request()))
        self._attached.add_done_callback(retrieved)

    def _report(self, output: Output) -> None:
        match output:
            case ItemArrived(item=item, subscriptions=subscriptions):
                self._readers.arrived(item, subscriptions)
            case PublishSettled(outbox=True):
                self._publishing.count(output)
                self._outbox.settle(output)
            case PublishSettled() | PublishesDelayed():
                self._publishing.take(output, self._end.properties.broker)
            case RequestSettled():
                self._readers.known(output.subscriptions)
                self._requests.settle(output, self._end.properties.broker)
            case SubscriptionOver():
                self._readers.over(output)
                self._endings.report(Ending(output.subscription, output.reason, output.successor))
            case StreamReplaced():
                self._readers.replaced(output)
            case SubscriptionNotRead(subscription=subscription, waiting=waiting):
                self._readers.not_read(subscription, waiting)
            case AgentStatusChanged():
                self._status_changed(output)
            case ServerKnown(name=name):
                self._end.keep_server(name)
            case MembershipLost():
                _log.warning("%s: %s", self.uri, removal_shown(output.reason))
            case ConnectRefused():
                self._refused(output)
            case ServerUnreachable():
                self._trouble = output
                if output.remedy:
                    _log.warning("%s cannot reach its server: %s; %s", self.uri, output.reason, output.remedy)
            case Disconnected():
                self._disconnected.set()
            case _:
                self._warnings.log(output)

    def _status_changed(self, change: AgentStatusChanged) -> None:
        now_us, waiting = wall_us(), self._publishing.unsettled
        if change.data_path != self._data_path:
            _log.info("%s: %s", self.uri, change.reason)
        self._status, self._data_path = change.status, change.data_path
        self._rate.connected(change.status == "CONNECTED")
        self._changes.report(StatusChange(change.status, shown(change.address), now_us, change.reason))
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
        elif refused.limit == protocol.DEVICE_USED_TWICE:
            asyncio.get_running_loop().call_soon(self._shut, error)  # two would take each other's place for ever
        elif not self._attached.cancelled() and self._attached.exception() is None:
            _log.warning("the server refuses this agent now: %s", error)

    def _shut(self, reason: WanderbusError) -> None:
        self._end.close()
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        self._status = "DISCONNECTED"
        self._hooks.close()
        self._rate.close()
        self._outbox.close()
        self._publishing.close(reason)
        self._requests.close(reason)
        self._readers.close(reason)
        for listeners in (self._changes, self._endings, self._refusals):
            listeners.close()
