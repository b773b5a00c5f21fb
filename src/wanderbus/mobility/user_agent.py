"""A SIP user agent that moves: registration, sessions and transactions as one pure machine (SPEC C, D; RFC 3261 8).

::

    datagrams, timers ──▶ TransactionLayer ──reports──▶ RegistrationManager   binding at the registrar
    owner's requests  ──────────────────────────────▶ SessionManager        sessions, INVITE, BYE
                              ▲                                │
                              └───── SendRequest, Respond ─────┘──▶ reports and timers to the owner

The managers return effects: inputs of the transaction layer, which go to it at once, and outputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from wanderbus.machine import Address, DatagramReceived, Input, Output, RandomSource, TimerFired, scoped
from wanderbus.mobility import registration_manager
from wanderbus.mobility.calls import Effect
from wanderbus.mobility.challenges import Challenges
from wanderbus.mobility.composer import Composer
from wanderbus.mobility.messages import (
    AddressChanged,
    Answer,
    CreateSession,
    Refuse,
    SetMediaStatus,
    Start,
    Stop,
    TerminateSession,
    UpdateSession,
)
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.registration_manager import RegistrationManager
from wanderbus.mobility.session import SIPSession
from wanderbus.mobility.session_manager import SessionManager
from wanderbus.sip.digest import Accepted, Authenticator, Challenged
from wanderbus.sip.message import Request, Response
from wanderbus.sip.transactions import (
    AckReceived,
    CancelReceived,
    RequestReceived,
    Respond,
    ResponseReceived,
    Timers,
    TransactionLayer,
    TransactionTimedOut,
)
from wanderbus.sip.uri import SIPUri

_TRANSACTIONS: Final = "transactions"
_REGISTRATION: Final = "registration"
_SESSIONS: Final = "sessions"


class UserAgent:
    """One user on one device, reached at one SIP address at a time."""

    def __init__(
        self,
        properties: Properties,
        random: RandomSource,
        *,
        socket: str = "sip",
        contact: Address,
        authenticator: Authenticator | None = None,
        timers: Timers | None = None,
    ) -> None:
        timers = Timers() if timers is None else timers
        self._properties = properties
        self._authenticator = authenticator
        self._composer = Composer(properties, contact, random)
        self._layer = TransactionLayer(random, socket=socket, timers=timers)
        self._layer.local = contact
        self._registration = RegistrationManager(self._composer, Challenges(properties, random))
        self._sessions = SessionManager(self._composer, Challenges(properties, random), random, timers)

    @property
    def sessions(self) -> Mapping[str, SIPSession]:
        """Every session by id; a live, read-only view."""
        return self._sessions.sessions

    @property
    def contact(self) -> Address:
        """Where this user agent is reached now."""
        return self._composer.contact

    @property
    def dropped(self) -> int:
        """Datagrams thrown away because they were no SIP message."""
        return self._layer.dropped

    def adopt(self, snapshot: bytes) -> str:
        """Go on with a session stored as ``sessions[id].snapshot()``; return its id.

        The owner then updates it with :class:`UpdateSession`, as the other side knows nothing of our restart. CSeq
        and SDP version leap ahead of whatever was used. Raises LocalProtocolError for what is not a snapshot of an
        established session, and for a session that is here already.
        """
        return self._sessions.adopt(snapshot)

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Take a batch of inputs at monotonic second ``now``; return the outputs in order.

        Raises LocalProtocolError for requests of the owner that can never be served (:mod:`.messages`), never for
        anything that came from outside.
        """
        outputs: list[Output] = []
        for item in inputs:
            self._settle(self._take(item, now), outputs, now)
        return outputs

    def _take(self, item: Input, now: float) -> list[Effect]:
        """Give one input to whom it concerns."""
        match item:
            case DatagramReceived():
                return [item]
            case TimerFired(key=("transactions", key)):
                return [TimerFired(key)]
            case TimerFired(key=("registration", _)):
                return _of_registration(self._registration.timer_fired(now))
            case TimerFired(key=("sessions", (str(id), str(kind)))):
                return _of_sessions(self._sessions.timer_fired(id, kind, now))
            case Start():
                return _of_registration(self._registration.start(now))
            case Stop():
                farewells = _of_sessions(self._sessions.terminate_all(now))
                return farewells + _of_registration(self._registration.stop(now))
            case AddressChanged(contact=contact):
                return self._move(contact, now)
            case CreateSession() | UpdateSession() | TerminateSession() | Answer() | Refuse() | SetMediaStatus():
                return _of_sessions(self._sessions.ask(item, now))
        return []

    def _move(self, contact: Address, now: float) -> list[Effect]:
        """Be reached at ``contact`` from now on; the REGISTER goes first and is not awaited (SPEC D-08, X12)."""
        former, self._composer.contact, self._layer.local = self._composer.contact, contact, contact
        registering = _of_registration(self._registration.address_changed(now))
        return registering + _of_sessions(self._sessions.address_changed(former, now))

    def _settle(self, effects: list[Effect], outputs: list[Output], now: float) -> None:
        """Pass what is for the transaction layer to it and its reports to the managers, until only outputs are left."""
        pending = deque(effects)
        while pending:
            effect = pending.popleft()
            if isinstance(effect, Input):
                pending.extendleft(reversed(scoped(_TRANSACTIONS, self._layer.step([effect], now))))
                continue
            following = self._reported(effect, now)
            if following is None:
                outputs.append(effect)
            else:
                pending.extendleft(reversed(following))

    def _reported(self, effect: Output, now: float) -> list[Effect] | None:
        """Handle a report of the transaction layer; None when ``effect`` is none and so for the world."""
        match effect:
            case RequestReceived(transaction=transaction, request=request):
                return self._requested(transaction, request, now)
            case AckReceived(request=request):
                return _of_sessions(self._sessions.acknowledged(request))
            case CancelReceived(transaction=transaction, request=request):
                return _of_sessions(self._sessions.cancelled(transaction, request, now))
            case ResponseReceived(transaction=transaction, response=response):
                if transaction.startswith(registration_manager.TRANSACTION_PREFIX):
                    return _of_registration(self._registration.responded(transaction, response, now))
                return _of_sessions(self._sessions.responded(transaction, response, now))
            case TransactionTimedOut(transaction=transaction):
                if transaction.startswith(registration_manager.TRANSACTION_PREFIX):
                    return _of_registration(self._registration.timed_out(transaction, now))
                return _of_sessions(self._sessions.timed_out(transaction, now))
        return None

    def _requested(self, transaction: str, request: Request, now: float) -> list[Effect]:
        """Serve a request, after the checks that hold for all of them (RFC 3261 8.2)."""
        refusal = self._unserved(request)
        if refusal is None and request.method in ("INVITE", "BYE"):
            refusal = self._unauthenticated(request, now)
        if refusal is not None:
            return [Respond(transaction, refusal)]
        match request.method:
            case "INVITE":
                return _of_sessions(self._sessions.invited(transaction, request, now))
            case "BYE":
                return _of_sessions(self._sessions.ended(transaction, request))
            case "OPTIONS":
                return [Respond(transaction, self._composer.options_answer(request))]
        return [Respond(transaction, self._composer.not_allowed(request))]

    def _unserved(self, request: Request) -> Response | None:
        """Refuse what is meant for another user, or needs an extension we lack (RFC 3261 8.2.2.1, 8.2.2.3).

        An address that somebody left may be given to somebody else: the 404 tells a peer that it has the wrong
        address, where 481 would tell it that the session is gone.
        """
        uri = SIPUri.parse_any(request.uri)
        ours = SIPUri.parse(self._properties.uri)
        if uri.user is not None and msgspec.structs.replace(uri, host=ours.host).address_of_record != str(ours):
            return self._composer.refusal(request, 404)
        required = request.headers_all("Require")
        if required:
            return self._composer.refusal(request, 420, ("Unsupported", ", ".join(required)))
        return None

    def _unauthenticated(self, request: Request, now: float) -> Response | None:
        """Challenge or refuse, unless the sender proved to be the user in From (RFC 3261 22.2; DESIGN 6.4).

        The users we can tell are those of our own domain, in whose realm the authenticator asks.
        """
        if self._authenticator is None:
            return None
        verdict = self._authenticator.check(request, now)
        if isinstance(verdict, Challenged):
            challenges = [("WWW-Authenticate", challenge) for challenge in verdict.challenges]
            return self._composer.refusal(request, 401, *challenges)
        if not isinstance(verdict, Accepted):
            return self._composer.refusal(request, verdict.status, reason=verdict.reason)
        sender = msgspec.structs.replace(SIPUri.parse(self._properties.uri), user=verdict.username)
        if request.from_.uri.address_of_record != sender.address_of_record:
            return self._composer.refusal(request, 403, reason="Not Your Address")
        return None


def _of_registration(effects: list[Effect]) -> list[Effect]:
    return scoped(_REGISTRATION, effects)


def _of_sessions(effects: list[Effect]) -> list[Effect]:
    return scoped(_SESSIONS, effects)
