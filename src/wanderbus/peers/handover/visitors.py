"""Visitors: users of other domains who call here and have no session here; the operator chooses their service (0174).

::

    signalling ──VisitorCalled──▶ ┌──────────┐ ──VisitorCame────▶ servers of the visitor's own domain
    signalling ◀─CallServed────── │ Visitors │ ◀─VisitorAnswered─
               ◀─CallRedirected── └──────────┘
               ◀─CallRefused

A visitor is served here, or sent to the own domain, or served once the session has moved here from there. All servers
of the own domain are asked for the session, because the one that has it is not known. Nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec

from wanderbus.broker.sessions.handover_messages import UserUnowned
from wanderbus.broker.state.rows import session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.hosts import domain_of
from wanderbus.machine import SetTimer
from wanderbus.peers.far_servers import AskServers, FarDomain, ServersFound
from wanderbus.peers.handover.far_moves import FarMoves
from wanderbus.peers.handover.messages import VisitorAnswered, VisitorCame
from wanderbus.peers.owner_messages import CallRedirected, CallRefused, CallServed, VisitorCalled, VisitorStays
from wanderbus.peers.session_owners import LOOK_S, OUTAGE_S, POSTPONED_S, owns
from wanderbus.sip.message.uri import SIPUri

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

TIMER: Final = "visitors"
"""Key of the timer that looks whether the sessions of visitors have come."""

HELD_S: Final = 1.0
"""Time for which a call waits for its session. The proxy waits 2 s for the answer to an INVITE, and the servers of the
own domain may take 0.5 s of them."""

HELD_MAX: Final = 128
"""Largest number of calls of one foreign domain that wait; a further one is refused."""

STAYS_S: Final = 60.0
"""Time for which nobody is asked again for a session that does not come."""

REMEMBERED_MAX: Final = 4_096
"""Largest number of servers, and of sessions, that are remembered; the oldest is forgotten first."""

ASKING_VERSION: Final = 1
"""Version from which on a server of another domain knows these questions."""

VisitorsOutput = CallServed | CallRedirected | CallRefused | VisitorStays | UserUnowned | AskServers | SetTimer


class _Visit:
    """A call that waits for answers of the visitor's own domain."""

    def __init__(self, called: VisitorCalled, request: int, now: float) -> None:
        self.called = called
        self.request = request
        self.until = now + HELD_S
        self.domain = domain_of(called.user)
        self.servers: set[str] | None = None
        """Servers without a final answer, None while they are not known."""
        self.may_be_there = True
        """False once all servers have answered that they have no such session."""
        self.has_reason = False
        """True if one of them has said why the session does not come: it may have it."""
        self.is_coming = False
        """True if one of them has begun to move the session here."""

    @property
    def key(self) -> tuple[str, str]:
        """Return user and name of the session."""
        return self.called.user, self.called.session


class Visitors:
    """Decides about the calls of visitors; ``emit`` takes the decisions and the questions.

    :param service: SIP URI of the service that is called here; that of another domain has the same user name
    """

    def __init__(
        self,
        state: BrokerState,
        far: FarMoves,
        service: str,
        emit: Callable[[VisitorsOutput], None],
    ) -> None:
        self._state = state
        self._far = far
        self._service = service
        self._emit = emit
        self._visits: dict[str, _Visit] = {}
        """Calls that wait, by their names."""
        self._versions: dict[str, int] = {}
        """Version of each server of another domain that was met; the oldest is first."""
        self._coming: dict[tuple[str, int], tuple[str, str]] = {}
        """Sessions that are on their way, by server and number of the question; the oldest is first."""
        self._last_request = 0
        self._stays: dict[tuple[str, str], float] = {}
        """Sessions that do not come, and until when nobody is asked for each; the oldest is first."""
        self._late: dict[tuple[str, str], float] = {}
        """Sessions whose domain does not answer, and the second of the first refused call; the oldest is first."""
        self._is_timer_set = False

    @property
    def servers(self) -> Iterable[str]:
        """Return the servers of other domains that are asked now."""
        return {server for each in self._visits.values() for server in each.servers or ()}

    def called(self, called: VisitorCalled, now: float) -> None:
        """Decide about a call, or ask the visitor's own domain."""
        visit = _Visit(called, self._last_request + 1, now)
        there = self._far.domains.foreign.get(visit.domain)
        self._visits[called.call] = visit
        if there is None or there.visitors == "own" or owns(self._state, *visit.key):
            self._serve(visit)
        elif there.visitors == "move" and (not called.session or self._stays.get(visit.key, now) > now):
            self._serve_as_chosen(visit)
        elif sum(each.domain == visit.domain for each in self._visits.values()) > HELD_MAX:
            del self._visits[called.call]
            self._refuse(called.call, f"{HELD_MAX} calls of users of {visit.domain} wait already")
        else:
            self._last_request = visit.request
            self._emit(AskServers(visit.domain))
            self._set_timer(now)

    def found(self, found: ServersFound) -> None:
        """Ask the servers of a domain."""
        for visit in self._visits.values():
            if visit.domain == found.domain and visit.servers is None and not found.user:
                visit.servers = {f"{found.domain}/{each}" for each in found.servers}
                for server in sorted(visit.servers):
                    if self._versions.get(server, 0) >= ASKING_VERSION:
                        self._ask(server, visit)

    def met(self, server: str, version: int) -> None:
        """Note the version of a server of another domain, whose link opens next."""
        _remember(self._versions, server, version)

    def link_opened(self, server: str, now: float) -> None:
        """Ask a server, maybe again, because a link that failed may have lost the question.

        One whose version does not know the questions is not asked. That of one that has opened the link itself comes
        with the link that is opened from here.
        """
        version = self._versions.get(server)
        for visit in [each for each in self._visits.values() if server in (each.servers or ())]:
            if version is not None and version < ASKING_VERSION:
                visit.has_reason = True
                self._strike(visit, server)
            elif version is not None:
                self._ask(server, visit)

    def answered(self, server: str, answer: VisitorAnswered, now: float) -> None:
        """Take the answer of a server; ignore one that nobody has asked for."""
        key = None if answer.is_coming else self._coming.pop((server, answer.request), None)
        if key is not None:
            _remember(self._stays, key, now + STAYS_S)
            self._emit(VisitorStays(*key, answer.reason))
        visit = next((each for each in self._visits.values() if each.request == answer.request), None)
        if visit is None or server not in (visit.servers or ()):
            return
        if answer.is_coming:
            visit.is_coming = True
            _remember(self._coming, (server, answer.request), visit.key)
        else:
            visit.has_reason = visit.has_reason or bool(answer.reason)
            if answer.reason and key is None:
                self._emit(VisitorStays(*visit.key, answer.reason))
            self._strike(visit, server)

    def timer_fired(self, now: float) -> None:
        """Decide about the calls whose sessions have come, and about those that have waited long enough."""
        self._is_timer_set = False
        for visit in list(self._visits.values()):
            if owns(self._state, *visit.key):
                self._serve(visit)
            elif visit.until <= now:
                self._give_up(visit, now)
        if self._visits:
            self._set_timer(now)

    def _ask(self, server: str, visit: _Visit) -> None:
        called = visit.called
        asked = VisitorCame(
            visit.request,
            called.user,
            called.session,
            called.call,
            wants_session=self._choice(visit) == "move",
            is_certain=called.is_certain,
        )
        if called.visit is not None:
            asked = msgspec.structs.replace(asked, at_s=called.visit.at_s, mac=called.visit.mac)
        self._far.send(server, asked)

    def _strike(self, visit: _Visit, server: str) -> None:
        """Expect no answer of a server any more; the last one decides."""
        assert visit.servers is not None
        visit.servers.discard(server)
        if not visit.servers:
            visit.may_be_there = visit.has_reason
            self._late.pop(visit.key, None)
            self._serve_as_chosen(visit)

    def _give_up(self, visit: _Visit, now: float) -> None:
        """Decide about a call whose session has not come in time.

        If it is awaited, the device that attaches is asked to call again. A domain that does not answer may be about
        to come back; after a while the visitor is served without it.
        """
        if session_key(*visit.key) in self._state.awaited or self._choice(visit) != "move":
            self._serve_as_chosen(visit)
            return
        since = self._late.pop(visit.key, now)
        if now - since >= OUTAGE_S:
            since = now
        _remember(self._late, visit.key, since)
        if now - since >= POSTPONED_S:
            self._serve_as_chosen(visit)
            return
        del self._visits[visit.called.call]
        here = "the session is on its way here from {}; call again"
        away = "{}, the domain of this user, cannot be reached"
        self._refuse(visit.called.call, (here if visit.is_coming else away).format(visit.domain))

    def _serve_as_chosen(self, visit: _Visit) -> None:
        """Serve a visitor here, or redirect the call to the service of the own domain.

        A visitor whose session has moved there from here is not served without it, unless it is over there.
        """
        row = self._state.sessions.get(session_key(*visit.key))
        has_left = row is not None and row.has_left_domain
        if self._choice(visit) != "home" and not (has_left and visit.may_be_there):
            if has_left:
                self._emit(UserUnowned(*visit.key))
            self._serve(visit)
            return
        del self._visits[visit.called.call]
        home = msgspec.structs.replace(SIPUri.parse(self._service), host=visit.domain)
        self._emit(CallRedirected(visit.called.call, (str(home),)))

    def _serve(self, visit: _Visit) -> None:
        del self._visits[visit.called.call]
        self._emit(CallServed(visit.called.call))

    def _refuse(self, call: str, reason: str) -> None:
        self._emit(CallRefused(call, reason))

    def _choice(self, visit: _Visit) -> str:
        """Return the service for visitors of the domain, which may have changed since the call."""
        return self._far.domains.foreign.get(visit.domain, FarDomain()).visitors

    def _set_timer(self, now: float) -> None:
        if not self._is_timer_set:
            self._is_timer_set = True
            self._emit(SetTimer(TIMER, now + LOOK_S))


def _remember(table: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Put a value at the end of a table, in which the oldest one gives way."""
    table.pop(key, None)
    if len(table) >= REMEMBERED_MAX:
        del table[next(iter(table))]
    table[key] = value
