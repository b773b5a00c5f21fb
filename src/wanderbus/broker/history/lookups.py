"""Requests for subscriptions that wait until the offset of their first record is found in the log (SPEC T-05).

The log is that of the server that leads the channel. The requests are not stored: an agent repeats them on its next
connection.
"""

from __future__ import annotations

from wanderbus import protocol
from wanderbus.broker.history.leader_pieces import LeaderPieces
from wanderbus.broker.messages import OffsetFound, OffsetWanted
from wanderbus.broker.readers import Link
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import session_key
from wanderbus.broker.state.start import has_id
from wanderbus.broker.state.state import BrokerState
from wanderbus.errors import LimitExceeded, Refused
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.subscription import Since, instant_shown


class Lookups:
    """Requests that wait, by number."""

    def __init__(self, state: BrokerState, journal: Journal, config: BrokerConfig, leader_pieces: LeaderPieces) -> None:
        self._state = state
        self._journal = journal
        self._leader_pieces = leader_pieces
        self._most = config.user_subscriptions_max
        self._last = 0
        self._waiting: dict[int, tuple[Link, protocol.Subscribe]] = {}

    def ask(self, link: Link, request: protocol.Subscribe, leader: str) -> None:
        """Request the first offset in the log of ``leader``, "" for this server; :class:`Refused` if there is none."""
        assert request.since is not None
        assert link.session is not None
        self._check(link, request.since, leader)
        if sum(waiting.user == link.user for waiting, _ in self._waiting.values()) >= self._most:
            reason = f"{self._most} requests of {link.user} wait until their first record is found; try again later"
            raise LimitExceeded(reason, "user_subscriptions_max")
        self._last += 1
        self._waiting[self._last] = link, request
        if leader:
            self._leader_pieces.look_up(self._last, leader, request.subject, request.since)
        else:
            self._journal.emit(OffsetWanted(self._last, request.since, link.user, link.session))

    def found(self, given: OffsetFound) -> tuple[Link, protocol.Subscribe] | None:
        """Return the request that waited, None if it is unknown."""
        return self._waiting.pop(given.lookup, None)

    def _check(self, link: Link, since: Since, leader: str) -> None:
        if sum(field is not None for field in (since.at_us, since.event, since.position)) > 1:
            raise Refused("since names one point: give either a time, an event or a position")
        if (position := since.position) is not None:
            if leader:
                raise Refused(
                    f"since position {position.number}: the earlier events are in the log of {leader}, where this "
                    "position means nothing; give the id of the event, or a time"
                )
            session = self._state.sessions[session_key(link.user, link.session or "")]
            if position.number <= 0 or not session.has(position):
                raise Refused(
                    f"since position {position.number} of epoch {position.epoch}: the session {session.name!r} has no "
                    "such notification; give one of this session"
                )
        if not leader:
            check_point(since, self._state)


def check_point(since: Since, state: BrokerState) -> None:
    """Raise :class:`Refused` if the time or the event is no point of this server's past."""
    if since.at_us is not None and since.at_us > state.wall_us:
        now = instant_shown(state.wall_us)
        raise Refused(f"since {instant_shown(since.at_us)} is in the future (now {now}); leave it out to begin now")
    if (event := since.event) is not None and (event.origin != state.server or not has_id(state, event)):
        raise Refused(f"since {event}: the log of {state.server} has no such event; give the id of one of its events")
