"""Subscriptions that come, expire, end, return and are forgotten, against two lists (SPEC G-05 to G-11, X21)."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.broker.desk import Desk
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Done, Notify, Query, Renew, RequestRefused, SubscriptionEnded, Unsubscribe

MOST, TOMBSTONE_S = 3, 50.0
CONTENTS = st.integers(0, 3)
LIFETIMES = st.none() | st.sampled_from([5.0, 20.0, 100.0])
PLACES = st.integers(0, 20)


class LifetimesAgainstModel(RuleBasedStateMachine):
    """One user, one device, and a query after every step, which lets the broker notice expiry."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(BrokerConfig(user_subscriptions_max=MOST, tombstone_s=TOMBSTONE_S, sweep_s=None))
        self.link = self.desk.attach()
        self.epoch = 1
        self.live: dict[str, list[Any]] = {}
        """Content and second of expiry, by id, in the order of creation."""
        self.ended: dict[str, tuple[int, float]] = {}
        """Content and second of the end, by id, in that order."""
        self.seen: list[str] = []
        self.expected_ends: list[tuple[str, str]] = []

    def end(self, identity: str) -> None:
        self.ended[identity] = (self.live.pop(identity)[0], self.desk.now)
        if len(self.ended) > MOST:
            del self.ended[next(iter(self.ended))]

    def until(self, lifetime_s: float | None) -> float | None:
        return None if lifetime_s is None else self.desk.now + lifetime_s

    @rule(content=CONTENTS, lifetime_s=LIFETIMES)
    def subscribe(self, content: int, lifetime_s: float | None) -> None:
        same = next((identity for identity, (each, _) in self.live.items() if each == content), None)
        answer = self.desk.subscribe(self.link, f"K == {content}", lifetime_s=lifetime_s)
        if same is None and len(self.live) == MOST:
            assert isinstance(answer, RequestRefused)
            return
        assert isinstance(answer, Done)
        identity = answer.subscriptions[0].id
        assert identity == same or (same is None and identity not in self.seen)
        self.live.setdefault(identity, [content, None])[1] = self.until(lifetime_s)
        self.seen.append(identity)

    @precondition(lambda self: self.seen)
    @rule(place=PLACES, lifetime_s=LIFETIMES)
    def renew(self, place: int, lifetime_s: float | None) -> None:
        identity = self.seen[-1 - place % len(self.seen)]
        answer = self.desk.ask(self.link, Renew(1, identity, lifetime_s))
        if identity not in self.live:
            content, ended = self.ended.get(identity, (None, -1e9))
            alive = [each for each, (of_it, _) in self.live.items() if of_it == content]
            if self.desk.now - ended >= TOMBSTONE_S or (len(self.live) == MOST and not alive):
                assert isinstance(answer, RequestRefused)
                return
            if alive:
                (identity,) = alive
            else:
                identity = [each for each, (of_it, _) in self.ended.items() if of_it == content][-1]
                del self.ended[identity]
                self.live[identity] = [content, None]
                self.live = {each: self.live[each] for each in sorted(self.live, key=self.seen.index)}
        assert isinstance(answer, Done)
        assert [subscription.id for subscription in answer.subscriptions] == [identity]
        self.live[identity][1] = self.until(lifetime_s)

    @precondition(lambda self: self.seen)
    @rule(place=PLACES)
    def unsubscribe(self, place: int) -> None:
        identity = self.seen[-1 - place % len(self.seen)]
        assert self.desk.ask(self.link, Unsubscribe(1, identity)) == Done(1, ())
        if identity in self.live:
            self.end(identity)

    @rule(content=CONTENTS)
    def publish(self, content: int) -> None:
        before = len(self.desk.received(self.link, Notify))
        self.desk.publish(self.link, 1, K=content)
        heard = [set(message.subscriptions) for message in self.desk.received(self.link, Notify)[before:]]
        matched = {identity for identity, (each, _) in self.live.items() if each == content}
        assert heard == ([matched] if matched else [])
        for message in self.desk.received(self.link, Notify)[before:]:
            self.desk.take(self.link, message.number)

    @rule(seconds=st.sampled_from([1.0, 5.0, 19.0, 49.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.desk.later(seconds)
        for identity in [i for i, (_, until) in self.live.items() if until is not None and until <= self.desk.now]:
            self.end(identity)
            self.expected_ends.append((identity, "expired"))

    @rule()
    def sweep(self) -> None:
        self.desk.broker._subscriptions.sweep()
        self.desk.give()
        assert all(
            self.desk.now - ended < TOMBSTONE_S or i not in self.desk.broker.state.tombstones
            for i, (_, ended) in self.ended.items()
        )

    @rule(with_rows=st.booleans())
    def restart(self, with_rows: bool) -> None:
        self.desk.save()
        self.desk.restart(with_rows=with_rows)
        self.epoch += 1
        self.link = self.desk.attach(epoch=self.epoch)
        self.expected_ends.clear()

    @invariant()
    def a_query_lists_what_lives(self) -> None:
        answer = self.desk.ask(self.link, Query(1))
        assert isinstance(answer, Done)
        assert [subscription.id for subscription in answer.subscriptions] == list(self.live)

    @invariant()
    def what_expired_was_told(self) -> None:
        heard = self.desk.received(self.link, SubscriptionEnded)
        assert [(message.subscription.id, message.reason) for message in heard] == self.expected_ends


LifetimesAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLifetimesAgainstModel = LifetimesAgainstModel.TestCase
