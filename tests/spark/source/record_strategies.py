"""Records of every kind, made by Hypothesis."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.published import published as published_record
from wanderbus.broker.state.decentralised_state import encode_change
from wanderbus.channels.causal import interface as causal
from wanderbus.event import TYPE_NAMES, DeclaredAttribute, Event, EventId
from wanderbus.protocol import encode_event
from wanderbus.records import (
    Acknowledged,
    Advertised,
    AdvertisementsCounted,
    AdvertisementsWithdrawn,
    Arrival,
    ArrivalsLost,
    Arrived,
    Attached,
    CausalChanged,
    Changed,
    Delivery,
    Detected,
    DeviceCame,
    DeviceGone,
    DialogStored,
    DrainingChanged,
    Drop,
    Dropped,
    EventsLost,
    ExportDropped,
    ExportTaken,
    Forgotten,
    GroupMoved,
    GroupPrepared,
    GroupPublishersTaken,
    GroupStays,
    InterestSettled,
    Left,
    Matched,
    MatchedEvent,
    Notified,
    QueueContinued,
    Record,
    Replayed,
    ReplayedEvent,
    RolledBack,
    RoutesChanged,
    SchemaDeclared,
    ServerMet,
    SessionAwaited,
    SessionFenced,
    SessionImported,
    SessionNotAwaited,
    Started,
    StatusChanged,
    Subscribed,
    Unsubscribed,
)
from wanderbus.subscription import Subscription

texts = st.text(max_size=12)
times = st.integers(-(2**62), 2**62)
numbers = st.integers(0, 2**53)
dates = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
scalars: st.SearchStrategy[Any] = st.one_of(
    st.text(max_size=80),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    dates,
)
attributes = st.dictionaries(st.text(min_size=1, max_size=8), scalars | st.lists(scalars, max_size=4), max_size=6)
subscriptions = st.builds(
    Subscription, id=texts, owner=texts, session=texts, subject=texts, expression=texts, device=texts | st.none()
)
notified = st.builds(
    Notified, user=texts, session=texts, number=numbers, subscriptions=st.lists(texts, max_size=2).map(tuple)
)
published = st.builds(
    published_record,
    st.builds(Event, subject=texts, attributes=attributes, published_us=times | st.none()),
    at_us=times,
    user=texts,
    device=texts,
    epoch=numbers,
    number=numbers,
    notified=st.lists(notified, max_size=2).map(tuple),
)
declared = st.lists(st.builds(DeclaredAttribute, texts, st.sampled_from(TYPE_NAMES), texts), max_size=2).map(tuple)
replayed_events = st.builds(
    ReplayedEvent,
    id=st.builds(EventId, texts, numbers, numbers),
    at_us=times,
    event=st.builds(Event, subject=texts, attributes=attributes).map(encode_event).map(msgspec.Raw),
    is_history=st.booleans(),
)
matched_events = st.builds(
    MatchedEvent,
    id=st.builds(EventId, texts, numbers, numbers),
    at_us=times,
    event=st.builds(Event, subject=texts, attributes=attributes).map(encode_event).map(msgspec.Raw),
    notified=st.lists(notified, max_size=2).map(tuple),
)
dropped = st.builds(Drop, texts, texts, numbers, numbers, texts, st.lists(texts, max_size=2).map(tuple))
arrived = st.builds(
    Arrived,
    at_us=times,
    arrival=st.builds(
        Arrival,
        leader=texts,
        epoch=numbers,
        number=numbers,
        before=numbers,
        id=st.builds(EventId, texts, numbers, numbers),
        accepted_us=times,
        event=st.builds(Event, subject=texts, attributes=attributes).map(encode_event).map(msgspec.Raw),
    ),
    delivery=st.builds(
        Delivery,
        st.lists(notified, max_size=2).map(tuple),
        displaced=st.dictionaries(texts, st.lists(numbers, max_size=2).map(tuple), max_size=2),
        dropped=st.lists(dropped, max_size=2).map(tuple),
    ),
)
causal_changes = st.builds(causal.CausalAcknowledged, numbers, numbers).map(encode_change)
_member = {"at_us": times, "user": texts, "session": texts}

records: st.SearchStrategy[Record] = st.one_of(
    st.builds(Started, at_us=times, server=texts, incarnation=numbers),
    published,
    arrived,
    st.builds(
        ArrivalsLost,
        at_us=times,
        leader=texts,
        epoch=numbers,
        number=numbers,
        count=numbers,
        reason=texts,
        notified=st.lists(notified, max_size=2).map(tuple),
        causal=st.lists(causal_changes, max_size=2).map(tuple),
    ),
    st.builds(CausalChanged, at_us=times, changes=st.lists(causal_changes, max_size=2).map(tuple)),
    st.builds(RoutesChanged, at_us=times, leader=texts, message=st.binary(max_size=20)),
    st.builds(Advertised, **_member, device=texts, advertisement=texts, subject=texts, expression=texts),
    st.builds(AdvertisementsCounted, at_us=times, advertisements=st.lists(texts, max_size=2).map(tuple)),
    st.builds(AdvertisementsWithdrawn, at_us=times, advertisements=st.lists(texts, max_size=2).map(tuple)),
    st.builds(Dropped, **_member, first=numbers, last=numbers, reason=texts),
    st.builds(Acknowledged, **_member, device=texts, number=numbers),
    st.builds(Subscribed, at_us=times, subscription=subscriptions, number=numbers),
    st.builds(Changed, at_us=times, subscription=subscriptions),
    st.builds(
        Replayed,
        **_member,
        subscription=texts,
        first=numbers,
        events=st.lists(replayed_events, max_size=2).map(tuple),
        next=numbers | st.none(),
    ),
    st.builds(
        Detected,
        at_us=times,
        subscription=texts,
        watermark_us=times,
        events=st.lists(matched_events, max_size=2).map(tuple),
    ),
    st.builds(Matched, at_us=times, next=numbers, events=st.lists(matched_events, max_size=2).map(tuple)),
    st.builds(Unsubscribed, at_us=times, user=texts, subscription=texts, reason=texts),
    st.builds(Forgotten, at_us=times, subscriptions=st.lists(texts, max_size=2).map(tuple)),
    st.builds(Attached, **_member, device=texts, epoch=numbers),
    st.builds(DialogStored, at_us=times, user=texts, device=texts, address=texts, binding=st.binary(max_size=20)),
    st.builds(StatusChanged, at_us=times, user=texts, device=texts, status=texts, reason=texts),
    st.builds(Left, **_member, device=texts, reason=texts),
    st.builds(SessionFenced, **_member, owner_epoch=numbers),
    st.builds(ExportDropped, **_member),
    st.builds(DrainingChanged, at_us=times, is_draining=st.booleans()),
    st.builds(
        SessionAwaited,
        **_member,
        owner_epoch=numbers,
        source=texts,
        subscriptions=st.lists(subscriptions, max_size=2).map(tuple),
    ),
    st.builds(SessionNotAwaited, **_member),
    st.builds(DeviceCame, at_us=times, user=texts, device=texts, publishers=st.binary(max_size=20)),
    st.builds(DeviceGone, at_us=times, user=texts, device=texts, server=texts),
    st.builds(SessionImported, **_member, owner_epoch=numbers, export=st.binary(max_size=20)),
    st.builds(ExportTaken, **_member, through=numbers),
    st.builds(QueueContinued, **_member, owner_epoch=numbers, export=st.binary(max_size=20)),
    st.builds(GroupPrepared, at_us=times, group=numbers, target=texts, epoch=numbers),
    st.builds(GroupStays, at_us=times, group=numbers, is_reset=st.booleans()),
    st.builds(
        GroupPublishersTaken, at_us=times, group=numbers, publishers=st.binary(max_size=20), is_first=st.booleans()
    ),
    st.builds(
        GroupMoved,
        at_us=times,
        group=numbers,
        server=texts,
        epoch=numbers,
        former=texts,
        servers=st.lists(texts, max_size=2).map(tuple),
    ),
    st.builds(SchemaDeclared, at_us=times, subject=texts, version=numbers, attributes=declared, by=texts),
    st.builds(
        RolledBack, at_us=times, epoch=numbers, reason=texts, stale_routes=st.lists(texts, max_size=2).map(tuple)
    ),
    st.builds(
        EventsLost,
        at_us=times,
        reason=texts,
        notified=st.lists(notified, max_size=2).map(tuple),
        rolled_back=numbers,
    ),
    st.builds(ServerMet, at_us=times, server=texts),
    st.builds(InterestSettled, at_us=times, server=texts),
)
