"""Histories of channels by number: requests of users, read from the log of the channel's leader (SPEC K-03).

The server of a user checks the rights and passes a request to the leader; another server is trusted to have done so.
Users take turns, since one answer is read at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.admission import check_subject, refusal
from wanderbus.broker.basics import Basics
from wanderbus.broker.history.leader_questions import Answer, LeaderQuestions, is_last
from wanderbus.broker.history.lookups import check_point
from wanderbus.broker.history.turns import Turns
from wanderbus.broker.listings import ANSWER_BYTES_MAX, ROWS_MAX, encoded_row, listing
from wanderbus.broker.messages import EventsRead, EventsWanted, HistoryWanted
from wanderbus.broker.permissions import Permissions
from wanderbus.broker.readers import Link
from wanderbus.broker.state.rows import GroupRow
from wanderbus.broker.state.start import readable_as
from wanderbus.errors import LimitExceeded, Refused
from wanderbus.limits import EVENT_BYTES_MOST
from wanderbus.subscription import EVERY_SUBJECT, Subscription

NEWEST_MAX: Final = 10_000
"""Newest events of one request: they are searched from the end of the log backwards."""


class ChannelHistory:
    """Requests that wait for an answer, of this server's log or of a leader.

    :param channels: the channels of the domain; None if this server is alone
    :param below: returns a subject and all subjects below it
    :param questions: passes requests to other leaders
    """

    def __init__(self, basics: Basics, below: Callable[[str], tuple[str, ...]], questions: LeaderQuestions) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._permissions = Permissions("may_subscribe", basics.config.may_subscribe)
        self._most = basics.config.user_subscriptions_max
        self._channels = basics.channels
        self._below = below
        self._questions = questions
        self._filter_work_max = basics.config.filter_work_max
        self._last = 0
        self._waiting: dict[int, tuple[Link, protocol.ListEvents]] = {}
        self._counts: Counter[str] = Counter()
        """Number of requests of each user that wait."""
        self._turns = Turns()
        self._asked: EventsWanted | None = None

    @property
    def waiting(self) -> Collection[object]:
        """Return the requests that have no answer yet."""
        return list(self._waiting)

    def ask(self, link: Link, request: protocol.ListEvents) -> None:
        """Take a request; it is answered once the events are read."""
        try:
            self._check(link, request)
        except (LimitExceeded, Refused) as error:
            self._links.send(link, refusal(request.request, error))
            return
        self._last += 1
        self._waiting[self._last] = link, request
        self._counts[link.user] += 1
        if self._is_led_here(request.subject):
            self._turns.add(link.user, str(self._last))
        else:
            assert self._channels is not None
            leader = self._channels.leader(request.subject)
            self._questions.ask(leader, request, partial(self._answered, self._last))

    def go_on(self) -> None:
        """Read the next answer, if none is being read."""
        while self._asked is None and self._turns:
            number = int(self._turns.take())
            link, request = self._waiting[number]
            if self._links.is_open(link):
                self._asked = self._wanted(number, request)
                self._journal.emit_now(self._asked)
            else:
                self._take(number)

    def read(self, given: EventsRead) -> None:
        """Answer a request with the events that were read for it."""
        if (wanted := self._asked) is None or wanted.piece.piece != given.reading:
            return
        self._asked = None
        link, request = self._take(given.reading)
        if not self._links.is_open(link):
            return
        if given.failed and not (given.is_lost and request.expression is not None):
            self._links.send(link, protocol.RequestRefused(request.request, protocol.shortened(given.failed)))
            return
        after = str(given.end) if given.end < wanted.piece.end else None
        for message in listing(request.request, self._rows(request, given), after):
            self._links.send(link, message)

    def _answered(self, number: int, answer: Answer) -> None:
        """Pass the answer of a leader, or a part of it, to the user."""
        link, request = self._take(number) if is_last(answer) else self._waiting[number]
        if self._links.is_open(link):
            self._links.send(link, msgspec.structs.replace(answer, request=request.request))

    def _check(self, link: Link, request: protocol.ListEvents) -> None:
        """Raise :class:`Refused` for a request that is not permitted or not valid."""
        subject, channels = request.subject, self._channels
        check_subject(subject, is_server=link.is_server)
        if _is_for_subscription(request):
            self._check_reading_server(link, request)
            return
        if subject == EVERY_SUBJECT:
            raise Refused("a history is that of one channel, and '*' is every subject; give one subject")
        if request.limit < 1 or (request.newest is not None and not 1 <= request.newest <= NEWEST_MAX):
            raise Refused(f"limit and newest are at least 1, and newest at most {NEWEST_MAX}; ask for fewer events")
        if channels is not None and channels.decentralised is not None and channels.decentralised.concerns(subject):
            raise Refused(f"the channel of {subject!r} is decentralised: no server has numbered its events")
        if link.is_server:
            if not self._is_led_here(subject):
                assert channels is not None
                leader = channels.leader(subject)
                raise Refused(
                    f"{leader} leads the channel of {subject!r}, not {channels.server}; compare the domain files"
                )
            return
        if reason := self._permissions.refusal(link.user, subject):
            raise Refused(reason)
        if self._counts[link.user] >= self._most:
            reason = f"{self._most} requests of {link.user} wait until their events are read; try again later"
            raise LimitExceeded(reason, "user_subscriptions_max")

    def _check_reading_server(self, link: Link, request: protocol.ListEvents) -> None:
        """Raise :class:`Refused` unless another server reads here for a subscription to a channel of this one."""
        subject, channels = request.subject, self._channels
        if not link.is_server or channels is None:
            raise Refused("a listing with since or an expression is for servers of the domain; subscribe instead")
        if (leaders := channels.leaders([subject])) != {channels.server}:
            names = " and ".join(sorted(leaders))
            raise Refused(f"{names} leads the channel of {subject!r}, not {channels.server}; compare the domain files")
        if request.since is not None:
            check_point(request.since, self._state)

    def _is_led_here(self, subject: str) -> bool:
        return self._channels is None or self._channels.leads(subject)

    def _wanted(self, number: int, request: protocol.ListEvents) -> EventsWanted:
        end, state = self._journal.durable, self._state
        matched = Subscription("", "", "", request.subject, request.expression or "", language=request.language)
        piece = HistoryWanted(
            number,
            matched,
            state.server,
            state.incarnation,
            max(request.first or 0, self._led_since(request.subject).since),
            end if request.last is None else min(end, request.last + 1),
            min(request.limit, ROWS_MAX),
            ANSWER_BYTES_MAX,
            self._filter_work_max,
            self._below(request.subject),
        )
        return EventsWanted(piece, request.newest, request.since)

    def _rows(self, request: protocol.ListEvents, given: EventsRead) -> Iterator[bytes]:
        epoch = 0 if self._channels is None else self._channels.directory.lookup(request.subject).epoch
        if _is_for_subscription(request):
            log = {"incarnation": readable_as(self._state), "epoch": self._state.epoch, "end": given.end}
            yield encoded_row({**log, "failed": protocol.shortened(given.failed)} if given.failed else log)
        led = self._led_since(request.subject)
        is_short = request.newest is None or len(given.events) < request.newest
        if given.kept_from:
            yield encoded_row({"kept_from": given.kept_from})
        elif (request.first or 0) < led.since and is_short:
            yield encoded_row({"kept_from": led.since, "led_before": led.former})
        for each in given.events:
            row = {"number": each.offset, "epoch": epoch, "id": each.id, "user": each.user, "at_us": each.at_us}
            if each.undecided:
                row["undecided"] = each.undecided
            yield encoded_row({**row, "event": msgspec.Raw(each.event)}, EVENT_BYTES_MOST)

    def _led_since(self, subject: str) -> GroupRow:
        """Return since when this server leads a channel, and which one led it before, if that has changed."""
        if self._channels is None or not self._state.groups.rows:
            return GroupRow()
        return self._state.groups.row(self._channels.directory.groups.group_of(subject))

    def _take(self, number: int) -> tuple[Link, protocol.ListEvents]:
        """Remove a request that waited."""
        link, request = self._waiting.pop(number)
        self._counts[link.user] -= 1
        if not self._counts[link.user]:
            del self._counts[link.user]
        return link, request


def _is_for_subscription(request: protocol.ListEvents) -> bool:
    """Return whether a server reads for a subscription that begins in the past."""
    return request.since is not None or request.expression is not None
