"""Response forwarding: handles the branches of each forwarded request (RFC 3261 16.7 to 16.10).

The best response of all branches is sent to the caller; the branches that are too late are cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from wanderbus.machine import CancelTimer, SetTimer
from wanderbus.sip.message.checks import unforwardable
from wanderbus.sip.message.headers import CONTACT_STAR, NameAddr
from wanderbus.sip.message.message import Response
from wanderbus.sip.message.targets import Target
from wanderbus.sip.proxy import nat_contacts
from wanderbus.sip.proxy.access_choice import AccessChoice
from wanderbus.sip.proxy.anchoring import describes, release_of
from wanderbus.sip.proxy.bindings import Domain
from wanderbus.sip.proxy.decisions import Attempt
from wanderbus.sip.proxy.media_queue import MediaQueue
from wanderbus.sip.proxy.proxy_responses import ProxyResponses
from wanderbus.sip.proxy.proxy_signals import Command, refusal
from wanderbus.sip.proxy.request_preparation import loop_mark
from wanderbus.sip.proxy.response_context import Branch, ResponseContext, transaction_of
from wanderbus.sip.transaction.client_transactions import make_cancel
from wanderbus.sip.transaction.transaction_signals import ForgetTransaction, Respond, ResponseReceived, SendRequest

TIMER_C_S: Final = 185.0
"""Timeout of an INVITE after each provisional response (RFC 3261 16.6 item 11: over 3 minutes)."""

SETTLING_S: Final = 32.0
"""64*T1: time for repeated 2xx, or for the end of a cancelled INVITE (RFC 3261 9.1, 13.3.1.4)."""

SERVER_PATIENCE_S: Final = 2.0
"""4*T1: time for any response of an access server to a new call before the next server is tried. By then three copies
of the request were sent, and an agent waits twice as long."""

_KEPT: Final = (401, 407, 487)
"""Refusals after which the caller may send the same call again."""

CHALLENGE_PATIENCE_S: Final = 1.0
"""Time for which a challenge waits for silent devices: each has received two copies of the request by then."""


class ResponseForwarding:
    """The response contexts of one proxy: handles the responses of branches, and forwards the best one.

    ``avoid`` is called for each server of another domain that did not respond if another one of that is tried;
    ``access`` learns which access servers respond.
    """

    def __init__(
        self,
        domain: Domain,
        answers: ProxyResponses,
        media: MediaQueue,
        avoid: Callable[[Target, float], None],
        access: AccessChoice,
    ) -> None:
        self._domain = domain
        self._access = access
        self._avoid = avoid
        self._answers = answers
        self._media = media
        self._contexts: dict[str, ResponseContext] = {}

    def __len__(self) -> int:
        return len(self._contexts)

    def add(self, context: ResponseContext) -> None:
        """Store the context of a request that was just sent to its branches."""
        self._contexts[context.transaction] = context

    def send(self, context: ResponseContext, attempts: Sequence[Attempt], now: float) -> list[Command]:
        """Send the request by the first of ``attempts``, as a new branch; the others follow if it fails."""
        branch, attempt = context.add(attempts, now), attempts[0]
        commands: list[Command] = [
            SendRequest(
                branch.name,
                attempt.request,
                attempt.destination,
                loop_mark(context.received),
                attempt.connection,
                attempt.fixed,
            )
        ]
        if context.is_invite:
            patience_s = SERVER_PATIENCE_S if context.is_impatient(branch) else TIMER_C_S
            commands.append(SetTimer(branch.name, now + patience_s))
        return commands

    def responded(self, received: ResponseReceived, now: float) -> list[Command]:
        """Handle a response of a branch (RFC 3261 16.7); a single Via is our own, so the response ends here."""
        response = received.response
        context, branch = self._find(received.transaction)
        if context is None or branch is None or len(response.headers_all("Via")) < 2 or unforwardable(response):
            return []
        if branch.ended and not 200 <= response.status < 300:
            return []
        branch.has_responded = True
        if branch.server:
            # Also a 503: it may be about this caller alone, who would otherwise move all other users.
            self._access.answer(branch.server, now)
        if response.status >= 300:
            further = self._further(context, branch, response, now)
            return further or self._refused(context, branch, response.without_first("Via"), now)
        if response.status == 100 or (response.status < 200 and context.answered):
            waits = response.status == 100 and context.is_impatient(branch) and not branch.cancelled
            return [SetTimer(branch.name, now + TIMER_C_S)] if waits else []
        passed = self._passed(context, branch, received)
        if response.status >= 200:
            let_go = release_of(response) if context.releases_relay and not context.answered else []
            return [*self._accepted(context, branch, now), *passed, *let_go]
        if context.is_invite and not branch.cancelled:
            return [SetTimer(branch.name, now + TIMER_C_S), *passed]
        return passed

    def _further(self, context: ResponseContext, branch: Branch, response: Response, now: float) -> list[Command]:
        """Try another server if it may serve a request that this one refused; return no command if there is none.

        An access server answers 481 to a request in a dialog of another one, and 302 if that one has the session.
        """
        if response.status == 481 and branch.server and context.received.to.tag is not None:
            self._access.exclude(context.received.call_id, branch.server, now)
            return self._next_server(context, branch, now)
        if response.status == 302 and branch.server and not self._domain.serves(context.received.from_.uri):
            # A caller of another domain cannot reach the other server, which its own proxy does not know.
            named = [each for each in branch.alternatives if _is_named(each, response)]
            branch.alternatives = named or branch.alternatives
            return self._next_server(context, branch, now) if named else []
        return self._next_server(context, branch, now) if response.status == 503 else []

    def _passed(self, context: ResponseContext, branch: Branch, received: ResponseReceived) -> list[Command]:
        """Forward a response with the alias of its device; its answer to an anchored offer is sent to the relay.

        A response from another proxy already has its alias (:mod:`.nat_contacts`).
        """
        response, source, seen_at = received.response, received.source, ""
        if source is not None and branch.straight and self._is_recorded_last_by_us(response):
            seen_at = nat_contacts.source_ip(response, source)
            response = nat_contacts.marked(response, source, received.transport)
        respond = Respond(context.transaction, response.without_first("Via"))
        if context.anchored is None or not describes(response):
            return [respond]
        return [*self._media.hold(respond, seen_at)]

    def _is_recorded_last_by_us(self, response: Response) -> bool:
        return all(self._domain.serves(NameAddr.parse(value).uri) for value in response.headers_all("Record-Route")[:1])

    def _accepted(self, context: ResponseContext, branch: Branch, now: float) -> list[Command]:
        """Cancel all other branches; more 2xx to an INVITE may follow (RFC 3261 16.7 items 5, 10)."""
        commands = self._ended(context, branch)
        if not context.is_invite:
            return [*commands, *self._drop(context)]
        return commands if context.answered else [*commands, *self._settle(context, now)]

    def _settle(self, context: ResponseContext, now: float) -> list[Command]:
        """Wait for the end of the branches of an INVITE with a final response."""
        context.settle()
        return [*self._cancel_pending(context, now), SetTimer(context.transaction, now + SETTLING_S)]

    def _refused(self, context: ResponseContext, branch: Branch, response: Response, now: float) -> list[Command]:
        """Store a refusal until all branches have ended; a 6xx ends all (RFC 3261 16.7 items 5 and 6)."""
        commands = self._ended(context, branch)
        context.refusals.append(response)
        if response.status >= 600 and context.is_invite:
            commands += self._cancel_pending(context, now)
        return commands + self._conclude(context, now)

    def _conclude(self, context: ResponseContext, now: float) -> list[Command]:
        """Forward the best response if no branch is awaited any more."""
        if context.answered:
            return []
        if not any(context.pending()):
            status = context.best().status if context.refusals else 408
            if status not in _KEPT and context.received.to.tag is None:
                self._access.end(context.received.call_id)
            return [*self._drop(context, refused_with=status), *self._best(context)]
        if context.waits_only_for_silent():
            return [SetTimer(context.transaction, max(now, context.started_at + CHALLENGE_PATIENCE_S))]
        return []

    def _best(self, context: ResponseContext) -> list[Command]:
        """Forward the best response; without any response only an INVITE gets one (RFC 4320 4.2)."""
        return [refusal(context.transaction, context.best())] if context.refusals else []

    def cancelled(self, transaction: str, now: float) -> list[Command]:
        """Cancel all open branches of an INVITE (RFC 3261 16.10); its 487 is received like any response."""
        context = self._contexts.get(transaction)
        if context is None:
            return []
        context.cancelled = True
        return self._cancel_pending(context, now)

    def _next_server(self, context: ResponseContext, branch: Branch, now: float) -> list[Command]:
        """Send the request to the next server, if there is one and the caller waits (RFC 3263 4.3)."""
        gave_up = context.answered or context.cancelled or branch.cancelled
        if gave_up or branch.ended or not branch.alternatives:
            return []
        if branch.server and (context.is_invite or context.received.to.tag is not None):
            self._access.place(context.received.call_id, branch.alternatives[0].server, now)
        if not branch.server:
            self._avoid(branch.destination, now)
        return [*self._ended(context, branch), *self.send(context, branch.alternatives, now)]

    def _cancel_pending(self, context: ResponseContext, now: float) -> list[Command]:
        commands: list[Command] = []
        for branch in context.pending():
            commands += self._cancel(branch, now)
        return commands

    def _cancel(self, branch: Branch, now: float) -> list[Command]:
        if branch.cancelled:
            return []
        branch.cancelled = True
        cancel = SendRequest(f"{branch.name}/cancel", make_cancel(branch.sent), branch.destination)
        return [cancel, SetTimer(branch.name, now + SETTLING_S)]

    def timed_out(self, name: str, unreachable: bool, now: float) -> list[Command]:
        """End branches whose peer is gone; an unreachable one counts as a 503 (RFC 3261 16.9)."""
        context, branch = self._find(name)
        if context is None:
            return []
        if branch is not None and branch.ended:
            return []
        if branch is not None and branch.server:
            self._access.fail(branch.server, now, since=None if unreachable else branch.sent_at)
        if branch is not None and (further := self._next_server(context, branch, now)):
            return further
        if branch is not None and unreachable:
            return self._refused(context, branch, self._answers.make(context.received, 503), now)
        if branch is not None:
            return self._gave_up(context, branch, now)
        if name != context.transaction:
            return []
        forgotten = [ForgetTransaction(branch.name) for branch in context.pending()]
        return [*self._drop(context), *forgotten]

    def fired(self, name: str, now: float) -> list[Command]:
        """Handle the timer of a context or of a branch."""
        context, branch = self._find(name)
        if context is None:
            return []
        if branch is None:
            return self._on_patience_timeout(context, now)
        if branch.ended:
            return []
        if branch.cancelled:
            return [ForgetTransaction(branch.name), *self._gave_up(context, branch, now)]
        if context.is_impatient(branch) and not branch.has_responded:
            # The layer sends the CANCEL only once the server responds; a late 2xx is still forwarded.
            cancel = SendRequest(f"{branch.name}/cancel", make_cancel(branch.sent), branch.destination)
            self._access.fail(branch.server, now, since=branch.sent_at)
            return [cancel, *self._next_server(context, branch, now)]
        return self._cancel(branch, now)

    def _on_patience_timeout(self, context: ResponseContext, now: float) -> list[Command]:
        """Remove an INVITE answered long ago, or forward a challenge without waiting for silent devices."""
        if context.answered:
            forgotten = [ForgetTransaction(branch.name) for branch in context.pending()]
            return [*self._drop(context), *forgotten]
        if not context.waits_only_for_silent():
            return []
        ending = self._settle(context, now) if context.is_invite else self._drop(context)
        return [*ending, *self._best(context)]

    def _gave_up(self, context: ResponseContext, branch: Branch, now: float) -> list[Command]:
        """Count a branch without a final response as a 408, or as 487 if nobody waits for it any more (16.8)."""
        if not context.is_invite:
            return [*self._ended(context, branch), *self._conclude(context, now)]
        answer = self._answers.make(context.received, 487 if context.cancelled else 408)
        return self._refused(context, branch, answer, now)

    def _find(self, name: str) -> tuple[ResponseContext | None, Branch | None]:
        context = self._contexts.get(transaction_of(name))
        return context, None if context is None else context.branches.get(name)

    def _ended(self, context: ResponseContext, branch: Branch) -> list[Command]:
        branch.end()
        return [CancelTimer(branch.name)] if context.is_invite else []

    def _drop(self, context: ResponseContext, *, refused_with: int | None = None) -> list[Command]:
        """Remove the context and its timers; transactions that still run end by themselves."""
        del self._contexts[context.transaction]
        ended = [] if context.anchored is None else self._media.left(context.anchored, refused_with)
        names = [context.transaction]
        if context.is_invite:
            names += [branch.name for branch in context.pending()]
        return [*(CancelTimer(name) for name in names), *ended]


def _is_named(attempt: Attempt, redirection: Response) -> bool:
    """Return whether a redirection leads to the target of an attempt."""
    contacts = [each for each in redirection.contacts if each != CONTACT_STAR]
    return any(nat_contacts.is_same_device(each.uri, attempt.request.uri) for each in contacts)
