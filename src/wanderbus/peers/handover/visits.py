"""Visits of users of this domain to other domains, whose servers ask for the sessions of these users (decision 0174).

A session moves to the server that asks if the operator gives sessions to its domain, and if the proxy of this domain
has proved that the user has called there: nobody gets the session of a user who has not. A proof counts once, and for a
minute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wanderbus.broker.sessions.handover_messages import MoveSession, SessionMoveEnded, UserUnowned
from wanderbus.broker.state.rows import session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.peers.handover.far_moves import FarMoves
from wanderbus.peers.handover.leaving_sessions import LeavingSessions
from wanderbus.peers.handover.messages import VisitorAnswered, VisitorCame
from wanderbus.peers.session_owners import owns
from wanderbus.sip.proxy.visit_proofs import VisitProof, is_proved

PROOF_S: Final = 60
"""Difference of the time of a proof to now at which it does not count any more: clocks of a domain may differ."""

PROOFS_MAX: Final = 4_096
"""Largest number of proofs of calls to one foreign domain that count within that time; a further one is refused."""

MOVES_MAX: Final = 128
"""Largest number of sessions that are on their way to one foreign domain because it has asked for them."""

_UNPROVED: Final = "the proxy of {} has not proved that this user called there within the last minute"


class Visits:
    """Answers the servers of other domains that users of this one have called.

    :param leaving: moves the sessions
    :param key: that by which proxies of this domain prove calls; if it is empty, no call is proved
    """

    def __init__(
        self,
        state: BrokerState,
        domain: str,
        far: FarMoves,
        leaving: LeavingSessions,
        key: bytes,
        emit: Callable[[UserUnowned], None],
    ) -> None:
        self._state = state
        self._domain = domain
        self._far = far
        self._leaving = leaving
        self._key = key
        self._emit = emit
        self._now_s = 0
        """Unix second, 0 while the wall clock is not known."""
        self._used: dict[str, dict[str, int]] = {}
        """Calls whose proofs have counted, and the second of each, by the domain that was called."""
        self._moving: dict[tuple[str, str], tuple[str, int]] = {}
        """Server and question of each session that is on its way because of a visit."""

    def clock_read(self, wall_us: int) -> None:
        """Note the wall clock, by which proofs become old."""
        self._now_s = wall_us // 1_000_000

    def came(self, server: str, asked: VisitorCame) -> None:
        """Answer a server of another domain, and move the session there."""
        key = asked.user, asked.session
        if asked.is_certain:
            self._forget_left(server, key)
        if not asked.wants_session:
            self._answer(server, asked.request)
        elif self._is_moving(server, asked):
            self._moving[key] = server, asked.request
            self._answer(server, asked.request, is_coming=True)
        elif self._has_moved(server, asked):
            self._answer(server, asked.request, is_coming=True)
        elif reason := self._refusal(server, asked):
            self._answer(server, asked.request, reason)
        elif self._has(key) and not (reason := self._obstacle(server, key)):
            self._moving[key] = server, asked.request
            self._answer(server, asked.request, is_coming=True)
            self._leaving.begin(MoveSession(*key, server, "visit"))
        else:
            self._answer(server, asked.request, reason)

    def ended(self, ended: SessionMoveEnded) -> None:
        """Tell the server that has asked for a session that it stays."""
        found = self._moving.pop((ended.user, ended.session), None)
        if found is not None and ended.reason:
            self._answer(*found, ended.reason)

    def _is_moving(self, server: str, asked: VisitorCame) -> bool:
        """Return whether a session is on its way to a server because of this call: the question was repeated."""
        found = self._moving.get((asked.user, asked.session))
        return found is not None and found[0] == server and self._has_proved(server, asked)

    def _has_moved(self, server: str, asked: VisitorCame) -> bool:
        """Return whether a session has moved to a server because of this call: the question was repeated too late."""
        row = self._state.sessions.get(session_key(asked.user, asked.session))
        return row is not None and row.is_fenced and row.next_owner == server and self._has_proved(server, asked)

    def _has_proved(self, server: str, asked: VisitorCame) -> bool:
        """Return whether this call was proved before."""
        return asked.call in self._used.get(server.partition("/")[0], ())

    def _refusal(self, server: str, asked: VisitorCame) -> str:
        """Return why a server may not ask for a session, "" if it may: it says nothing of the session."""
        if reason := self._far.obstacle(server):
            return reason
        return "" if self._proves(server.partition("/")[0], asked) else _UNPROVED.format(self._domain)

    def _has(self, key: tuple[str, str]) -> bool:
        """Return whether a session is here in which something could be lost."""
        session = self._state.sessions.get(session_key(*key))
        return session is not None and not session.is_fenced and owns(self._state, *key)

    def _obstacle(self, server: str, key: tuple[str, str]) -> str:
        """Return why a session does not move to a server that may ask for it, "" if it does."""
        domain = server.partition("/")[0]
        if sum(each.startswith(f"{domain}/") for each, _ in self._moving.values()) >= MOVES_MAX:
            return f"{MOVES_MAX} sessions are on their way to {domain} already; try again later"
        return self._leaving.obstacle(MoveSession(*key, server))

    def _proves(self, domain: str, asked: VisitorCame) -> bool:
        """Return whether a user has called a domain, and use the proof up."""
        now_s = self._now_s
        proof = VisitProof(asked.at_s, asked.mac)
        used = self._used.setdefault(domain, {})
        while used and next(iter(used.values())) + 2 * PROOF_S < now_s:
            del used[next(iter(used))]
        is_fresh = abs(now_s - asked.at_s) <= PROOF_S and asked.call not in used and len(used) < PROOFS_MAX
        if not (is_fresh and self._key and is_proved(proof, self._key, asked.user, domain, asked.call, asked.session)):
            return False
        used[asked.call] = now_s
        return True

    def _forget_left(self, server: str, key: tuple[str, str]) -> None:
        """Forget that a session has moved to a domain that has it no longer, so that it can begin again here."""
        row = self._state.sessions.get(session_key(*key))
        if row is None or not row.has_left_domain or self._state.left_for(row.key) is not None:
            return
        if row.next_owner.partition("/")[0] == server.partition("/")[0]:
            self._emit(UserUnowned(*key))

    def _answer(self, server: str, request: int, reason: str = "", *, is_coming: bool = False) -> None:
        self._far.send(server, VisitorAnswered(request, is_coming, reason[:1_024]))
