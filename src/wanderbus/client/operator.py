"""Operator requests to the broker: list, peek, purge, kick, schemas (SPEC E-01, G-21, T-03)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from wanderbus import protocol
from wanderbus.client.copied_session import copy_of, pieces, waiting_items
from wanderbus.client.listed_rows import ListedItem, Pages, Purged, check_listed, read_rows
from wanderbus.client.requests import Requests
from wanderbus.client.user_uri import user_of
from wanderbus.errors import Refused, RemoteProtocolError
from wanderbus.event import DeclaredAttribute, Gap, Notification, Position
from wanderbus.operator_rows import (
    AdvertisementInfo,
    BoundInfo,
    DiscardedSession,
    DomainInfo,
    DrainInfo,
    EngineInfo,
    GroupInfo,
    GroupLoadInfo,
    ImportedSession,
    KickedDevice,
    LimitInfo,
    MetricInfo,
    MovedGroup,
    MovedSession,
    PhaseInfo,
    ProcessInfo,
    QueueInfo,
    RouteInfo,
    ServerInfo,
    SessionInfo,
    SubscriptionInfo,
    TransferredSession,
)
from wanderbus.protocol.eci_address import SCHEME
from wanderbus.protocol.session_copy import SessionCopy
from wanderbus.runtime.system_random import wall_us
from wanderbus.subject_schemas import SubjectSchema

_ROWS: Final = 1_000
"""Most rows per request."""

Row = TypeVar(
    "Row",
    SessionInfo,
    SubscriptionInfo,
    QueueInfo,
    LimitInfo,
    BoundInfo,
    EngineInfo,
    ServerInfo,
    DomainInfo,
    PhaseInfo,
    SubjectSchema,
    RouteInfo,
    AdvertisementInfo,
    GroupInfo,
    GroupLoadInfo,
    ProcessInfo,
    MetricInfo,
)


class Operator:
    """Requests about sessions, queues, limits and schemas of the broker, in the name of the agent's user.

    ::

        async with connect("sip:olga@example.org", password="...", session=Operator.SESSION) as agent:
            async for row in agent.operator.sessions():
                print(row.user, row.status)

    Every user may ask about their own sessions. The sessions of others require a role in the server's settings:
    ``operator`` to list and peek, ``administrator`` also to purge, kick and discard. So do schemas of subjects:
    ``operator`` to list them, ``administrator`` to declare them. An argument ``user`` is a URI; None means all users
    that the agent's user may see. The rows are in :mod:`wanderbus.operator_rows`; they are requested in pages while
    they are read.

    Every request raises :class:`Refused` without the required role or for an unknown session, :class:`Closed` if the
    agent is closed, and :class:`RemoteProtocolError` if the broker's answer cannot be read. It waits while the agent is
    DISCONNECTED.
    """

    SESSION: Final = protocol.OPERATIONS
    """Session for agents that only make these requests: it gets no notifications and is not listed."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def sessions(self, user: str | None = None) -> AsyncIterator[SessionInfo]:
        """Yield the sessions with their devices and counters."""
        return self._inspect(SessionInfo, "sessions", user)

    def subscriptions(self, user: str | None = None) -> AsyncIterator[SubscriptionInfo]:
        """Yield the live subscriptions with all their fields."""
        return self._inspect(SubscriptionInfo, "subscriptions", user)

    def queues(self, user: str | None = None) -> AsyncIterator[QueueInfo]:
        """Yield the queue of each session, with its bounds."""
        return self._inspect(QueueInfo, "queues", user)

    def limits(self, user: str | None = None) -> AsyncIterator[LimitInfo]:
        """Yield the limits that were reached: by which party, how often, and why; without a role, only one's own."""
        return self._inspect(LimitInfo, "limits", user)

    def bounds(self) -> AsyncIterator[BoundInfo]:
        """Yield every bound of the server with its value; requires the role of operator."""
        return self._inspect(BoundInfo, "bounds", None)

    def engine(self) -> AsyncIterator[EngineInfo]:
        """Yield the matching engine beside the server, if events are for it; requires the role of operator."""
        return self._inspect(EngineInfo, "engine", None)

    def servers(self) -> AsyncIterator[ServerInfo]:
        """Yield the other servers of the event domain, as this server sees them; requires the role of operator."""
        return self._inspect(ServerInfo, "servers", None)

    def foreign_domains(self) -> AsyncIterator[DomainInfo]:
        """Yield the foreign domains, as this gateway sees them; requires the role of operator."""
        return self._inspect(DomainInfo, "domains", None)

    def groups(self) -> AsyncIterator[GroupInfo]:
        """Yield the channel groups that have moved or are about to; requires the role of operator."""
        return self._inspect(GroupInfo, "groups", None)

    def loads(self) -> AsyncIterator[GroupLoadInfo]:
        """Yield the load of each channel group that this server leads or led; requires the role of operator."""
        return self._inspect(GroupLoadInfo, "loads", None)

    async def process(self) -> ProcessInfo:
        """Return version and start of the server; requires the role of operator."""
        rows = [row async for row in self._inspect(ProcessInfo, "server", None)]
        if len(rows) != 1:
            raise RemoteProtocolError(f"the broker answered with {len(rows)} processes instead of one", None)
        return rows[0]

    def metrics(self) -> AsyncIterator[MetricInfo]:
        """Yield the metrics of the server, not older than a second; requires the role of operator."""
        return self._inspect(MetricInfo, "metrics", None)

    def filtering(self) -> AsyncIterator[PhaseInfo]:
        """Yield the counts of each phase of filtering; requires the role of operator."""
        return self._inspect(PhaseInfo, "filtering", None)

    def routes(self) -> AsyncIterator[RouteInfo]:
        """Yield what other servers want of decentralised channels; requires the role of operator."""
        return self._inspect(RouteInfo, "routes", None)

    def advertisements(self) -> AsyncIterator[AdvertisementInfo]:
        """Yield the advertisements of all devices; requires the role of operator."""
        return self._inspect(AdvertisementInfo, "advertisements", None)

    async def peek(
        self,
        user: str,
        session: str = "default",
        *,
        first: int = 1,
        count: int | None = None,
        subscription: str | None = None,
    ) -> AsyncIterator[Notification | Gap]:
        """Yield the items queued in a session from number ``first`` on, at most ``count``; they stay in the queue.

        With ``subscription``, only those for it. Gaps of several subscriptions that begin at one number are one item.
        """
        pages = Pages("what waits")
        while count is None or count > 0:
            ask = min(count or _ROWS, _ROWS)
            request = protocol.Peek(self._requests.next_request(), _uri(user), session, first, ask, subscription)
            answer = await self._requests.begin(request)
            for row in read_rows(ListedItem, "waiting", answer.rows):
                for item in _items(row):
                    yield item
            following = pages.next_number(answer.next)
            if following is None:
                return
            first = following
            count = None if count is None else count - len(answer.rows)

    async def purge(self, user: str, session: str = "default", subscription: str | None = None) -> int:
        """Discard the queue of a session, or its items for one subscription; return the number of discarded matches.

        The application receives a gap with the reason ``purged``. Items that arrive meanwhile stay.
        """
        purged: int = 0
        after: str | None = None
        pages = Pages("what was purged")
        while True:
            request = protocol.Purge(self._requests.next_request(), _uri(user), session, subscription, after)
            answer = await self._requests.begin(request)
            purged += sum(row.purged for row in read_rows(Purged, "purged", answer.rows))
            if (after := pages.next(answer.next)) is None:
                return purged

    async def kick(self, user: str, device: str | None = None, *, forget: bool = False) -> Sequence[KickedDevice]:
        """Close the connection of a device, or of all devices but this agent's; return a row for each.

        A device may reconnect and then receives what was queued for it. With ``forget`` it is removed from its session,
        which queues nothing for it any more.
        """
        request = protocol.Kick(self._requests.next_request(), _uri(user), device, forget)
        return read_rows(KickedDevice, "kicked", (await self._requests.begin(request)).rows)

    async def move(self, user: str, session: str, server: str) -> MovedSession:
        """Move a session from the server that this agent is connected to, to another ``server`` of its domain.

        Its devices follow, also this one: an agent may move its own session, for example to a server near by. Raises
        :class:`Refused` also if it stays where it is.
        """
        request = protocol.MoveSession(self._requests.next_request(), _uri(user), session, server)
        return read_rows(MovedSession, "moved", (await self._requests.begin(request)).rows)[0]

    async def dormant(self, session: str, name: str) -> TransferredSession:
        """Wait as a dormant instance ``name`` of an own session's application; return when it is its turn.

        Then start the application, which joins the session and subscribes as the present instance does. Nobody but
        the user and administrators can transfer the session, and what is to be started is known here alone.
        """
        request = protocol.AwaitTransfer(self._requests.next_request(), session, name)
        return read_rows(TransferredSession, "transferred", (await self._requests.begin(request)).rows)[0]

    async def transfer(self, user: str, session: str, to: str, *, device: str | None = None) -> TransferredSession:
        """Transfer the end point of a session to the dormant instance ``to``; return once that has joined.

        The subscriptions of the present instances end with the reason ``transferred``, or only those of ``device``.
        Each goes on with what it has, and the next instance behind that. Raises :class:`Refused` also if the dormant
        instance does not join; then everything waits for the next device that reads the session.
        """
        request = protocol.TransferSession(self._requests.next_request(), _uri(user), session, to, device)
        return read_rows(TransferredSession, "transferred", (await self._requests.begin(request)).rows)[0]

    async def copy_session(self, user: str, session: str = "default") -> SessionCopy:
        """Return a copy of a session, which goes on: its subscriptions, and what waits there.

        What its devices acknowledge while it is read may be in the copy nevertheless. Patterns, and subscriptions of
        one device alone, are left out.
        """
        return await copy_of(self, user, session)

    async def end_copied(self, copy: SessionCopy) -> SessionCopy:
        """End the subscriptions of a session that was copied; return the copy with everything that waits then.

        The session is to be discarded once the copy is stored. Raises the errors of :meth:`discard`.
        """
        await self._end_subscriptions(copy.user, copy.session)
        return msgspec.structs.replace(copy, items=await waiting_items(self, copy))

    async def import_session(
        self, copy: SessionCopy, *, user: str | None = None, session: str | None = None
    ) -> ImportedSession:
        """Make a session from a copy, of its user or another ``user``, with its name or another one.

        Subscriptions and events get new ids; subscriptions that have expired are left out. Raises :class:`Refused` if
        the user has such a session and something is in it, and :class:`LimitExceeded` if a bound does not allow it.
        """
        copy = copy.living(wall_us())
        whose, name = _uri(copy.user if user is None else user), copy.session if session is None else session
        several = list(pieces(copy))
        rows: Sequence[ImportedSession] = ()
        for place, (subscription, items) in enumerate(several):
            is_last = place == len(several) - 1
            request = protocol.ImportSession(
                self._requests.next_request(), whose, name, place, subscription, items, is_last
            )
            rows = read_rows(ImportedSession, "imported", (await self._requests.begin(request)).rows)
        if len(rows) != 1:
            raise RemoteProtocolError(f"the broker answered with {len(rows)} sessions instead of one", None)
        return rows[0]

    async def move_group(self, group: int | str, server: str, *, force: bool = False) -> MovedGroup:
        """Let another ``server`` lead an ordered channel group, given by its number or by a subject (SPEC J-08).

        All servers of the domain have to run. No event is lost or repeated, and its order stays. It returns when the
        server leads; :class:`Refused` if the group stays where it is. Needs the role of administrator.

        If the leader is gone and does not come back soon, ``force`` replaces it: every subscription of the group gets
        a gap, and events without an answer may be accepted twice. No server may have a link with the leader.
        """
        request = protocol.MoveGroup(self._requests.next_request(), group, server, force)
        return read_rows(MovedGroup, "moved", (await self._requests.begin(request)).rows)[0]

    async def drain(self, *, on: bool | None = None) -> DrainInfo:
        """Let the server that this agent is connected to drain, or take sessions again; return how far it is.

        A draining server moves all its sessions to the other servers of its domain, goes on after a restart, and
        redirects new ones. Without ``on``, only ask; that needs the role of operator, the rest that of administrator.
        """
        request = protocol.Drain(self._requests.next_request(), on)
        return read_rows(DrainInfo, "drained", (await self._requests.begin(request)).rows)[0]

    async def discard(self, user: str, session: str = "default") -> DiscardedSession:
        """Remove a session: its subscriptions, its devices and its queue; return how many (SPEC J-05).

        Its counters are added to those of the user's sessions that are over. After an interruption, discard it again. A
        device that still runs joins again, without subscriptions. Raises :class:`Refused` also if the agent has another
        session than :data:`SESSION`, unless there is no subscription.
        """
        purged = await self.purge(user, session)  # refuses at once what is not permitted
        ended = await self._end_subscriptions(user, session)
        devices = [each.device async for row in self.sessions(user) if row.session == session for each in row.devices]
        purged += await self.purge(user, session)
        for device in devices:
            await self.kick(user, device, forget=True)  # without the last one the session is over
        return DiscardedSession(len(ended), len(devices), purged)

    async def _end_subscriptions(self, user: str, session: str) -> set[str]:
        ended = await self._subscriptions_of(user, session)
        for subscription in ended:
            await self._requests.ask(protocol.Unsubscribe(self._requests.next_request(), subscription))
        if not ended.isdisjoint(await self._subscriptions_of(user, session)):
            raise Refused(f"only an agent with the session {self.SESSION!r} can discard a session")
        return ended

    async def _subscriptions_of(self, user: str, session: str) -> set[str]:
        return {row.subscription async for row in self.subscriptions(user) if row.session == session}

    def schemas(self, subject: str | None = None, *, every_version: bool = False) -> AsyncIterator[SubjectSchema]:
        """Yield the schema of a subject, or those of all subjects: the newest version of each, or every version."""

        def request(number: int, after: str | None) -> protocol.ListSchemas:
            return protocol.ListSchemas(number, subject, every_version, after, _ROWS)

        return self._listed(SubjectSchema, "schemas", request)

    async def declare_schema(self, subject: str, attributes: Iterable[DeclaredAttribute]) -> SubjectSchema:
        """Declare all attributes of a subject's events; return the version that holds from now on.

        A new version may add attributes, widen Integer to Double, and add units; :class:`Refused` for any other
        change. Without a change there is no new version. Events that do not fit a schema are still accepted.
        """
        request = protocol.DeclareSchema(self._requests.next_request(), subject, tuple(attributes))
        rows = read_rows(SubjectSchema, "schemas", (await self._requests.begin(request)).rows)
        if len(rows) != 1:
            raise RemoteProtocolError(f"the broker answered with {len(rows)} schemas instead of one", None)
        return rows[0]

    async def _inspect(self, kind: type[Row], what: protocol.Listed, user: str | None) -> AsyncIterator[Row]:
        whose = None if user is None else _uri(user)

        def request(number: int, after: str | None) -> protocol.Inspect:
            return protocol.Inspect(number, what, whose, after, _ROWS)

        async for row in self._listed(kind, what, request):
            if not isinstance(row, SessionInfo | QueueInfo) or row.session != self.SESSION:
                yield row

    async def _listed(
        self, kind: type[Row], what: str, request: Callable[[int, str | None], protocol.OperatorRequest]
    ) -> AsyncIterator[Row]:
        """Yield all rows, page by page; ``request`` makes a request of its number and the cursor of the page."""
        after: str | None = None
        pages = Pages(what)
        while True:
            answer = await self._requests.begin(request(self._requests.next_request(), after))
            for row in read_rows(kind, what, answer.rows):
                yield row
            if (after := pages.next(answer.next)) is None:
                return


def _uri(user: str) -> str:
    """Return the broker's name of a user: a canonical URI, or an address of the original ECI unchanged."""
    if user.startswith(SCHEME):
        return user
    return user_of(user)


def _items(row: ListedItem) -> Iterator[Notification | Gap]:
    """Yield the items at one number: a gap if any were discarded, and the notification if there is one."""
    if row.lost:
        reasons = ", ".join(dict.fromkeys(loss.reason for loss in row.lost))
        yield Gap(sum(loss.count for loss in row.lost), reasons, Position(row.epoch, row.last), row.lost)
    if row.event is not None and row.id is not None:
        yield Notification(check_listed(row.event), row.subscriptions, Position(row.epoch, row.first), row.id)
