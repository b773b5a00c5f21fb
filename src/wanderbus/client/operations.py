"""What an agent may ask about the broker, and do to it: one's own without a role, the rest with one (SPEC E-01, G-21).

    async with connect("sip:olga@example.org", password=..., session=SESSION) as agent:
        async for row in Operations(agent).sessions():
            print(row["user"], row["status"])

Answers come in parts, which are asked for as they are read. Whoever may not ask is refused by :class:`Refused`.
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

Row = Mapping[str, Any]
"""A row of a listing: see :mod:`wanderbus.broker.listings`."""

SESSION: Final = protocol.OPERATIONS
"""The session of who only asks: nothing is sent there, and it is not listed among the sessions of users."""

_ROWS: Final = 1_000
"""Asked for at once."""

_LEAVE_S_MAX: Final = 2.0
"""How long leaving waits until what was asked for in vain is ended."""


class Operations:
    """Requests of ``agent``'s user; a user is a URI, and None means everybody whom that user may see."""

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
        """Yield who is limited, by which bound, how often, and why; without a role, what limits oneself.

        ``party`` is a user, or a source: an IPv4 address or a /64 of IPv6.
        """
        return self._inspect("limits", user)

    def bounds(self) -> AsyncIterator[Row]:
        """Yield every bound of the server with its value; it takes the role of operator."""
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
        """Yield what waits in a session from number ``first`` on, ``count`` items at most; nothing is taken.

        With ``subscription`` that is what waits for it alone. Gaps of several that begin at one number are one item.
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
        """Drop what waits in a session, or in it for one subscription alone; return how many matches that were.

        The application hears of it as a gap whose reason is ``purged``. What comes meanwhile stays.
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
        """End the connection of a device, or of all but this agent's; return a row for each.

        A device may come back and finds what has waited for it. With ``forget`` it leaves its session, which keeps
        nothing for it any more.
        """
        request = protocol.Kick(self._requests.next_request(), _uri(user), device, forget)
        return checked_rows("kicked", (await self._requests.begin(request)).rows)

    async def unsubscribe(self, subscription: str) -> None:
        """End a subscription of the agent's user, in whatever session it is; its devices are told."""
        await self._requests.ask(protocol.Unsubscribe(self._requests.next_request(), subscription))

    async def leave(self) -> None:
        """End the membership of this agent's device: for one that will not come back, before it is closed."""
        # A subscription that nobody waited for is ended first: nobody else could end it.
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
    """Return the name by which the broker knows a user: an address of the original ECI stands as it is."""
    if user.startswith("eci:"):
        return user
    return user_of(user)


def _items(row: Row) -> Iterator[Notification | Gap]:
    """Yield what waits at one number: what was dropped, and a notification."""
    lost = msgspec.convert(row.get("lost", ()), tuple[Loss, ...])
    if lost:
        reasons = ", ".join(dict.fromkeys(loss.reason for loss in lost))
        yield Gap(sum(loss.count for loss in lost), reasons, Position(row["epoch"], row["last"]), lost)
    if "event" in row and "id" in row:
        event, position = read_event(row["event"]), Position(row["epoch"], row["first"])
        yield Notification(event, tuple(row.get("subscriptions", ())), position, EventId(*row["id"]))
