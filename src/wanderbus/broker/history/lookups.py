"""Requests for subscriptions that wait until the offset of their first record is found in the log (SPEC T-05).

The log is that of the server that leads the channel, or led it at that point. The requests are not stored: an agent
repeats them on its next connection.
"""

from __future__ import annotations

from collections.abc import Sequence

from wanderbus import protocol
from wanderbus.broker.basics import Basics
from wanderbus.broker.groups.leaderships import Leaderships
from wanderbus.broker.history.leader_pieces import LeaderPieces
from wanderbus.broker.messages import OffsetFound, OffsetWanted
from wanderbus.broker.readers import Link
from wanderbus.broker.state.rows import LogSpan, session_key
from wanderbus.broker.state.start import has_id
from wanderbus.broker.state.state import BrokerState
from wanderbus.epochs import Leadership
from wanderbus.errors import LimitExceeded, Refused
from wanderbus.event import Position
from wanderbus.subscription import Since, instant_shown


class Lookups:
    """Requests that wait, by number."""

    def __init__(self, basics: Basics, leader_pieces: LeaderPieces, leaderships: Leaderships) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._leader_pieces = leader_pieces
        self._leaderships = leaderships
        self._most = basics.config.user_subscriptions_max
        self._last = 0
        self._waiting: dict[int, tuple[Link, protocol.Subscribe, Leadership]] = {}
        """Each with the leader in whose log the place is looked up."""

    def check_channel(self, subject: str) -> None:
        """Raise :class:`Refused` if a subscription to ``subject`` cannot begin in the past."""
        self._leaderships.check_past(subject)

    def ask(self, link: Link, request: protocol.Subscribe) -> None:
        """Look up where a subscription begins; raise :class:`Refused` if there is no such place."""
        since = request.since
        assert since is not None
        assert link.session is not None
        led = self._begin(link, request.subject, since)
        if sum(waiting.user == link.user for waiting, _, _ in self._waiting.values()) >= self._most:
            reason = f"{self._most} requests of {link.user} wait until their first record is found; try again later"
            raise LimitExceeded(reason, "user_subscriptions_max")
        self._last += 1
        self._waiting[self._last] = link, request, led
        if led.server == self._state.server:
            self._journal.emit(OffsetWanted(self._last, since, link.user, link.session))
        else:
            self._leader_pieces.look_up(self._last, led, request.subject, since)

    def found(self, given: OffsetFound) -> tuple[Link, protocol.Subscribe, LogSpan | str] | None:
        """Return the request that waited, with the place or the reason why there is none; None if it is unknown."""
        if (waiting := self._waiting.pop(given.lookup, None)) is None:
            return None
        link, request, led = waiting
        return link, request, self._place(request, led, given)

    def _place(self, request: protocol.Subscribe, led: Leadership, given: OffsetFound) -> LogSpan | str:
        """Return where a subscription begins to read; a former leader that cannot say it is waited for, up to a gap."""
        since, subject, state = request.since or Since(), request.subject, self._state
        is_behind_event = since.event is not None or since.position is not None
        if given.offset is None and (is_behind_event or not led.until_us):
            return given.reason
        if given.log is not None:
            return LogSpan(*given.log, given.offset or 0, epoch=given.leader_epoch)
        if led.server != state.server:
            return LogSpan(led.server, 0, 0, epoch=led.epoch)
        offset = given.offset or 0
        here = self._leaderships.range_of(
            subject, self._leaderships.epoch_at(subject, offset) if is_behind_event else led.epoch
        )
        if here is None:
            return f"since: {state.server} does not know what it has accepted for {subject!r} in epoch {led.epoch}"
        if since.position is not None and here.end is not None and offset > here.end:
            return f"since position {since.position.number}: another server accepted that event; give its id, or a time"
        end = state.offset if here.end is None else here.end
        return LogSpan(state.server, state.incarnation, min(max(offset, here.first), end), epoch=here.epoch)

    def _begin(self, link: Link, subject: str, since: Since) -> Leadership:
        """Return the leader in whose log a subscription begins."""
        if sum(field is not None for field in (since.at_us, since.event, since.position)) > 1:
            raise Refused("since names one point: give either a time, an event or a position")
        known = self._leaderships.of(subject)
        if since.position is not None:
            return self._begin_behind(link, known, since.position)
        if since.event is not None:
            led = next((each for each in known if each.server == since.event.origin), None)
            if led is None:
                names = list(dict.fromkeys(each.server for each in known))
                lack = f"the log of {names[0]} has" if len(names) == 1 else f"the logs of {' and '.join(names)} have"
                raise Refused(f"since {since.event}: {lack} no such event; give the id of one of these events")
        else:
            at_us = since.at_us or 0
            led = next(each for each in known if not each.until_us or each.until_us >= at_us)
        if led.server == self._state.server:
            check_point(since, self._state)
        return led

    def _begin_behind(self, link: Link, known: Sequence[Leadership], position: Position) -> Leadership:
        """Return this server as a leader, in whose log the event with a position in the session is."""
        led = next((each for each in known if each.server == self._state.server), None)
        if led is None:
            raise Refused(
                f"since position {position.number}: the earlier events are in the log of {known[-1].server}, where "
                "this position means nothing; give the id of the event, or a time"
            )
        session = self._state.sessions[session_key(link.user, link.session or "")]
        if position.number <= 0 or not session.has(position):
            raise Refused(
                f"since position {position.number} of epoch {position.epoch}: the session {session.name!r} has no "
                "such notification; give one of this session"
            )
        return led


def check_point(since: Since, state: BrokerState) -> None:
    """Raise :class:`Refused` if the time or the event is no point of this server's past."""
    if since.at_us is not None and since.at_us > state.wall_us:
        now = instant_shown(state.wall_us)
        raise Refused(f"since {instant_shown(since.at_us)} is in the future (now {now}); leave it out to begin now")
    if (event := since.event) is not None and (event.origin != state.server or not has_id(state, event)):
        raise Refused(f"since {event}: the log of {state.server} has no such event; give the id of one of its events")
