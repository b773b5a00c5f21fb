"""Subscriptions: submitting, ending, renewing, restricting, asking; and the index that finds them (SPEC A-11)."""

from __future__ import annotations

from collections.abc import Sequence

from wanderbus import filters, records
from wanderbus.broker import protocol
from wanderbus.broker.config import BrokerConfig
from wanderbus.broker.journal import Journal
from wanderbus.broker.links import Link, Links
from wanderbus.broker.restrictions import check_restrictions
from wanderbus.broker.state import BrokerState, SessionRow, session_key
from wanderbus.errors import FilterError, LimitExceeded, Refused
from wanderbus.event import Event
from wanderbus.limits import EVENT_NAME_CHARACTERS_MAX, SUBSCRIPTION_BYTES_MAX
from wanderbus.matching import Index
from wanderbus.subscription import Subscription


class Subscriptions:
    """Answers an agent's requests about its session's subscriptions; a user reaches only their own."""

    def __init__(self, state: BrokerState, journal: Journal, links: Links, config: BrokerConfig) -> None:
        self._state = state
        self._journal = journal
        self._links = links
        self._subscriptions_max = config.user_subscriptions_max
        self._index = Index()
        for row in state.subscriptions.values():
            self._add_to_index(row.subscription)

    def matching(self, event: Event) -> Sequence[str]:
        """Return the ids of the subscriptions whose subject and expression ``event`` satisfies."""
        return list(self._index.match([event])[0])

    def answer(self, link: Link, request: protocol.OfSubscriptions) -> None:
        """Serve one request and answer it, once what it changed is durable."""
        try:
            done = self._serve(link, request)
        except FilterError as error:
            reason = protocol.shortened(error.reason)
            self._links.say(link, protocol.RequestRefused(request.request, reason, position=error.position))
        except LimitExceeded as error:
            reason = protocol.shortened(error)
            self._links.say(link, protocol.RequestRefused(request.request, reason, limit=error.limit))
        except Refused as error:
            self._links.say(link, protocol.RequestRefused(request.request, protocol.shortened(error)))
        else:
            self._say_done(link, request.request, done)

    def end(self, subscription: Subscription, reason: str) -> None:
        """End ``subscription``; what it has queued stays (SPEC G-07)."""
        self._index.remove(subscription.id)
        self._journal.write(
            records.Unsubscribed(
                at_us=self._state.wall_us,
                user=subscription.owner,
                subscription=subscription.id,
                reason=reason,
            ),
            urgent=reason != "expired",
        )

    def discard(self, user: str, session: str, device: str) -> None:
        """End every subscription of a session but those bound to another device (SPEC G-09, X20)."""
        for subscription in self._of_session(user, session):
            if subscription.device in (None, device):
                self.end(subscription, "discarded")

    def _say_done(self, link: Link, request: int, subscriptions: Sequence[Subscription]) -> None:
        """Answer in as many messages as it takes to list ``subscriptions``."""
        part: list[Subscription] = []
        part_bytes = 0
        for subscription in subscriptions:
            size = protocol.size_of(subscription)
            if part_bytes + size > SUBSCRIPTION_BYTES_MAX:
                self._links.say(link, protocol.Done(request, tuple(part), more=True))
                part, part_bytes = [], 0
            part.append(subscription)
            part_bytes += size
        self._links.say(link, protocol.Done(request, tuple(part)))

    def _serve(self, link: Link, request: protocol.OfSubscriptions) -> Sequence[Subscription]:
        assert link.session is not None
        match request:
            case protocol.Subscribe():
                return [self._subscribe(link, link.session, request)]
            case protocol.Query():
                return self._of_session(link.user, link.session)
            case protocol.Unsubscribe(subscription=identity):
                if subscription := self._own(link, identity):
                    self.end(subscription, "asked")
                return []
            case protocol.Renew(subscription=identity, lifetime_s=lifetime_s):
                return [self._change(link, identity, {"expires_us": self._expiry_us(lifetime_s)})]
            case protocol.Restrict(subscription=identity, restrictions=restrictions):
                check_restrictions(restrictions)
                return [self._change(link, identity, {"restrictions": restrictions})]

    def _subscribe(self, link: Link, session: str, request: protocol.Subscribe) -> Subscription:
        if not 0 < len(request.subject) <= EVENT_NAME_CHARACTERS_MAX:
            raise Refused(f"a subject has 1 to {EVENT_NAME_CHARACTERS_MAX} characters")
        if request.queue.notifications_max is not None and request.queue.notifications_max < 1:
            raise Refused("queue.notifications_max must be at least 1")
        filters.parse(request.expression)
        check_restrictions(request.restrictions)
        existing = self._of_session(link.user, session)
        wanted = Subscription(
            id=f"{self._state.server}-{self._state.offset}",
            owner=link.user,
            session=session,
            subject=request.subject,
            expression=request.expression,
            expires_us=self._expiry_us(request.lifetime_s),
            restrictions=request.restrictions,
            device=link.device if request.this_device_only else None,
            queue=request.queue,
        )
        for subscription in existing:
            if _same(subscription, wanted):
                if subscription.expires_us == wanted.expires_us:
                    return subscription
                return self._change(link, subscription.id, {"expires_us": wanted.expires_us})
        if len(existing) >= self._subscriptions_max:
            raise LimitExceeded(
                f"the session has {len(existing)} subscriptions, as many as it may; end one first",
                "user_subscriptions_max",
            )
        _check_size(wanted)
        self._journal.write(
            records.Subscribed(at_us=self._state.wall_us, subscription=wanted),
            urgent=True,
        )
        self._add_to_index(wanted)
        return wanted

    def _change(self, link: Link, identity: str, fields: dict[str, object]) -> Subscription:
        subscription = self._own(link, identity)
        if subscription is None:
            raise Refused(f"the session has no subscription {identity!r}; ask which it has, it may have expired")
        changed = _replaced(subscription, **fields)
        _check_size(changed)
        self._journal.write(
            records.Changed(at_us=self._state.wall_us, subscription=changed),
            urgent=True,
        )
        return changed

    def _own(self, link: Link, identity: str) -> Subscription | None:
        row = self._state.subscriptions.get(identity)
        if row is None or (row.subscription.owner, row.subscription.session) != (
            link.user,
            link.session,
        ):
            return None
        return row.subscription

    def _of_session(self, user: str, name: str) -> list[Subscription]:
        """Return the live subscriptions of a session, ending those whose time has come (SPEC G-06)."""
        session: SessionRow | None = self._state.sessions.get(session_key(user, name))
        live = []
        for identity in list(session.subscriptions) if session else []:
            subscription = self._state.subscriptions[identity].subscription
            if subscription.expires_us is not None and subscription.expires_us <= self._state.wall_us:
                self.end(subscription, "expired")
            else:
                live.append(subscription)
        return live

    def _expiry_us(self, lifetime_s: float | None) -> int | None:
        if lifetime_s is None:
            return None
        if not 0 < lifetime_s < 1e10:
            raise Refused("a subscription's lifetime must be above 0 seconds, and less than 300 years")
        return self._state.wall_us + round(lifetime_s * 1e6)

    def _add_to_index(self, subscription: Subscription) -> None:
        self._index.add(
            subscription.id,
            subscription.subject,
            filters.parse(subscription.expression),
        )


def _replaced(subscription: Subscription, **fields: object) -> Subscription:
    values = {name: getattr(subscription, name) for name in subscription.__struct_fields__}
    return Subscription(**(values | fields))


def _check_size(subscription: Subscription) -> None:
    """Raise :class:`LimitExceeded` for a subscription that would not fit an answer."""
    if (size := protocol.size_of(subscription)) > SUBSCRIPTION_BYTES_MAX:
        raise LimitExceeded(
            f"the subscription takes {size} bytes, {SUBSCRIPTION_BYTES_MAX} is the most", "subscription_bytes_max"
        )


def _same(one: Subscription, other: Subscription) -> bool:
    """Return whether both ask for the same in the same session: a repeat, or a return after a crash."""
    return _replaced(one, id="", expires_us=None) == _replaced(other, id="", expires_us=None)
