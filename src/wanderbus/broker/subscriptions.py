"""Subscriptions: subscribe, end, renew, restrict, query (SPEC A-11, G)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from wanderbus import protocol, records
from wanderbus.broker import admission
from wanderbus.broker.basics import Basics
from wanderbus.broker.engine.events import EngineEvents
from wanderbus.broker.history.catch_up import CatchUp
from wanderbus.broker.history.lookups import Lookups
from wanderbus.broker.interest.index_entries import IndexEntry, entries_of
from wanderbus.broker.interest.matcher import Matcher
from wanderbus.broker.interest.measured_filter import read_filter
from wanderbus.broker.interest.publisher_filters import PublisherFilters
from wanderbus.broker.messages import KernelWanted, OffsetFound, SubscriptionUnreadable
from wanderbus.broker.patterns.detections import Detections
from wanderbus.broker.patterns.pattern_admission import (
    check_engine,
    check_pattern,
    check_room,
    has_its_events,
)
from wanderbus.broker.permissions import Permissions
from wanderbus.broker.queues.queue_policies import QueuePolicies
from wanderbus.broker.readers import Asker, Link
from wanderbus.broker.restrictions.restriction_check import admitted
from wanderbus.broker.servers.interest_requests import InterestRequests
from wanderbus.broker.state.expiry_index import ExpiryIndex
from wanderbus.broker.state.rows import LogSpan, SessionRow, session_key
from wanderbus.broker.tombstones import Tombstones, is_same_request
from wanderbus.errors import FilterError, LimitExceeded, Refused
from wanderbus.event import Position
from wanderbus.limits import SUBSCRIPTION_BYTES_MAX
from wanderbus.subscription import PATTERN, Subscription

SWEEP_MAX: Final = 500
"""Subscriptions that one sweep ends, and that it forgets; bounds the time that others wait for a sweep."""

LEFT_BEHIND: Final = "left_behind"
"""Reason of the end of a subscription whose devices are gone, and whose application did not want to keep it."""

EXPIRED_PER_PUBLISH_MAX: Final = 16
"""Expired subscriptions that one publish ends beside those it matches; bounds the wait of its publisher."""


class Subscriptions:
    """Answers an agent's requests about its session's subscriptions; users have access to their own only."""

    def __init__(
        self,
        basics: Basics,
        matcher: Matcher,
        catch_up: CatchUp,
        detections: Detections,
        engine: EngineEvents,
        interest: InterestRequests,
        publisher_filters: PublisherFilters,
        lookups: Lookups,
        policies: QueuePolicies | None = None,
    ) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._queue_limits = basics.queue_limits
        self._servers = basics.servers
        self._interest = interest
        self._publisher_filters = publisher_filters
        self._config = basics.config
        self._permissions = Permissions("may_subscribe", basics.config.may_subscribe)
        self.kinds = basics.kinds
        """The kinds of restriction that the operator has added."""
        self._policies = policies or QueuePolicies()
        self.matcher = matcher
        """The index of subscriptions."""
        self._catch_up = catch_up
        self._detections = detections
        self._engine = engine
        self._lookups = lookups
        self._live = ExpiryIndex()
        self._ended = Tombstones(basics.state, basics.journal, basics.config, engine)
        kept = [row.subscription for row in sorted(basics.state.subscriptions.values(), key=lambda row: row.number)]
        self._add_many(kept)

    def take_over(self, session: SessionRow) -> None:
        """Match the subscriptions of an imported session from now on."""
        kept = [self._state.subscriptions[identity].subscription for identity in session.subscriptions]
        self._add_many(kept)
        self._ended.take_over(session)

    def read_log(self, session: SessionRow) -> None:
        """Let the subscriptions of a session read the log, which have waited for the rest of its queue."""
        for identity in session.subscriptions:
            self._catch_up.add(identity)

    def release(self, session: SessionRow) -> None:
        """Match the subscriptions of a session no longer; their rows stay until the session is fenced."""
        for identity in session.subscriptions:
            self.matcher.remove(identity)
            self._live.drop(identity, session.user)
        self._ended.release(session)

    def left(self, subscriptions: Iterable[Subscription]) -> None:
        """Want nothing for the subscriptions of a fenced session any more.

        The record of the fence comes before: as long as it can be lost, the events are for the session here.
        """
        for subscription in subscriptions:
            self._interest.remove(subscription.id)
            self._publisher_filters.remove(subscription)

    def _add_many(self, subscriptions: Sequence[Subscription]) -> None:
        """Add live subscriptions; one that can no longer be parsed matches nothing, and is reported."""
        for subscription in subscriptions:
            self._live.put(subscription.id, subscription.owner, subscription.expires_us)
            self._catch_up.add(subscription.id)
        for subscription, error in self.matcher.add_many(subscriptions):
            self._journal.emit(SubscriptionUnreadable(subscription.id, protocol.shortened(error.reason)))
        self._interest.add_earlier(each for each in subscriptions if each.owner not in self._servers.all)
        self._publisher_filters.add_many(subscriptions)
        self.ask_for_kernel()

    def copied(self, user: str, session: str, subscription: Subscription) -> tuple[Subscription, Sequence[IndexEntry]]:
        """Return a subscription of a copy as ``user`` may have it in ``session``, without an id; it is kept.

        Raise the errors of a request for it. A pattern, and a subscription of one device alone, cannot be copied.
        """
        if subscription.language == PATTERN or subscription.device is not None:
            raise Refused(f"the subscription {subscription.id!r} is a pattern or of one device alone: it is no copy")
        request = protocol.Subscribe(
            0,
            subscription.subject,
            subscription.expression,
            None,
            subscription.restrictions,
            this_device_only=False,
            expires_us=subscription.expires_us,
            queue=subscription.queue,
            language=subscription.language,
            format=subscription.format,
        )
        wanted = self._wanted(Asker(user, session, "", is_server=False), request)
        admission.check_size(wanted)
        return wanted, entries_of(wanted)

    def check_room(self, wanted: Sequence[tuple[Subscription, Sequence[IndexEntry]]]) -> None:
        """Raise :class:`LimitExceeded` if their owner may not have all of these too."""
        if wanted:
            self._check_quota(wanted)

    def offset_found(self, given: OffsetFound) -> None:
        """Answer the request for a subscription since a point in the past, whose first offset was looked up."""
        if (waiting := self._lookups.found(given)) is None or not self._links.is_open(waiting[0]):
            return
        link, request, found = waiting
        if isinstance(found, str):
            self._links.send(link, protocol.RequestRefused(request.request, protocol.shortened(found)))
        else:
            self.answer(link, request, found)

    def answer(self, link: Link, request: protocol.SubscriptionRequest, first: LogSpan | None = None) -> None:
        """Serve one request; the answer is sent once the change is durable.

        A subscription since a point in the past needs the place ``first`` of that point in a log; without it, the
        answer waits until the place was looked up.
        """
        try:
            if isinstance(request, protocol.Subscribe) and self._has_to_look_up(link, request, first):
                self._lookups.ask(link, request)
                return
            done = self._serve(link, request, first)
        except (FilterError, LimitExceeded, Refused) as error:
            self._links.send(link, admission.refusal(request.request, error))
        else:
            if isinstance(request, protocol.Subscribe | protocol.Renew):
                everywhere = isinstance(request, protocol.Subscribe) and request.everywhere
                self._interest.when_effective(
                    done[0].id, link, lambda: self._accept_when_used(link, request, done), everywhere=everywhere
                )
            elif isinstance(request, protocol.Query) and link.reads_whole:
                # To another server, or a gateway, a subscription that it finds here counts.
                self.when_used(done, lambda: self._list(link, request))
            else:
                self._send_done(link, request.request, done)

    def _accept_when_used(
        self, link: Link, request: protocol.Subscribe | protocol.Renew, done: Sequence[Subscription]
    ) -> None:
        """Answer a request for a subscription once no publishing agent holds back events that it matches."""
        self.when_used(done, lambda: self._accept(link, request, done))

    def _list(self, link: Link, request: protocol.Query) -> None:
        """Answer with the subscriptions of the session, unless its link is closed."""
        if self._links.is_open(link):
            self._send_done(link, request.request, self._serve(link, request))

    def when_used(self, subscriptions: Sequence[Subscription], answer: Callable[[], None]) -> None:
        """Call ``answer`` once no publishing agent holds back events that these subscriptions match."""
        self._publisher_filters.when_used(subscriptions, answer)

    def _accept(self, link: Link, request: protocol.Subscribe | protocol.Renew, done: Sequence[Subscription]) -> None:
        """Answer a request for a subscription that counts now, unless its link is closed."""
        if not self._links.is_open(link):
            return
        self._send_done(link, request.request, done)
        if isinstance(request, protocol.Subscribe):
            self._read_at_once(link, request, done[0].id)

    def ask_for_kernel(self) -> None:
        """Request another kernel if it would save matching work."""
        if kernel := self.matcher.wanted_kernel():
            self._journal.emit(KernelWanted(kernel))

    def end(self, subscription: Subscription, reason: str, abandoned_by: str = "") -> None:
        """End ``subscription``; its queue stays (SPEC G-07). The device ``abandoned_by`` will not read it.

        The broker notifies its devices unless they asked for the end (SPEC G-10). It can be renewed for a while
        (SPEC X21).
        """
        self._detections.finish(subscription)
        self.matcher.remove(subscription.id)
        self._live.drop(subscription.id, subscription.owner)
        ended = records.Unsubscribed(
            at_us=self._state.wall_us,
            user=subscription.owner,
            subscription=subscription.id,
            reason=reason,
            abandoned_by=abandoned_by,
        )
        self._journal.write(ended, urgent=reason != "expired")
        self._interest.remove(subscription.id)
        self._publisher_filters.remove(subscription)
        self._ended.add(subscription)
        if reason != "asked":
            self._send_ended(subscription, reason)

    def read(
        self, link: Link, handle: int, subscription: str, taken: Position | None, group: int | None = None
    ) -> None:
        """Open a device's reader of one of its session's subscriptions, also of an ended one (SPEC G-07).

        ``taken`` is the position that its application has acknowledged in this life; the broker may have missed it.
        """
        row = self._state.known(subscription)
        if row is None or not _is_of(link, row.subscription) or row.subscription.device not in (None, link.device):
            return
        session = self._state.sessions[session_key(row.subscription.owner, row.subscription.session)]
        if taken is not None:
            self._links.acknowledge(session, link.device, session.in_common(taken), (subscription,))
        self._links.read(link, handle, subscription, group)

    def _read_at_once(self, link: Link, request: protocol.Subscribe, subscription: str) -> None:
        session = self._state.sessions[session_key(link.user, link.session or "")]
        if request.resume is not None:
            self._links.resume(link, session, request.resume, subscription)
        reader = link.reader(subscription)
        if request.reader is not None and (reader is None or reader.is_inherited):
            self.read(link, request.reader, subscription, None)

    def discard(self, user: str, session: str, device: str, *, keep_queue: bool) -> None:
        """End every subscription of a session but those bound to another device (SPEC G-09, X20)."""
        for subscription in self._of_session(user, session):
            if subscription.device in (None, device):
                self.end(subscription, "discarded", "" if keep_queue else device)

    def end_patterns_without_events(self, identities: Sequence[str]) -> None:
        """End the patterns among these that lack events because these go to the matching engine of this server.

        Their devices subscribe again when they are back, and are refused with the reason.
        """
        for subscription in [self._state.subscriptions[each].subscription for each in identities]:
            if not has_its_events(subscription, self._engine):
                self.end(subscription, "matched_by_engine")

    def end_expired_of(self, user: str) -> None:
        """End the expired subscriptions of a user."""
        self._without_expired(list(self._live.of_user(user)))

    def forget_session(self, session: SessionRow) -> None:
        """Forget a session that is over, together with its ended subscriptions."""
        self._ended.forget_session(session)

    def sweep(self) -> bool:
        """End expired subscriptions, forget those ended ``tombstone_s`` ago; return whether some are left (X18)."""
        expired = self._live.due(self._state.wall_us, SWEEP_MAX)
        for identity in expired:
            self.end(self._state.subscriptions[identity].subscription, "expired")
        is_rest = self._ended.sweep(SWEEP_MAX)
        return is_rest or len(expired) == SWEEP_MAX

    def end_expired(self) -> None:
        """End some of the expired subscriptions, whether or not an event matches them; the sweep ends the others."""
        for identity in self._live.due(self._state.wall_us, EXPIRED_PER_PUBLISH_MAX):
            self.end(self._state.subscriptions[identity].subscription, "expired")

    def end_all(self, expired: Iterable[Subscription]) -> None:
        """End these subscriptions, which an event has matched after their expiry."""
        for subscription in expired:
            self.end(subscription, "expired")

    def _send_done(self, link: Link, request: int, subscriptions: Sequence[Subscription]) -> None:
        """Answer in as many messages as ``subscriptions`` need."""
        part: list[Subscription] = []
        part_bytes = 0
        for subscription in subscriptions:
            size = protocol.size_of(subscription)
            if part_bytes + size > SUBSCRIPTION_BYTES_MAX:
                self._links.send(link, protocol.Done(request, tuple(part), more=True))
                part, part_bytes = [], 0
            part.append(subscription)
            part_bytes += size
        self._links.send(link, protocol.Done(request, tuple(part)))

    def _send_ended(self, subscription: Subscription, reason: str) -> None:
        message = protocol.SubscriptionEnded(subscription, reason)
        for link in self._links.of_session(session_key(subscription.owner, subscription.session)):
            if subscription.device in (None, link.device):
                self._links.send(link, message)

    def _serve(
        self, link: Link, request: protocol.SubscriptionRequest, first: LogSpan | None = None
    ) -> Sequence[Subscription]:
        assert link.session is not None
        match request:
            case protocol.Subscribe():
                return [self._subscribe(link, link.session, request, first)]
            case protocol.Query():
                return self._of_session(link.user, link.session)
            case protocol.Unsubscribe(subscription=identity, abandon=abandon):
                if subscription := self._own(link, identity):
                    self.end(subscription, "asked", link.device if abandon else "")
                elif subscription := self._in_reach(link, identity):
                    self.end(subscription, "unsubscribed")
                if abandon:
                    self._abandon(link, identity)
                return []
            case protocol.Renew():
                return [self._renew(link, request)]
            case protocol.Restrict(subscription=identity, restrictions=restrictions):
                accepted = admitted(restrictions, zone=self._config.zone, kinds=self.kinds)
                subscription = self._own(link, identity)
                if subscription is None or self._expired(subscription):
                    raise _unknown(identity)
                return [self._change(subscription, restrictions=accepted)]

    def _has_to_look_up(self, link: Link, request: protocol.Subscribe, first: LogSpan | None) -> bool:
        """Return whether a valid request would begin a subscription in the past; raise its refusal otherwise."""
        if request.since is None or request.succeeds is not None or first is not None:
            return False
        return self._live_as(self._wanted(link, request)) is None

    def _wanted(self, link: Link | Asker, request: protocol.Subscribe) -> Subscription:
        """Return the requested subscription, without an id; raise :class:`Refused` if it is not permitted or valid."""
        assert link.session is not None
        is_reserved = self._servers.reserves(link.user)
        if self._servers.is_foreign(link.user):
            admission.check_foreign(request)
        if request.language == PATTERN:
            subject = check_pattern(link.user, request, self._permissions, self._engine)
        else:
            subject = request.subject
            admission.check_subject(subject, is_server=link.is_server)
            if not is_reserved and (refusal := self._permissions.refusal(link.user, subject)):
                raise Refused(refusal)
        if request.since is not None:
            self._lookups.check_channel(request.subject)
        admission.check_queue(request.queue)
        self._policies.check(request.queue.policy)
        if request.language != PATTERN:
            read_filter(request.expression, request.language)
        return Subscription(
            id="",
            owner=link.user,
            session=link.session,
            subject=subject,
            expression=request.expression,
            expires_us=None if is_reserved else self._expiry_us(request),
            restrictions=admitted(request.restrictions, zone=self._config.zone, kinds=self.kinds),
            device=link.device if request.this_device_only else None,
            queue=request.queue,
            language=request.language,
            format=request.format,
            since=request.since,
        )

    def _subscribe(
        self, link: Link, session: str, request: protocol.Subscribe, first: LogSpan | None = None
    ) -> Subscription:
        wanted = self._wanted(link, request)
        if (subscription := self._live_as(wanted)) is not None:
            self._hold(subscription, link.device, is_kept=request.is_kept)
            if subscription.expires_us == wanted.expires_us:
                return subscription
            return self._change(subscription, expires_us=wanted.expires_us)
        entries = entries_of(wanted)
        self._check_quota([(wanted, entries)])
        inherits = self._ended.inheritable(link, wanted, request)
        accepted = msgspec.structs.replace(wanted, id=str(self._state.next_id))
        admission.check_size(accepted)
        is_elsewhere = first is not None and first.server != self._state.server
        has_past = first is not None and (is_elsewhere or first.next < self._state.offset)
        subscribed = records.Subscribed(
            at_us=self._state.wall_us,
            subscription=accepted,
            number=self._state.next_subscription,
            inherits=inherits,
            history=first.next if first is not None and has_past else None,
            log=(first.server, first.incarnation) if first is not None and is_elsewhere else None,
            leader_epoch=first.epoch if first is not None and has_past else 0,
            holder="" if request.is_kept else link.device,
        )
        self._journal.write(subscribed, urgent=True)
        self._take_up(accepted, entries)
        if inherits is not None:
            self._links.rename(self._state.sessions[session_key(link.user, session)], inherits, accepted.id)
        return accepted

    def _hold(self, subscription: Subscription, device: str, *, is_kept: bool) -> None:
        """Record that a device has asked for a live subscription too; one that is kept stays so."""
        holders = self._state.subscriptions[subscription.id].holders
        if holders and is_kept:
            self._change(subscription, holders=())
        elif holders and device not in holders:
            self._change(subscription, holders=(*holders, device))

    def let_go(self, session: SessionRow, device: str, *, is_gone: bool) -> None:
        """End the subscriptions that ``device`` alone holds: it has left its session, or is away for too long.

        A device that ``is_gone`` does not read what still waits; one that is only away may come back for it (G-07).
        """
        for identity in list(session.subscriptions):
            row = self._state.subscriptions[identity]
            if row.holders == (device,):
                self.end(row.subscription, LEFT_BEHIND, device if is_gone else "")
                if is_gone:
                    self._queue_limits.abandon(session, row, device)
            elif is_gone and device in row.holders:
                self._change(row.subscription, holders=tuple([each for each in row.holders if each != device]))

    def hand_on(self, session: SessionRow, former: Sequence[str], device: str) -> None:
        """Let ``device`` hold what the ``former`` devices of its session hold."""
        for identity in list(session.subscriptions):
            row = self._state.subscriptions[identity]
            if not set(former).isdisjoint(row.holders):
                others = [each for each in row.holders if each not in (*former, device)]
                self._change(row.subscription, holders=(*others, device))

    def end_left_behind(self) -> None:
        """End what is held by devices that have left: the server may have stopped before it could record that."""
        left: dict[tuple[str, str], SessionRow] = {}
        for row in self._state.subscriptions.values():
            if row.holders:
                session = self._state.sessions[session_key(row.subscription.owner, row.subscription.session)]
                left |= {(session.key, device): session for device in row.holders if device not in session.devices}
        for (_, device), session in left.items():
            self.let_go(session, device, is_gone=True)

    def _abandon(self, link: Link, identity: str) -> None:
        """Drop what a subscription that this device has ended keeps for it; the device will not read it."""
        row = self._state.known(identity)
        if row is not None and _is_of(link, row.subscription):
            session = self._state.sessions[session_key(row.subscription.owner, row.subscription.session)]
            self._queue_limits.abandon(session, row, link.device)
            self._links.acknowledge(session, link.device, session.next - 1, (identity,))

    def _renew(self, link: Link, request: protocol.Renew) -> Subscription:
        """Give a subscription another expiry, also if it ended less than ``tombstone_s`` ago (SPEC X21).

        If a newer subscription has the same request or has inherited the queue, renew that one.
        """
        expires_us = self._expiry_us(request)
        subscription = self._own(link, request.subscription)
        if subscription is None and (ended := self._own_ended(link, request.subscription)):
            subscription = self._live_as(ended)
            if subscription is None and (latest := self._ended.latest(ended)):
                if latest.id not in self._state.subscriptions:
                    return self._revive(link, latest, expires_us)
                subscription = latest
        if subscription is None:
            raise _unknown(request.subscription)
        return self._change(subscription, expires_us=expires_us)

    def _revive(self, link: Link, ended: Subscription, expires_us: int | None) -> Subscription:
        """Let an ended subscription live again, with another expiry; if it is not kept, this device holds it."""
        if ended.language == PATTERN:
            check_engine(ended.expression, self._engine)
        entries = entries_of(ended)
        self._check_quota([(ended, entries)])  # it may make the broker forget the ended ones
        if (row := self._state.tombstones.get(ended.id)) is None:
            raise _unknown(ended.id)
        return self._change(ended, entries, (link.device,) if row.holders else None, expires_us=expires_us)

    def _change(
        self,
        subscription: Subscription,
        revived: Sequence[IndexEntry] = (),
        holders: tuple[str, ...] | None = None,
        **fields: object,
    ) -> Subscription:
        """Record a subscription with other ``fields``; ``revived`` are the entries of one that had ended."""
        changed = msgspec.structs.replace(subscription, **fields)
        admission.check_size(changed)
        self._journal.write(
            records.Changed(at_us=self._state.wall_us, subscription=changed, holders=holders),
            urgent=True,
        )
        if revived:
            self._ended.remove(changed)
            self._take_up(changed, revived)
        else:
            self._live.put(changed.id, changed.owner, changed.expires_us)
        return changed

    def _own(self, link: Link, identity: str) -> Subscription | None:
        row = self._state.subscriptions.get(identity)
        return row.subscription if row and _is_of(link, row.subscription) else None

    def _in_reach(self, link: Link, identity: str) -> Subscription | None:
        """Return a subscription in any session, of the user or for an administrator; from the operations session."""
        row = self._state.subscriptions.get(identity)
        if row is None or link.session != protocol.OPERATIONS:
            return None
        reaches = link.user == row.subscription.owner or self._config.roles.get(link.user) == "administrator"
        return row.subscription if reaches else None

    def _own_ended(self, link: Link, identity: str) -> Subscription | None:
        """Return a subscription of the link's session that has ended and can still be renewed."""
        ended = self._ended.renewable(identity)
        return ended if ended is not None and _is_of(link, ended) else None

    def _live_as(self, wanted: Subscription) -> Subscription | None:
        """Return the live subscription in the session of ``wanted`` with the same request."""
        of_session = self._of_session(wanted.owner, wanted.session)
        return next((each for each in of_session if is_same_request(each, wanted)), None)

    def _of_session(self, user: str, name: str) -> list[Subscription]:
        """Return the live subscriptions of a session, after ending the expired ones (SPEC G-06)."""
        session: SessionRow | None = self._state.sessions.get(session_key(user, name))
        return self._without_expired(list(session.subscriptions) if session else [])

    def _without_expired(self, identities: Sequence[str]) -> list[Subscription]:
        live = []
        for identity in identities:
            subscription = self._state.subscriptions[identity].subscription
            if self._expired(subscription):
                self.end(subscription, "expired")
            else:
                live.append(subscription)
        return live

    def _expired(self, subscription: Subscription) -> bool:
        return subscription.expires_us is not None and subscription.expires_us <= self._state.wall_us

    def _expiry_us(self, request: protocol.Subscribe | protocol.Renew) -> int | None:
        return admission.expiry_us(self._config, self._state.wall_us, request.lifetime_s, request.expires_us)

    def _check_quota(self, wanted: Sequence[tuple[Subscription, Sequence[IndexEntry]]]) -> None:
        """Raise :class:`LimitExceeded` if their owner may not have these too, or none with these filters.

        A server of the domain may have any.
        """
        user = wanted[0][0].owner
        if user in self._servers.users:
            return
        if any(subscription.language == PATTERN for subscription, _ in wanted):
            check_room(user, self._state.patterns, self._config.user_pattern_events_max)
        most = self._config.user_subscriptions_max
        left = most - len(wanted)
        if len(of_user := self._live.of_user(user)) > left and len(self._without_expired(list(of_user))) > left:
            raise LimitExceeded(
                f"{user} has the maximum of {most} subscriptions; end one first", "user_subscriptions_max"
            )
        several = [each for _, entries in wanted for each in entries]
        for each in several:
            self.matcher.work.check(each.interest.work)
        most, size = self._config.user_filter_bytes_max, sum(each.interest.bytes for each in several)
        if self.matcher.bytes.of_user(user) + size > most:
            self._without_expired(list(of_user))
        self.matcher.bytes.check(user, size, most)

    def _take_up(self, subscription: Subscription, entries: Sequence[IndexEntry]) -> None:
        self._live.put(subscription.id, subscription.owner, subscription.expires_us)
        self._catch_up.add(subscription.id)
        self.matcher.add(subscription, entries)
        if subscription.owner not in self._servers.all:
            self._interest.add([(subscription, entries)])
        self._publisher_filters.add(subscription, entries)
        self.ask_for_kernel()


def _is_of(link: Link, subscription: Subscription) -> bool:
    return (subscription.owner, subscription.session) == (link.user, link.session)


def _unknown(identity: str) -> Refused:
    return Refused(f"the session has no subscription {identity!r}; it may have expired: query its subscriptions")
