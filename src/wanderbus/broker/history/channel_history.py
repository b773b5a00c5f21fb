"""Histories of channels by number: requests of users, read from the log of the channel's leader (SPEC K-03).

The server of a user checks the rights and passes a request to the leader; another server is trusted to have done so.
Users take turns, since one answer is read at a time. If the channel has had several leaders, each has the events of
its epochs: an answer ends where the next leader began, and its cursor names the epoch of that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from wanderbus import protocol
from wanderbus.broker.admission import check_subject, refusal
from wanderbus.broker.basics import Basics
from wanderbus.broker.groups.leaderships import Leaderships
from wanderbus.broker.history.leader_questions import Answer, LeaderQuestions, is_last
from wanderbus.broker.history.lookups import check_point
from wanderbus.broker.history.turns import Turns
from wanderbus.broker.listings import ANSWER_BYTES_MAX, ROWS_MAX, encoded_row, listing
from wanderbus.broker.messages import EventsRead, EventsWanted, HistoryWanted
from wanderbus.broker.permissions import Permissions
from wanderbus.broker.readers import Link
from wanderbus.broker.state.rows import LedRange
from wanderbus.broker.state.start import readable_as
from wanderbus.epochs import Leadership
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
    :param leaderships: the leaders of each channel
    """

    def __init__(
        self,
        basics: Basics,
        below: Callable[[str], tuple[str, ...]],
        questions: LeaderQuestions,
        leaderships: Leaderships,
    ) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._permissions = Permissions("may_subscribe", basics.config.may_subscribe)
        self._most = basics.config.user_subscriptions_max
        self._channels = basics.channels
        self._below = below
        self._questions = questions
        self._leaderships = leaderships
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
            led = self._asked_leader(link, request)
        except (LimitExceeded, Refused) as error:
            self._links.send(link, refusal(request.request, error))
            return
        self._last += 1
        request = msgspec.structs.replace(request, epoch=led.epoch)
        self._waiting[self._last] = link, request
        self._counts[link.user] += 1
        if led.server == self._state.server:
            self._turns.add(link.user, str(self._last))
        else:
            self._questions.ask(led.server, request, partial(self._answered, self._last))

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
            self._refuse(link, request, given.failed)
            return
        for message in listing(request.request, self._rows(request, given), self._cursor(request, wanted, given)):
            self._links.send(link, message)

    def _answered(self, number: int, answer: Answer) -> None:
        """Pass the answer of a leader, or a part of it, to the user."""
        link, request = self._take(number) if is_last(answer) else self._waiting[number]
        if not self._links.is_open(link):
            return
        if isinstance(answer, protocol.RequestRefused):
            self._refuse(link, request, answer.reason)
        else:
            self._links.send(link, msgspec.structs.replace(answer, request=request.request))

    def _refuse(self, link: Link, request: protocol.ListEvents, reason: str) -> None:
        """Refuse a request; what a former leader cannot answer is left out instead, and the row says why."""
        reason, subject, epoch = protocol.shortened(reason), request.subject, request.epoch
        following = self._leaderships.after(subject, epoch)
        if link.is_server or following is None or (led := self._leaderships.under(subject, epoch)) is None:
            self._links.send(link, protocol.RequestRefused(request.request, reason))
            return
        row = {**self._epoch_before(subject, epoch), "epoch": epoch, "led_before": led.server, "left_out": reason}
        self._links.send(link, protocol.Listing(request.request, (row,), next=f"{following.epoch}:"))

    def _cursor(self, request: protocol.ListEvents, wanted: EventsWanted, given: EventsRead) -> str | None:
        """Return where the history goes on behind an answer; None at its end."""
        subject, epoch = request.subject, request.epoch
        if given.end < wanted.piece.end:
            return f"{epoch}:{given.end}" if len(self._leaderships.of(subject)) > 1 else str(given.end)
        following = self._leaderships.after(subject, epoch)
        is_over = following is not None and self._is_over(request, given.end)
        return f"{following.epoch}:" if following is not None and is_over else None

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
        if subject == EVERY_SUBJECT and len(leaders := channels.leaders([subject])) != 1:
            names = " and ".join(sorted(leaders)) or "no servers"
            raise Refused(f"{names} lead the channels of '*', not {channels.server}; compare the domain files")
        if request.since is not None:
            check_point(request.since, self._state)

    def _asked_leader(self, link: Link, request: protocol.ListEvents) -> Leadership:
        """Return the leader that has what is asked for; raise :class:`Refused` if it is unknown."""
        subject, known = request.subject, self._leaderships.of(request.subject)
        if request.epoch:
            led = self._leaderships.under(subject, request.epoch)
        else:
            has_number = (request.first, request.last, request.newest) != (None, None, None)
            led = known[-1 if has_number or link.is_server else 0]
        if led is None and link.is_server and request.epoch > known[-1].epoch:
            raise Refused(f"{self._state.server} is about to lead the channel of {subject!r}; try again later")
        if led is None:
            epochs = ", ".join(str(each.epoch) for each in known)
            raise Refused(f"the channel of {subject!r} has no epoch {request.epoch} here (known: {epochs})")
        is_here = self._leaderships.range_of(subject, led.epoch) is not None
        if not is_here and (link.is_server or led.server == self._state.server):
            raise Refused(
                f"{led.server} leads the channel of {subject!r}, not {self._state.server}; compare the domain files"
            )
        return led

    def _wanted(self, number: int, request: protocol.ListEvents) -> EventsWanted:
        state, led = self._state, self._led(request)
        end = self._journal.durable if led.end is None else min(led.end, self._journal.durable)
        matched = Subscription("", "", "", request.subject, request.expression or "", language=request.language)
        piece = HistoryWanted(
            number,
            matched,
            state.server,
            state.incarnation,
            max(request.first or 0, led.first),
            end if request.last is None else min(end, request.last + 1),
            min(request.limit, ROWS_MAX),
            ANSWER_BYTES_MAX,
            self._filter_work_max,
            self._below(request.subject),
        )
        return EventsWanted(piece, request.newest, request.since)

    def _rows(self, request: protocol.ListEvents, given: EventsRead) -> Iterator[bytes]:
        first, before = self._led(request).first, self._epoch_before(request.subject, request.epoch)
        if _is_for_subscription(request):
            yield encoded_row(self._head(request, given))
            before = {}
        is_short = request.newest is not None and len(given.events) < request.newest
        is_earlier = request.first is not None and request.first < first
        if given.kept_from:
            yield encoded_row({"kept_from": given.kept_from})
        elif before and (is_short or is_earlier):
            yield encoded_row({"kept_from": first, **before})
        for each in given.events:
            row = {"number": each.offset, "epoch": request.epoch, "id": each.id, "user": each.user, "at_us": each.at_us}
            if each.undecided:
                row["undecided"] = each.undecided
            yield encoded_row({**row, "event": msgspec.Raw(each.event)}, EVENT_BYTES_MOST)

    def _head(self, request: protocol.ListEvents, given: EventsRead) -> Mapping[str, Any]:
        """Return the first row for another server."""
        head: dict[str, Any] = {"incarnation": readable_as(self._state), "epoch": self._state.epoch, "end": given.end}
        if given.failed:
            head["failed"] = protocol.shortened(given.failed)
        if request.since is not None and request.since.event is not None:
            head["led_under"] = self._leaderships.epoch_at(request.subject, given.end)
        return {**head, "is_over": True} if self._is_over(request, given.end) else head

    def _epoch_before(self, subject: str, epoch: int) -> Mapping[str, Any]:
        """Return the fields of a row about the leader before ``epoch``; none if it is unknown."""
        before = self._leaderships.before(subject, epoch)
        return {} if before is None else {"led_before": before.server, "epoch_before": before.epoch}

    def _is_over(self, request: protocol.ListEvents, number: int) -> bool:
        """Return whether this server accepts no events from ``number`` on under the epoch of a request."""
        end = self._led(request).end
        return end is not None and number >= end

    def _led(self, request: protocol.ListEvents) -> LedRange:
        """Return where the log has the events of a request that has been accepted."""
        led = self._leaderships.range_of(request.subject, request.epoch)
        assert led is not None
        return led

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
