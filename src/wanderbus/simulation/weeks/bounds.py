"""Checks of the bounds of queues, recounted each time (SPEC G-15 to G-18, U-02)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from wanderbus.parameters.broker import BrokerConfig
from wanderbus.records import Dropped, Notified
from wanderbus.simulation.weeks.policy import LATEST, check_stale, check_superseded
from wanderbus.simulation.weeks.stream import Known, Stream, StreamEntry
from wanderbus.subscription import QueuePolicy

Streams = Mapping[tuple[str, str], Stream]

_OWN: Final = "subscription."


def is_bound(reason: str) -> bool:
    """Return whether a drop for ``reason`` makes room for a notification: the record of that one has to have it."""
    return reason.endswith("_max") or reason.startswith("policy.")


def check_bounds(
    config: BrokerConfig, streams: Streams, known: Mapping[str, Known], added: Sequence[Notified]
) -> Iterator[str]:
    """Yield the exceeded bounds once these notifications are in their queues and the excess was dropped."""
    last = {identity: each.number for each in added for identity in each.subscriptions}
    for notified in added:
        stream = streams[notified.user, notified.session]
        yield from _over(config.queue, list(stream.queue()), f"{notified.user}/{notified.session}")
        for identity in notified.subscriptions:
            policy, waiting = known[identity].subscription.queue, stream.waiting_for(identity)
            yield from _over(policy, waiting, identity)
            if policy.policy == LATEST and last[identity] in [entry.number for entry in waiting]:
                yield from check_stale(waiting, identity)
        if _bytes_of(streams, notified.user) > config.user_queued_bytes_max:
            yield f"more than user_queued_bytes_max wait for {notified.user}"
    if added and _bytes_of(streams) > config.queued_bytes_max:
        yield "more than queued_bytes_max wait"


def may_refuse(config: BrokerConfig, streams: Streams, wanted: Collection[tuple[str, str]], size: int) -> Iterator[str]:
    """Yield the operator's bounds that an event of ``size`` bytes would exceed in the queues of its subscribers."""
    for user, session in wanted:
        yield from _exceeded(config.queue, list(streams[user, session].queue()), size)
    users = [user for user, _ in wanted]
    if any(_bytes_of(streams, user) + size * users.count(user) > config.user_queued_bytes_max for user in users):
        yield "user_queued_bytes_max"
    if wanted and _bytes_of(streams) + size * len(wanted) > config.queued_bytes_max:
        yield "queued_bytes_max"


def _exceeded(policy: QueuePolicy, waiting: Sequence[StreamEntry], size: int) -> Iterator[str]:
    """Yield the bounds that one more notification would exceed."""
    if policy.notifications_max is not None and len(waiting) + 1 > policy.notifications_max:
        yield "queue.notifications_max"
    if policy.bytes_max is not None and sum(entry.size for entry in waiting) + size > policy.bytes_max:
        yield "queue.bytes_max"


def _over(policy: QueuePolicy, waiting: Sequence[StreamEntry], whose: str) -> Iterator[str]:
    if policy.notifications_max is not None and len(waiting) > policy.notifications_max:
        yield f"{len(waiting)} notifications wait for {whose}, at most {policy.notifications_max} may"
    size = sum(entry.size for entry in waiting)
    if policy.bytes_max is not None and size > policy.bytes_max:
        yield f"{size} bytes wait for {whose}, at most {policy.bytes_max} may"


def _bytes_of(streams: Streams, user: str | None = None) -> int:
    return sum(stream.queued_bytes for stream in streams.values() if user in (None, stream.user))


def in_order(streams: Streams, drops: Iterable[Dropped]) -> Iterator[Dropped]:
    """Yield the drops of a record; of those for a bound that sessions share, the next is of the longest session then.

    The record has them in the order of its notifications.
    """
    for reason, run in groupby(drops, attrgetter("reason")):
        left = list(run)
        while left:
            is_shared = reason in ("user_queued_bytes_max", "queued_bytes_max")
            found = max(left, key=lambda drop: streams[drop.user, drop.session].queued_bytes) if is_shared else left[0]
            left.remove(found)
            yield found


def check_drop(
    config: BrokerConfig,
    streams: Streams,
    known: Mapping[str, Known],
    record: Dropped,
    dropped: Sequence[StreamEntry],
    *,
    asked_for: Collection[str],
) -> Iterator[str]:
    """Yield the problems with a drop of these entries, before it is done; reasons ``asked_for`` were requested."""
    stream = streams[record.user, record.session]
    if record.reason == f"policy.{LATEST}":
        for identity in record.subscriptions:
            if known[identity].subscription.queue.policy != LATEST:
                yield f"{identity} has no policy, and yet {record}"
            for entry in dropped:
                yield from check_superseded(stream.waiting_for(identity), entry, identity)
        return
    if not record.reason.startswith(_OWN):
        yield from _check_drop(config, streams, record, dropped, config.queue, list(stream.queue()), asked_for)
    for identity in record.subscriptions if record.reason.startswith(_OWN) else ():
        own, waiting = known[identity].subscription.queue, stream.waiting_for(identity)
        of_own = [entry for entry in dropped if identity in entry.waiting]
        yield from _check_drop(config, streams, record, of_own, own, waiting, asked_for)


def _check_drop(
    config: BrokerConfig,
    streams: Streams,
    record: Dropped,
    dropped: Sequence[StreamEntry],
    policy: QueuePolicy,
    waiting: Sequence[StreamEntry],
    asked_for: Collection[str],
) -> Iterator[str]:
    """Yield the problems with it by one ``policy``, the system's or a subscription's, for ``waiting`` entries."""
    stream = streams[record.user, record.session]
    if not dropped:
        yield f"nothing was dropped by {record}"
        return
    reason = record.reason.removeprefix(_OWN)
    if reason in ("discarded", "purged", "hook", "unsubscribed"):
        if reason not in asked_for:
            yield f"what waited was {reason} without anybody having asked for it"
    elif reason == "queue.age_max_s":
        if policy.age_max_s is None or any(record.at_us - e.at_us <= policy.age_max_s * 1e6 for e in dropped):
            yield f"{record.first} to {record.last} are not too old"
    elif not _is_met(reason, config, policy, streams, stream, waiting):
        yield f"{record.first} was dropped because of {record.reason}, which is not met"
    else:
        newest = (policy.when_full or config.queue.when_full) == "drop_newest"
        if record.reason.startswith(_OWN):
            right = {waiting[-1 if newest else 0].number}
        else:
            right = {each[-1 if newest else 0].number for each in _longest(stream, record)}
            yield from _short_ones(stream, record)
        if record.first != record.last or record.first not in right:
            yield f"{record.first} to {record.last} was dropped, it should have been one of {right}"


def _length(waiting: Sequence[StreamEntry], record: Dropped) -> int:
    """Return the length of a queue in the bounded unit."""
    return len(waiting) if record.reason == "queue.notifications_max" else sum(entry.size for entry in waiting)


def _longest(stream: Stream, record: Dropped) -> list[list[StreamEntry]]:
    """Return the longest queues of a session's subscriptions: one of them has to be cut (SPEC G-25)."""
    queues = [stream.waiting_for(each) for each in {s: None for entry in stream.queue() for s in entry.waiting}]
    most = max(_length(queue, record) for queue in queues)
    return [queue for queue in queues if _length(queue, record) == most]


def _short_ones(stream: Stream, record: Dropped) -> Iterator[str]:
    """Yield the subscriptions that lose entries to one whose queue is more than twice as long."""
    most = _length(_longest(stream, record)[0], record)
    for identity in record.subscriptions:
        if 2 * _length(stream.waiting_for(identity), record) < most:
            yield f"{identity} is short and lost {record.first} because of {record.reason}"


def _is_met(
    reason: str,
    config: BrokerConfig,
    policy: QueuePolicy,
    streams: Streams,
    stream: Stream,
    waiting: Sequence[StreamEntry],
) -> bool:
    """Return whether a bound of number or size is exceeded, and this stream is the one to be cut."""
    if reason in ("queue.notifications_max", "queue.bytes_max"):
        return any(True for _ in _over(policy, waiting, ""))
    longest = stream.queued_bytes
    if reason == "user_queued_bytes_max":
        mine = [each for each in streams.values() if each.user == stream.user]
        return _bytes_of(streams, stream.user) > config.user_queued_bytes_max and longest == max(
            each.queued_bytes for each in mine
        )
    return (
        reason == "queued_bytes_max"
        and _bytes_of(streams) > config.queued_bytes_max
        and longest == max(each.queued_bytes for each in streams.values())
    )
