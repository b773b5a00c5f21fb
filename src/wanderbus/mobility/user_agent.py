"""A SIP user agent that moves: registration, sessions and transactions as one pure machine (SPEC C, D; RFC 3261 8).

::

    datagrams, timers ──▶ TransactionLayer ──reports──▶ RegistrationManager   binding at the registrar
    owner's requests  ──────────────────────────────▶ SessionManager        sessions, INVITE, BYE
                              ▲                                │
                              └───── SendRequest, Respond ─────┘──▶ reports and timers to the owner

The managers return effects: inputs of the transaction layer, which it gets as one batch, and outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from wanderbus.composition import Composition, Part
from wanderbus.machine import (
    Address,
    DatagramReceived,
    Input,
    RandomSource,
    StreamClosed,
    StreamReceived,
    TimerFired,
    scoped,
)
from wanderbus.mobility import registration_manager
from wanderbus.mobility.admission import Admission, MakeAdmission
from wanderbus.mobility.composer import Composer
from wanderbus.mobility.flow import KeepAlive, is_keep_alive
from wanderbus.mobility.messages import (
    AddressChanged,
    Effect,
    FlowFailed,
    OwnerRequest,
    Start,
    StopUserAgent,
    Unregister,
    UserAgentOutput,
)
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.registration_manager import RegistrationManager
from wanderbus.mobility.request_handlers import OWNER_TRANSACTION_PREFIX, RequestHandlers
from wanderbus.mobility.session import session_timers
from wanderbus.mobility.session.session import SIPSession
from wanderbus.mobility.session.session_manager import SessionManager
from wanderbus.sip.authentication.digest_client import Challenges
from wanderbus.sip.message.checks import USER_AGENT_METHODS, user_agent_refusal
from wanderbus.sip.message.message import Request, Response
from wanderbus.sip.message.targets import as_target
from wanderbus.sip.message.uri import SIPUri
from wanderbus.sip.transaction.message_editor import MessageEditor
from wanderbus.sip.transaction.transaction_layer import (
    AckReceived,
    BaseTimers,
    CancelReceived,
    LocalAddressChanged,
    PongReceived,
    RequestReceived,
    Respond,
    ResponseReceived,
    SendAck,
    SendRequest,
    TransactionLayer,
    TransactionTimedOut,
)
from wanderbus.sip.transaction.transaction_signals import LayerInput, LayerOutput

LAYER: Final = Part[LayerInput, LayerOutput]("transactions")
"""Part of the user agent that has all messages; the others are objects whose methods return effects."""

_REGISTRATION: Final = "registration"
_SESSIONS: Final = "sessions"
_FLOW: Final = "flow"


class UserAgent:
    """One user on one device, with one SIP address at a time."""

    def __init__(
        self,
        properties: Properties,
        random: RandomSource,
        *,
        socket: str = "sip",
        contact: Address,
        admission: MakeAdmission = Admission,
        timers: BaseTimers | None = None,
    ) -> None:
        timers = BaseTimers() if timers is None else timers
        self._properties = properties
        self.replies = RequestHandlers()
        """The owner's changes of our messages (SPEC C-08)."""
        self._composer = Composer(properties, contact, random)
        self._layer = TransactionLayer(
            random,
            socket=socket,
            timers=timers,
            # TLS to the server means that no message may be readable on the path, so UDP is not used either.
            transports={properties.transport} if properties.transport == "TLS" else {"UDP", properties.transport},
            local=contact,
            narrow_paths=True,
            editor=MessageEditor(
                lambda message: self.replies.edited(message), lambda message, why: self.replies.refused(message, why)
            ),
        )
        self._parts = Composition[UserAgentOutput]()
        self._parts.add(LAYER, self._layer.step, self._route_layer)
        self._admission = admission(self._composer, self._layer)
        self._keep_alive = KeepAlive(properties, random, socket)
        self._registration = RegistrationManager(self._composer, _challenges(properties, random), random)
        self._sessions = SessionManager(self._composer, _challenges(properties, random), random, timers)

    @property
    def sessions(self) -> Mapping[str, SIPSession]:
        """Every session by id; a live, read-only view."""
        return self._sessions.sessions

    @property
    def contact_uri(self) -> str:
        """Our contact URI: our user at our address, over our transport."""
        return self._composer.contact_uri

    @property
    def contact(self) -> Address:
        """The present address of this user agent."""
        return self._composer.contact

    @property
    def dropped(self) -> int:
        """Number of datagrams discarded because they were no SIP message."""
        return self._layer.dropped

    @property
    def transaction_count(self) -> int:
        """Number of active transactions, ours and those of peers."""
        return self._layer.transaction_count

    def adopt(self, snapshot: bytes) -> str:
        """Restore a session stored as ``sessions[id].snapshot()``; return its id.

        The owner then updates it with :class:`UpdateSession`, because the peer does not know of our restart. CSeq and
        SDP version are increased above all used values. Raises LocalProtocolError if the bytes are not a snapshot of an
        established session, and if the session exists already.
        """
        return self._sessions.adopt(snapshot)

    def step(self, inputs: Iterable[Input], now: float) -> list[UserAgentOutput]:
        """Process a batch of inputs at monotonic second ``now``; return the outputs in order.

        Raises LocalProtocolError for requests of the owner that can never be served (:mod:`.messages`), never for input
        from the network.
        """
        for item in inputs:
            self._carry_out(self._on_input(item, now))
            self._parts.run(now)
        self._parts.emit(*self._admission.take_reports(now))
        return self._parts.take_outputs()

    def _on_input(self, item: Input, now: float) -> list[Effect]:
        """Pass one input to its handler."""
        match item:
            case DatagramReceived():
                if is_keep_alive(item):
                    return []
                refused = self._admission.flooded(item, now)
                return [item] if refused is None else [*refused]
            case StreamReceived():
                self._admission.note(item)
                return [item]
            case StreamClosed(target=target, reason=reason):
                self._admission.note(item)
                broken = target == self._properties.server_target
                return [item, *(self._flow_failed(now, reason) if broken else [])]
            case SendRequest(transaction=transaction) if transaction.startswith(OWNER_TRANSACTION_PREFIX):
                return [item]
            case TimerFired(key=("registration", _)):
                return _of_registration(self._registration.timer_fired(now))
            case TimerFired(key=("sessions", (str(id), str(kind)))):
                return _of_sessions(self._sessions.timer_fired(id, kind, now))
            case TimerFired(key=("flow", _)):
                lost, effects = self._keep_alive.timer_fired(now)
                return scoped(_FLOW, effects) + (self._flow_failed(now) if lost else [])
            case Start():
                return _of_registration(self._registration.start(now)) + scoped(_FLOW, self._keep_alive.start(now))
            case StopUserAgent():
                return _of_sessions(self._sessions.terminate_all(now)) + self._unregister(now)
            case Unregister():
                return self._unregister(now)
            case FlowFailed():
                return self._flow_failed(now)
            case AddressChanged(contact=contact):
                return self._move(contact, now)
            case TimerFired(key=key):
                self._parts.give_timer(key)
        return _of_sessions(self._sessions.ask(item, now)) if isinstance(item, OwnerRequest) else []

    def _flow_failed(self, now: float, reason: str = "the connection to the server failed") -> list[Effect]:
        return _of_registration(self._registration.flow_failed(now, reason))

    def _unregister(self, now: float) -> list[Effect]:
        return _of_registration(self._registration.stop(now)) + scoped(_FLOW, self._keep_alive.stop())

    def _move(self, contact: Address, now: float) -> list[Effect]:
        """Change our address to ``contact``; the REGISTER is sent first and not awaited (SPEC D-08, X12)."""
        former = self._composer.move(contact)
        registering = _of_registration(self._registration.address_changed(now))
        return [LocalAddressChanged(contact), *registering, *_of_sessions(self._sessions.address_changed(former, now))]

    def _carry_out(self, effects: list[Effect]) -> None:
        """Emit the outputs among the effects, and give the transaction layer its inputs as one batch."""
        for_layer: list[LayerInput] = []
        for effect in effects:
            if isinstance(effect, Input):
                for_layer.append(self._directed(effect))
            else:
                self._parts.emit(effect)
        self._parts.give(LAYER, for_layer)

    def _route_layer(self, outputs: list[LayerOutput], now: float) -> None:
        """Pass reports to the objects that they concern; everything else is an output of the user agent."""
        for output in outputs:
            effects = self._reported(output, now)
            if effects is None:
                self._parts.emit(output)
            else:
                self._carry_out(effects)

    def _directed(self, effect: LayerInput) -> LayerInput:
        """Send a message through the server if we lack its transport: the server may have it, or a connection to the
        peer.

        This is the task of an outbound proxy (RFC 3261 8.1.2); it knows the peers of its own domain. A route to the
        server uses our existing connection, whose certificate has the server's name.
        """
        if not isinstance(effect, SendRequest | SendAck):
            return effect
        target, server = as_target(effect.destination), self._properties.server_target
        known_as = (server.address, self._properties.server_known_as)
        is_server = target.transport == server.transport and target.address in known_as
        if target.transport in self._layer.transports and not is_server:
            return effect
        return msgspec.structs.replace(effect, destination=server)

    def _reported(self, effect: LayerOutput, now: float) -> list[Effect] | None:
        """Handle a report of the transaction layer; None if ``effect`` is none and so is an output of the machine."""
        match effect:
            case ResponseReceived(transaction=name) | TransactionTimedOut(transaction=name) if name.startswith(
                OWNER_TRANSACTION_PREFIX
            ):
                return None
            case RequestReceived():
                return self._requested(effect, now)
            case AckReceived(request=request):
                return _of_sessions(self._sessions.acknowledged(request, now))
            case CancelReceived(transaction=transaction, request=request):
                return _of_sessions(self._sessions.cancelled(transaction, request, now))
            case ResponseReceived(transaction=transaction, response=response):
                if transaction.startswith(registration_manager.TRANSACTION_PREFIX):
                    if response.status == 200:
                        self._layer.peers.note(self._properties.server[0], now)
                    return _of_registration(self._registration.responded(transaction, response, now))
                return _of_sessions(self._sessions.responded(transaction, response, now))
            case PongReceived():
                return scoped(_FLOW, self._keep_alive.answered(now))
            case TransactionTimedOut(transaction=transaction, reason=reason):
                if transaction.startswith(registration_manager.TRANSACTION_PREFIX):
                    return _of_registration(self._registration.timed_out(transaction, now))
                return _of_sessions(self._sessions.timed_out(transaction, now, sent=reason != "transport"))
        return None

    def _requested(self, received: RequestReceived, now: float) -> list[Effect]:
        """Serve a request, after the common checks (RFC 3261 8.2)."""
        transaction, request = received.transaction, received.request
        if (refused := self._admission.flooded_on_stream(received, now)) is not None:
            return refused
        proves = self._admission.proves
        refusal = self._unserved(request)
        if refusal is None and request.method in ("INVITE", "UPDATE", "BYE"):
            refusal = self._admission.refusal(received, now, self._sessions.peer_in(request))
        if refusal is not None:
            return [Respond(transaction, refusal, stateless=proves)]
        reply = self.replies.instead(request)
        if reply is not None:
            return [Respond(transaction, reply)]
        match request.method:
            case "INVITE" | "UPDATE":
                return _of_sessions(self._sessions.offered(transaction, request, now))
            case "BYE":
                return _of_sessions(self._sessions.ended(transaction, request))
            case "OPTIONS" if request.to.tag is not None and self._sessions.peer_in(request) is None:
                return [Respond(transaction, self._composer.refusal(request, 481), stateless=proves)]
            case "OPTIONS":
                return [Respond(transaction, self._composer.options_answer(request), stateless=proves)]
        return [Respond(transaction, self._composer.refusal(request, 501), stateless=proves)]

    def _unserved(self, request: Request) -> Response | None:
        """Refuse requests that any user agent would refuse, and those for another user (RFC 3261 8.2).

        An address may be reassigned to another user: the 404 informs a peer that it has the wrong address, where 481
        would mean that the session has ended.
        """
        served = (*USER_AGENT_METHODS, *self.replies.served)
        if refusal := user_agent_refusal(request, served=served, supported=(session_timers.OPTION,)):
            return self._composer.refusal(request, refusal.status, *refusal.headers)
        uri = SIPUri.parse(request.uri)
        ours = SIPUri.parse(self._properties.uri)
        if uri.user is not None and msgspec.structs.replace(uri, host=ours.host).address_of_record != str(ours):
            return self._composer.refusal(request, 404)
        return None


def _challenges(properties: Properties, random: RandomSource) -> Challenges:
    return Challenges(properties.username, properties.password, random, properties.digest_algorithms)


def _of_registration(effects: list[Effect]) -> list[Effect]:
    return scoped(_REGISTRATION, effects)


def _of_sessions(effects: list[Effect]) -> list[Effect]:
    return scoped(_SESSIONS, effects)
