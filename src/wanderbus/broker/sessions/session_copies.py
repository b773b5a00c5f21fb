"""Sessions made from copies: the pieces of each are collected and checked, and become a session at once (SPEC J-05).

A copy comes from a file, so nothing in it is trusted: subscriptions are checked like requests, events like publishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.broker import admission
from wanderbus.broker.basics import Basics
from wanderbus.broker.interest.index_entries import IndexEntry
from wanderbus.broker.publish.acceptance import checked_bytes
from wanderbus.broker.queues.stored_blocks import CopiedEntry
from wanderbus.broker.readers import Link
from wanderbus.broker.servers.interest_requests import InterestRequests
from wanderbus.broker.sessions.awaited_sessions import AwaitedSessions
from wanderbus.broker.sessions.handover_messages import ASK_S, OthersAsked, SessionQuestion, SessionReported
from wanderbus.broker.sessions.session_ends import SessionEnds
from wanderbus.broker.state.copied_session import COPIED_BYTES_MAX, COPIED_MAX, following, new_ids, session_of_copy
from wanderbus.broker.state.exported_session import encode_export
from wanderbus.broker.state.rows import session_key
from wanderbus.broker.subscriptions import Subscriptions
from wanderbus.errors import EventError, LimitExceeded, Refused
from wanderbus.event import CopiedItem, Loss
from wanderbus.machine import SetTimer
from wanderbus.protocol.session_copy import LOST_MAX
from wanderbus.subscription import Subscription

COPIES_MAX: Final = 4
"""Copies whose pieces are collected at a time; another one takes the place of the one that waits longest."""

IDLE_S_MAX: Final = 30.0
"""Time without a piece after which a copy gives way to another one."""

_REASON_CHARACTERS_MAX: Final = 64


class _Copy:
    """The pieces of one copy that have come."""

    def __init__(self, user: str, session: str) -> None:
        self.target = user, session
        self.next = 0
        self.touched = 0.0
        self.subscriptions: dict[str, tuple[Subscription, Sequence[IndexEntry]]] = {}
        """By their ids in the copy."""
        self.items: list[CopiedEntry] = []
        self.waiting = 0
        self.bytes = 0


class _Asked:
    """A complete copy, for which the other servers are asked whether one of them has the session."""

    def __init__(
        self, link: Link, request: protocol.ImportSession, copy: _Copy, others: set[str], until: float
    ) -> None:
        self.link, self.request, self.copy = link, request, copy
        self.unanswered = others
        self.until = until


class SessionCopies:
    """Makes sessions of copies."""

    def __init__(
        self,
        basics: Basics,
        subscriptions: Subscriptions,
        ends: SessionEnds,
        awaited: AwaitedSessions,
        interest: InterestRequests,
    ) -> None:
        self._state = basics.state
        self._links = basics.links
        self._servers = basics.servers
        self._limits = basics.queue_limits
        self._subscriptions_max = basics.config.user_subscriptions_max
        self._sessions_max = basics.config.sessions_max
        self._subscriptions = subscriptions
        self._ends = ends
        self._awaited = awaited
        self._interest = interest
        self._journal = basics.journal
        self._others = () if basics.channels is None else basics.channels.others
        self._copies: dict[int, _Copy] = {}
        """By the link on which each comes."""
        self._asked: dict[str, _Asked] = {}
        """By the key of the session."""

    def take(self, link: Link, request: protocol.ImportSession) -> None:
        """Take a piece; its answer has the counts of the session once that is made.

        Raises the errors of requests for subscriptions, after which the copy is given up.
        """
        copy = self._copies.pop(link.link, None)
        if request.place == 0:
            self._check_target(request)
            copy = _Copy(request.user, request.session)
            self._make_room()
        if copy is None or copy.target != (request.user, request.session) or copy.next != request.place:
            raise Refused("the import was interrupted; list the sessions, and import the copy again if it is not there")
        copy.next, copy.touched = request.place + 1, self._links.now
        if request.subscription is not None:
            self._add_subscription(copy, request.subscription)
        for item in request.items:
            self._add(copy, item)
        if request.is_last:
            self._ask(link, request, copy)
        else:
            self._copies[link.link] = copy
            self._links.send(link, protocol.Listing(request.request, ()))

    def _ask(self, link: Link, request: protocol.ImportSession, copy: _Copy) -> None:
        """Import the session unless another server has it; one that does not answer has none (decision 0096)."""
        if not self._others:
            self._finish(link, request, copy)
            return
        key, until = session_key(*copy.target), self._links.now + ASK_S
        if key in self._asked or len(self._asked) >= COPIES_MAX:
            raise LimitExceeded("other sessions are imported at the moment; try again", "copies_max")
        self._asked[key] = _Asked(link, request, copy, set(self._others), until)
        self._journal.emit(OthersAsked(SessionQuestion(*copy.target)))
        self._journal.emit(SetTimer(("import", key), until))

    def reported(self, given: SessionReported) -> None:
        """Take the word of another server about a session that is to be imported."""
        user, name = given.question.user, given.question.session
        if (asked := self._asked.get(session_key(user, name))) is None:
            return
        asked.unanswered.discard(given.server)
        if given.is_here:
            del self._asked[session_key(user, name)]
            reason = f"{user} has a session {name!r} at {given.server} already; give the copy another name"
            self._refuse(asked, Refused(reason))

    def go_on(self) -> None:
        """Import the sessions for which all servers have answered, or have had the time to."""
        for key, asked in list(self._asked.items()):
            if asked.unanswered and self._links.now < asked.until:
                continue
            del self._asked[key]
            if self._links.is_open(asked.link):
                try:
                    self._finish(asked.link, asked.request, asked.copy)
                except (LimitExceeded, Refused) as error:
                    self._refuse(asked, error)

    def _refuse(self, asked: _Asked, error: LimitExceeded | Refused) -> None:
        if self._links.is_open(asked.link):
            self._links.send(asked.link, admission.refusal(asked.request.request, error))

    def _make_room(self) -> None:
        """Forget the copies of closed links, and the one that waits longest if there are too many."""
        self._copies = {link: each for link, each in self._copies.items() if self._links.get(link)}
        if len(self._copies) < COPIES_MAX:
            return
        longest = min(self._copies, key=lambda link: self._copies[link].touched)
        if self._links.now - self._copies[longest].touched < IDLE_S_MAX:
            raise LimitExceeded(f"{COPIES_MAX} sessions are imported at the moment; try again later", "copies_max")
        del self._copies[longest]

    def _check_target(self, request: protocol.ImportSession) -> None:
        """Raise :class:`Refused` unless there is no such session, or nothing in it but devices."""
        user, name = request.user, request.session
        key = session_key(user, name)
        session = self._state.sessions.get(key)
        if self._servers.reserves(user):
            raise Refused(f"{user} is reserved; its session cannot be made of a copy")
        if name == protocol.OPERATIONS or not protocol.SESSION_NAME.fullmatch(name):
            raise Refused(f"{name!r} cannot be the name of a session with subscriptions")
        if key in self._state.awaited or (session is not None and session.is_fenced):
            raise Refused(f"the session {name!r} of {user} is at another server, or on its way")
        if session is not None and not session.is_empty:
            raise Refused(f"{user} has a session {name!r} already; give the copy another name, or discard the session")
        if session is None and len(self._ends.counted(user)) >= self._sessions_max:
            raise LimitExceeded(f"{user} has the maximum of {self._sessions_max} sessions", "sessions_max")

    def _add_subscription(self, copy: _Copy, subscription: Subscription) -> None:
        if subscription.id in copy.subscriptions:
            raise Refused(f"the copy has two subscriptions {subscription.id!r}")
        copy.subscriptions[subscription.id] = self._subscriptions.copied(*copy.target, subscription)
        self._subscriptions.check_room([copy.subscriptions[subscription.id]])
        if len(copy.subscriptions) > self._subscriptions_max:
            raise LimitExceeded(
                f"a user has at most {self._subscriptions_max} subscriptions, the copy has more",
                "user_subscriptions_max",
            )

    def _add(self, copy: _Copy, item: CopiedItem) -> None:
        if unknown := [each for each in _named(item) if each not in copy.subscriptions]:
            raise Refused(f"the copy has an item for {unknown[0]!r}, which is no subscription before it")
        for each in _checked(item.lost):
            copy.items.append(CopiedEntry(b"", (each.subscription,), {each.reason: each.count}))
        if item.event is not None:
            if not item.subscriptions or len(set(item.subscriptions)) < len(item.subscriptions):
                raise Refused("the copy has an event that does not name each of its subscriptions once")
            try:
                data = checked_bytes(item.event, self._links.event_bytes_max)
            except EventError as error:
                raise Refused(f"the copy has an invalid event: {error}") from None
            copy.items.append(CopiedEntry(data, item.subscriptions))
            copy.waiting += 1
            copy.bytes += len(data)
        self._check_size(copy)

    def _check_size(self, copy: _Copy) -> None:
        if reason := self._limits.refuses_copy(copy.target[0], copy.waiting, copy.bytes):
            raise LimitExceeded(f"the copy exceeds {reason}", reason)
        if copy.bytes > COPIED_BYTES_MAX or len(copy.items) + len(copy.subscriptions) > COPIED_MAX:
            raise LimitExceeded(
                f"a copy has at most {COPIED_MAX} subscriptions and items, and {COPIED_BYTES_MAX} bytes of events",
                "copied_max",
            )

    def _finish(self, link: Link, request: protocol.ImportSession, copy: _Copy) -> None:
        """Import the session, and answer once its subscriptions count."""
        self._check_target(request)
        self._subscriptions.check_room(list(copy.subscriptions.values()))
        first, new = new_ids(self._state), dict[str, Subscription]()
        for place, (identity, (wanted, _)) in enumerate(copy.subscriptions.items()):
            new[identity] = msgspec.structs.replace(wanted, id=str(following(first, place)))
        items = [each._replace(subscriptions=tuple([new[s].id for s in each.subscriptions])) for each in copy.items]
        exported = session_of_copy(self._state, *copy.target, list(new.values()), items)
        session = self._awaited.take_in(exported, encode_export(exported))
        row = {"subscriptions": len(new), "notifications": copy.waiting, "session": session.name}
        self._answer_when_effective(link, list(new.values()), protocol.Listing(request.request, (row,)))

    def _answer_when_effective(
        self, link: Link, subscriptions: Sequence[Subscription], answer: protocol.Listing
    ) -> None:
        """Answer once every subscription is effective at all other servers, and no agent holds its events back."""
        waiting = {each.id for each in subscriptions}

        def send() -> None:
            if self._links.is_open(link):
                self._links.send(link, answer)

        def effective(identity: str = "") -> None:
            waiting.discard(identity)
            if not waiting:
                self._subscriptions.when_used(subscriptions, send)

        if not waiting:
            effective()
        for each in subscriptions:
            self._interest.when_effective(each.id, link, partial(effective, each.id))


def _named(item: CopiedItem) -> Sequence[str]:
    return (*item.subscriptions, *(each.subscription for each in item.lost))


def _checked(lost: Sequence[Loss]) -> Sequence[Loss]:
    """Return what was lost; :class:`Refused` if a count or a reason is impossible."""
    for each in lost:
        if not 0 < each.count <= LOST_MAX or not 0 < len(each.reason) <= _REASON_CHARACTERS_MAX:
            raise Refused("the copy has a gap with an impossible count or reason")
    return lost
