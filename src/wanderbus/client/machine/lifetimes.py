"""Reaction of an agent to subscriptions that end without a request of its application (SPEC G-10 to G-12).

The agent learns of the end from the broker's notice, or by querying its subscriptions after each attachment; either is
enough. There are three reactions (SPEC G-11, X21). *ignore* reports the end. *renew* renews the same subscription with
its original lifetime, and submits a new one if the broker has forgotten it. *resubmit* submits a new one at once. The
agent reacts only for subscriptions that this application requested in this run; for other subscriptions of its session
it reports the notice.

Requests made here have negative numbers; the application's are positive.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.client.machine.messages import OnEnded, RequestSettled, SubscriptionOver
from wanderbus.client.machine.subscription_records import Decision, Reaction, WantedSubscription
from wanderbus.subscription import Subscription

MISSED: Final = "missed"
"""Reason of an end that was found by a query; the actual reason is unknown."""

OVER_MAX: Final = 1_024
"""Most ended subscriptions that are remembered, to discard duplicate notices."""

_NOTHING: Final = Decision()


class Lifetimes:
    """Subscriptions of one application, and the reaction to their end."""

    def __init__(self, on_ended: OnEnded) -> None:
        self._on_ended = on_ended
        self._last_request = 0
        self._asked: dict[int, protocol.Subscribe | protocol.Renew] = {}
        self._wanted: dict[str, WantedSubscription] = {}
        self._over: dict[str, None] = {}
        self._check: tuple[int, frozenset[str]] | None = None
        """Number of the open query, and the subscriptions that were live when it was sent."""
        self._reactions: dict[int, Reaction] = {}

    @property
    def has_any(self) -> bool:
        """Return whether the application has subscriptions."""
        return bool(self._wanted)

    def asked(self, message: protocol.AgentMessage) -> None:
        """Record a request of the application."""
        match message:
            case protocol.Subscribe() | protocol.Renew():
                self._asked[message.request] = message
            case protocol.Unsubscribe(subscription=identity):
                self._forget(identity)
                for reaction in self._reactions.values():
                    if reaction.wanted.subscription.id == identity:
                        reaction.abandoned = True

    def gave_up(self, request: int) -> None:
        """Forget ``request``: the application no longer waits for its response."""
        self._asked.pop(request, None)

    def attached(self) -> Decision:
        """Query the subscriptions, if any are wanted (SPEC G-12); an open query is sent again anyway."""
        if not self._wanted:
            self._check = None
            return _NOTHING
        living = frozenset(self._wanted)
        if self._check is not None:
            self._check = (self._check[0], living)
            return _NOTHING
        query = protocol.Query(self._next_request())
        self._check = (query.request, living)
        return Decision([query])

    def ended(self, notice: protocol.SubscriptionEnded) -> Decision:
        """Decide about a subscription whose end the broker reported."""
        identity = notice.subscription.id
        if wanted := self._wanted.get(identity):
            wanted.subscription = notice.subscription
            return self._react(wanted, notice.reason)
        if identity in self._over:
            return _NOTHING
        self._remember_over(identity)
        return Decision(reports=[SubscriptionOver(notice.subscription, notice.reason)])

    def settled(self, settled: RequestSettled) -> Decision:
        """Process the broker's response to a request, the application's or one made here."""
        if asked := self._asked.pop(settled.request, None):
            for subscription in settled.subscriptions:
                known = self._wanted.get(subscription.id)
                is_kept = asked.is_kept if isinstance(asked, protocol.Subscribe) else known is None or known.is_kept
                self._want(WantedSubscription(subscription, asked.lifetime_s, asked.expires_us, is_kept))
        elif settled.request > 0:
            for subscription in settled.subscriptions:
                if wanted := self._wanted.get(subscription.id):
                    wanted.subscription = subscription
        elif self._check and settled.request == self._check[0]:
            return self._checked(settled)
        elif reaction := self._reactions.pop(settled.request, None):
            return self._reacted(reaction, settled)
        return _NOTHING

    def _checked(self, settled: RequestSettled) -> Decision:
        assert self._check is not None
        _, before = self._check
        self._check = None
        if settled.refusal is not None:
            return _NOTHING
        missing = before - {subscription.id for subscription in settled.subscriptions}
        decisions = [self._react(self._wanted[each], MISSED) for each in sorted(missing) if each in self._wanted]
        return Decision(
            [message for decision in decisions for message in decision.messages],
            [report for decision in decisions for report in decision.reports],
        )

    def _react(self, wanted: WantedSubscription, reason: str) -> Decision:
        """Renew or resubmit ``wanted``, unless it ended at the time that its application set."""
        self._forget(wanted.subscription.id)
        in_time = reason == "expired" and wanted.expires_us is not None
        if self._on_ended == "ignore" or in_time or reason in ("unsubscribed", protocol.TRANSFERRED):
            return Decision(reports=[SubscriptionOver(wanted.subscription, reason)])
        return self._try(Reaction(wanted, reason, renews=self._on_ended == "renew"))

    def _try(self, reaction: Reaction) -> Decision:
        request, wanted = self._next_request(), reaction.wanted
        lost = wanted.subscription
        self._reactions[request] = reaction
        if reaction.renews:
            return Decision([protocol.Renew(request, lost.id, wanted.lifetime_s, wanted.expires_us)])
        again = protocol.Subscribe(
            request,
            lost.subject,
            lost.expression,
            wanted.lifetime_s,
            lost.restrictions,
            lost.device is not None,
            lost.queue,
            wanted.expires_us,
            lost.language,
            lost.format,
            since=lost.since,
            succeeds=None if lost.since is None else lost.id,
            is_kept=wanted.is_kept,
        )
        return Decision([again])

    def _reacted(self, reaction: Reaction, settled: RequestSettled) -> Decision:
        """Process the response to a reaction; resubmit after a refused renewal, as the broker may have forgotten it."""
        lost = reaction.wanted.subscription
        if reaction.abandoned:
            unwanted = [s for s in settled.subscriptions if s.id != lost.id]
            return Decision([protocol.Unsubscribe(self._next_request(), each.id) for each in unwanted])
        if settled.refusal is not None:
            again = msgspec.structs.replace(reaction, renews=False)
            return self._try(again) if reaction.renews else _over(reaction)
        (successor,) = settled.subscriptions
        self._want(msgspec.structs.replace(reaction.wanted, subscription=successor))
        return _over(reaction, successor)

    def _want(self, wanted: WantedSubscription) -> None:
        self._wanted[wanted.subscription.id] = wanted
        self._over.pop(wanted.subscription.id, None)

    def _forget(self, identity: str) -> None:
        """Forget a subscription as wanted; remember its end, as the broker may still report it."""
        if self._wanted.pop(identity, None):
            self._remember_over(identity)

    def _remember_over(self, identity: str) -> None:
        self._over[identity] = None
        if len(self._over) > OVER_MAX:
            del self._over[next(iter(self._over))]

    def _next_request(self) -> int:
        self._last_request -= 1
        return self._last_request


def _over(reaction: Reaction, successor: Subscription | None = None) -> Decision:
    return Decision(reports=[SubscriptionOver(reaction.wanted.subscription, reaction.reason, successor)])
