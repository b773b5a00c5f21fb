"""Sessions that are over: their counters are summed by user, and another session continues with their numbers.

The numbers of a user's session are thus never used again, so a device with an old position cannot take new
notifications for old ones, and the records of the log stay distinct.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wanderbus.broker.state.rows import FormerRow, PastSessions, session_key

if TYPE_CHECKING:
    from wanderbus.broker.state.state import BrokerState


def end_session(state: BrokerState, user: str, name: str) -> None:
    """Remove a session that is over, and sum up its counters; one without notifications leaves nothing."""
    if (session := state.sessions.get(session_key(user, name))) is None:
        return
    state.remove_session(session)
    state.wanting_room.discard(session.key)
    if session.next == 1 and not session.restricted:
        return
    former = state.former.get(session.user) or FormerRow()
    former.sessions = former.sessions or PastSessions()
    former.sessions.add(session)
    state.former.put(session.user, former)


def next_number(state: BrokerState, user: str) -> int:
    """Return the number of the first notification of a new session: above those of the sessions that are over."""
    former = state.former.get(user)
    return 1 if former is None or former.sessions is None else former.sessions.next
