"""Truth about subscriptions: their lifetimes, ends, renewals and successors (SPEC G)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wanderbus import records
from wanderbus.simulation.weeks.account import Account
from wanderbus.simulation.weeks.engine_truth import EngineTruth
from wanderbus.simulation.weeks.pattern_truth import PatternTruth
from wanderbus.simulation.weeks.stream import Known
from wanderbus.subscription import Subscription

_ROUNDING_US: Final = 2


@dataclass
class SubscriptionTruth:
    """Follows the subscriptions, and checks why each begins and ends."""

    account: Account
    engine: EngineTruth
    patterns: PatternTruth

    def subscribed(self, offset: int, subscription: Subscription, inherits: str | None) -> None:
        """Follow a new subscription, which may inherit the queue of an ended one."""
        account = self.account
        if subscription.id in account.known:
            account.wrong(offset, f"the id {subscription.id} was given twice")
        account.known[subscription.id] = Known(subscription)
        self.patterns.begin(offset, subscription)
        self._check_lifetime(offset, subscription)
        self._check_quota(offset, subscription.owner)
        if inherits is not None:
            self._inherit(offset, inherits, subscription)

    def _inherit(self, offset: int, ended: str, successor: Subscription) -> None:
        account = self.account
        former = account.known[ended]
        same = (
            successor.owner,
            successor.session,
            successor.subject,
            successor.expression,
            successor.device,
            successor.restrictions,
            successor.queue,
        )
        was = former.subscription
        if former.live or same != (
            *(was.owner, was.session, was.subject, was.expression, was.device, was.restrictions, was.queue),
        ):
            account.wrong(offset, f"{successor.id} inherits what waits for {ended}, which is not the same")
        account.successors[ended] = successor.id
        account.stream(successor.owner, successor.session).inherit(ended, successor.id)
        for (owner, _), owed in account.owed.items():
            if owner == successor.owner:
                renamed = {(successor.id, number) for identity, number in owed if identity == ended}
                owed -= {(ended, number) for _, number in renamed}
                owed |= renamed

    def changed(self, offset: int, subscription: Subscription) -> None:
        """Follow a change, or another life of a subscription that had ended."""
        account = self.account
        known = account.known[subscription.id]
        if known.forgotten_us:
            account.wrong(offset, f"{subscription.id} changes, which was forgotten")
        if not known.live:
            if (account.at_us - known.ended_us) / 1e6 >= account.config.tombstone_s:
                account.wrong(offset, f"{subscription.id} lives again, which should be forgotten")
            if subscription.id in account.successors:
                account.wrong(
                    offset, f"{subscription.id} lives again, {account.successors[subscription.id]} stands for it"
                )
            known.live = True
            # A renewed subscription is placed behind the others, and its matches are sent in that order.
            account.known[subscription.id] = account.known.pop(subscription.id)
            self._check_quota(offset, subscription.owner)
            self.patterns.begin(offset, subscription)
        if subscription.expires_us != known.subscription.expires_us:
            self._check_lifetime(offset, subscription)
        known.subscription = subscription

    def _check_lifetime(self, offset: int, subscription: Subscription) -> None:
        account, config = self.account, self.account.config
        if subscription.expires_us is None:
            if config.lifetime_s_default is not None or config.lifetime_s_max is not None:
                account.wrong(offset, f"{subscription.id} lives for ever")
            return
        lifetime_us = subscription.expires_us - account.at_us
        if lifetime_us <= 0 or lifetime_us + _ROUNDING_US < config.lifetime_s_min * 1e6:
            account.wrong(offset, f"{subscription.id} lives for {lifetime_us} µs, which is too short")
        if config.lifetime_s_max is not None and lifetime_us - _ROUNDING_US > config.lifetime_s_max * 1e6:
            account.wrong(offset, f"{subscription.id} lives for {lifetime_us} µs, which is too long")

    def _check_quota(self, offset: int, owner: str) -> None:
        account = self.account
        live = [k for k in account.of_owner(owner) if k.live]
        if len(live) > account.config.user_subscriptions_max:
            account.wrong(offset, f"{owner} has {len(live)} subscriptions")

    def ended(self, offset: int, record: records.Unsubscribed) -> None:
        """Check the end of a subscription."""
        account = self.account
        known = account.known[record.subscription]
        expires_us = known.subscription.expires_us
        if record.reason == "expired" and (expires_us is None or expires_us > record.at_us):
            account.wrong(offset, f"{record.subscription} was reported as expired too early")
        if record.reason == "asked" and record.subscription not in account.happened.unsubscribed:
            account.wrong(offset, f"{record.subscription} ended without anybody having asked for it")
        self.patterns.end(offset, record.subscription, record.at_us)
        self.engine.end(record)
        known.live, known.ended_us, known.reason = False, record.at_us, record.reason

    def forgotten(self, offset: int, record: records.Forgotten) -> None:
        """Check that ended subscriptions are forgotten only once nothing waits for them."""
        account = self.account
        for identity in record.subscriptions:
            known = account.known[identity]
            if known.live:
                account.wrong(offset, f"{identity} is forgotten while it lives")
            ended = [k for k in account.of_owner(known.subscription.owner) if not k.live and not k.forgotten_us]
            early = (record.at_us - known.ended_us) / 1e6 < account.config.tombstone_s
            is_over = (known.subscription.owner, known.subscription.session) in record.sessions
            has_room = len(ended) <= account.config.user_subscriptions_max and not is_over
            if early and has_room:
                account.wrong(offset, f"{identity} is forgotten before its time")
            known.forgotten_us = record.at_us
            stream = account.stream(known.subscription.owner, known.subscription.session)
            if has_room and (coming := self.engine.waits_for(identity)):
                account.wrong(offset, f"{identity} is forgotten while the engine has {coming} for it")
            for entry in stream.waiting_for(identity):
                if not early and has_room:
                    account.wrong(offset, f"{identity} is forgotten while {entry.number} waits for it")
                stream.drop(entry, identity, "forgotten")
            stream.trim()
