"""What an agent does about subscriptions that end without its application having asked for it (SPEC G-10 to G-12).

It learns of the end by the broker's notice, or by asking which subscriptions there are whenever it is attached
again; either is enough. The reaction is one of three (SPEC G-11, X21): *ignore* reports it; *renew* has the same
subscription back for as long as was asked for at first, and submits a new one if the broker has forgotten it;
*resubmit* submits a new one at once. A reaction concerns what this application has asked for in this life; of
others' subscriptions in its session the notice is reported.

Requests made here have numbers below zero; those of the application are above.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.client.machine.messages import OnEnded, RequestSettled, SubscriptionOver
from wanderbus.subscription import Subscription

MISSED: Final = "missed"
"""The reason of an end that was found by asking: why it came is not known."""

OVER_MAX: Final = 1_024
"""Ends that are remembered, so that hearing of one again is no news."""

Request = protocol.Subscribe | protocol.Unsubscribe | protocol.Renew | protocol.Query


class Decision(msgspec.Struct, frozen=True):
    """What to say to the broker, and what to report."""

    messages: Sequence[Request] = ()
    reports: Sequence[SubscriptionOver] = ()


class _Wanted(msgspec.Struct):
    """A subscription that the application asked for, and the lifetime that it asked for last."""

    subscription: Subscription
    lifetime_s: float | None
    expires_us: int | None


class _Reaction(msgspec.Struct):
    """A request under way to have ``wanted`` back, in place or anew.

    ``abandoned`` once the application ended it itself.
    """

    wanted: _Wanted
    reason: str
    renews: bool
    abandoned: bool = False


_NOTHING: Final = Decision()


class Lifetimes:
    """The subscriptions of one application, and the reaction to their end."""

    def __init__(self, on_ended: OnEnded) -> None:
        self._on_ended = on_ended
        self._last_request = 0
        self._asked: dict[int, protocol.Subscribe | protocol.Renew] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._over: dict[str, None] = {}
        self._check: tuple[int, frozenset[str]] | None = None
        """The question under way, and which subscriptions lived when it was asked."""
        self._reactions: dict[int, _Reaction] = {}

    def asked(self, message: protocol.AgentMessage) -> None:
        """Take note of a request that the application makes."""
        match message:
            case protocol.Subscribe() | protocol.Renew():
                self._asked[message.request] = message
            case protocol.Unsubscribe(subscription=identity):
                self._forget(identity)
                for reaction in self._reactions.values():
                    if reaction.wanted.subscription.id == identity:
                        reaction.abandoned = True

    def gave_up(self, request: int) -> None:
        """The application waits no longer for the answer to ``request``."""
        self._asked.pop(request, None)

    def attached(self) -> Decision:
        """Ask which subscriptions there are, if any are wanted (SPEC G-12); a question under way is repeated anyhow."""
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
        """Decide about a subscription that the broker says has ended."""
        identity = notice.subscription.id
        if wanted := self._wanted.get(identity):
            wanted.subscription = notice.subscription
            return self._react(wanted, notice.reason)
        if identity in self._over:
            return _NOTHING
        self._remember_over(identity)
        return Decision(reports=[SubscriptionOver(notice.subscription, notice.reason)])

    def settled(self, settled: RequestSettled) -> Decision:
        """Take the broker's answer to a request, the application's or one made here."""
        if asked := self._asked.pop(settled.request, None):
            for subscription in settled.subscriptions:
                self._want(_Wanted(subscription, asked.lifetime_s, asked.expires_us))
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

    def _react(self, wanted: _Wanted, reason: str) -> Decision:
        """Have ``wanted`` back, unless it ended when its application wanted it to."""
        self._forget(wanted.subscription.id)
        in_time = reason == "expired" and wanted.expires_us is not None
        if self._on_ended == "ignore" or in_time or reason == "unsubscribed":
            return Decision(reports=[SubscriptionOver(wanted.subscription, reason)])
        return self._try(_Reaction(wanted, reason, renews=self._on_ended == "renew"))

    def _try(self, reaction: _Reaction) -> Decision:
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
        )
        return Decision([again])

    def _reacted(self, reaction: _Reaction, settled: RequestSettled) -> Decision:
        """A renewal that is refused becomes a new submission: the broker may have forgotten what there was."""
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

    def _want(self, wanted: _Wanted) -> None:
        self._wanted[wanted.subscription.id] = wanted
        self._over.pop(wanted.subscription.id, None)

    def _forget(self, identity: str) -> None:
        """The end of this subscription is known; the broker may still tell of it."""
        if self._wanted.pop(identity, None):
            self._remember_over(identity)

    def _remember_over(self, identity: str) -> None:
        self._over[identity] = None
        if len(self._over) > OVER_MAX:
            del self._over[next(iter(self._over))]

    def _next_request(self) -> int:
        self._last_request -= 1
        return self._last_request


def _over(reaction: _Reaction, successor: Subscription | None = None) -> Decision:
    return Decision(reports=[SubscriptionOver(reaction.wanted.subscription, reaction.reason, successor)])
