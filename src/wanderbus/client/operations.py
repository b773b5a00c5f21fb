"""Operator requests to the broker: list, peek, purge, kick. Other users' data require a role (SPEC E-01, G-21).

    async with connect("sip:olga@example.org", password=..., session=SESSION) as agent:
        async for row in Operations(agent).sessions():
            print(row["user"], row["status"])

Responses are paged, and pages are requested as they are read. A request without the required role raises
:class:`Refused`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from wanderbus import protocol
from wanderbus.client.agent import Agent
from wanderbus.client.connect import user_of
from wanderbus.client.listed_rows import Pages, checked_rows, read_event
from wanderbus.event import EventId, Gap, Loss, Notification, Position
from wanderbus.protocol.eci_address import SCHEME

Row = Mapping[str, Any]
"""A row of a listing: see :mod:`wanderbus.broker.listings`."""

SESSION: Final = protocol.OPERATIONS
"""Session for agents that only make these requests: it gets no notifications and is not listed."""

_ROWS: Final = 1_000
"""Most rows per request."""

_LEAVE_S_MAX: Final = 2.0
"""Timeout of :meth:`Operations.leave` for ending subscriptions whose caller was cancelled."""


class Operations:
    """Requests in the name of ``agent``'s user. A ``user`` argument is a URI; None means all users that it may see."""

    def __init__(self, agent: Agent) -> None:
        self._requests = agent._requests
        self._readers = agent._readers

    def sessions(self, user: str | None = None) -> AsyncIterator[Row]:
        """Yield the sessions with their devices and counters."""
        return self._inspect("sessions", user)

    def subscriptions(self, user: str | None = None) -> AsyncIterator[Row]:
        """Yield the live subscriptions with all their fields."""
        return self._inspect("subscriptions", user)

    def queues(self, user: str | None = None) -> AsyncIterator[Row]:
        """Yield the queue of each session, with its bounds."""
        return self._inspect("queues", user)

    def limits(self, user: str | None = None) -> AsyncIterator[Row]:
        """Yield the limits that were reached: by which party, how often, and why; without a role, only one's own.

        ``party`` is a user, or a source: an IPv4 address or a /64 of IPv6.
        """
        return self._inspect("limits", user)

    def bounds(self) -> AsyncIterator[Row]:
        """Yield every bound of the server with its value; requires the role of operator."""
        return self._inspect("bounds", None)

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
            for row in checked_rows("waiting", answer.rows):
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
            purged += sum(row["purged"] for row in checked_rows("purged", answer.rows))
            if (after := pages.next(answer.next)) is None:
                return purged

    async def kick(self, user: str, device: str | None = None, *, forget: bool = False) -> Sequence[Row]:
        """Close the connection of a device, or of all devices but this agent's; return a row for each.

        A device may reconnect and then receives what was queued for it. With ``forget`` it is removed from its session,
        which queues nothing for it any more.
        """
        request = protocol.Kick(self._requests.next_request(), _uri(user), device, forget)
        return checked_rows("kicked", (await self._requests.begin(request)).rows)

    async def unsubscribe(self, subscription: str) -> None:
        """End a subscription of the agent's user, in any session; the session's devices are notified."""
        await self._requests.ask(protocol.Unsubscribe(self._requests.next_request(), subscription))

    async def leave(self) -> None:
        """Remove this agent's device from its session: before closing, for a device that will not return."""
        # First end subscriptions whose caller was cancelled: nobody else could end them.
        await self._readers.abandoned(_LEAVE_S_MAX)
        await self._requests.ask(protocol.Leave(self._requests.next_request()))

    async def _inspect(self, what: protocol.Listed, user: str | None) -> AsyncIterator[Row]:
        uri, after = None if user is None else _uri(user), None
        pages = Pages(what)
        while True:
            request = protocol.Inspect(self._requests.next_request(), what, uri, after, _ROWS)
            answer = await self._requests.begin(request)
            for row in checked_rows(what, answer.rows):
                if row.get("session") != SESSION or what == "subscriptions":
                    yield row
            if (after := pages.next(answer.next)) is None:
                return


def _uri(user: str) -> str:
    """Return the broker's name of a user: a canonical URI, or an address of the original ECI unchanged."""
    if user.startswith(SCHEME):
        return user
    return user_of(user)


def _items(row: Row) -> Iterator[Notification | Gap]:
    """Yield the items at one number: a gap if any were discarded, and the notification if there is one."""
    lost = msgspec.convert(row.get("lost", ()), tuple[Loss, ...])
    if lost:
        reasons = ", ".join(dict.fromkeys(loss.reason for loss in lost))
        yield Gap(sum(loss.count for loss in lost), reasons, Position(row["epoch"], row["last"]), lost)
    if "event" in row and "id" in row:
        event, position = read_event(row["event"]), Position(row["epoch"], row["first"])
        yield Notification(event, tuple(row.get("subscriptions", ())), position, EventId(*row["id"]))
