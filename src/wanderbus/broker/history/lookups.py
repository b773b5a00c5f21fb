"""Requests for subscriptions that wait until the offset of their first record is found in the log (SPEC T-05).

They are not stored: an agent repeats a request on its next connection.
"""

from __future__ import annotations

from wanderbus import protocol
from wanderbus.broker.messages import OffsetFound, OffsetWanted
from wanderbus.broker.readers import Link
from wanderbus.broker.state.journal import Journal
from wanderbus.broker.state.rows import session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.errors import LimitExceeded, Refused
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.subscription import Since, instant_shown


class Lookups:
    """Requests that wait, by number."""

    def __init__(self, state: BrokerState, journal: Journal, config: BrokerConfig) -> None:
        self._state = state
        self._journal = journal
        self._most = config.user_subscriptions_max
        self._last = 0
        self._waiting: dict[int, tuple[Link, protocol.Subscribe]] = {}

    def ask(self, link: Link, request: protocol.Subscribe) -> None:
        """Request the first offset; :class:`Refused` if the point is no point of this server's past."""
        assert request.since is not None
        assert link.session is not None
        self._check(link, request.since)
        if sum(waiting.user == link.user for waiting, _ in self._waiting.values()) >= self._most:
            reason = f"{self._most} requests of {link.user} wait until their first record is found; try again later"
            raise LimitExceeded(reason, "user_subscriptions_max")
        self._last += 1
        self._waiting[self._last] = link, request
        self._journal.emit(OffsetWanted(self._last, request.since, link.user, link.session))

    def found(self, given: OffsetFound) -> tuple[Link, protocol.Subscribe] | None:
        """Return the request that waited, None if it is unknown."""
        return self._waiting.pop(given.lookup, None)

    def _check(self, link: Link, since: Since) -> None:
        if sum(field is not None for field in (since.at_us, since.event, since.position)) > 1:
            raise Refused("since names one point: give either a time, an event or a position")
        if since.at_us is not None and since.at_us > self._state.wall_us:
            now = instant_shown(self._state.wall_us)
            raise Refused(f"since {instant_shown(since.at_us)} is in the future (now {now}); leave it out to begin now")
        if (event := since.event) is not None:
            ours = (event.origin, event.incarnation) == (self._state.server, self._state.incarnation)
            if not ours or event.number >= self._state.offset:
                raise Refused(f"since {event}: this server's log has no such event; give the id of one of its events")
        if (position := since.position) is not None:
            session = self._state.sessions[session_key(link.user, link.session or "")]
            if position.epoch != session.epoch or not 0 < position.number < session.next:
                raise Refused(
                    f"since position {position.number} of epoch {position.epoch}: the session {session.name!r} has no "
                    "such notification; give one of this session"
                )
