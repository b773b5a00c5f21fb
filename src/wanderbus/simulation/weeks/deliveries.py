"""Check of the deliveries in a record: which sessions are notified of an event, for which subscriptions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from wanderbus import filters
from wanderbus.event import Event
from wanderbus.records import Notified
from wanderbus.simulation.weeks.account import Account
from wanderbus.simulation.weeks.stream import NotifiedEvent
from wanderbus.simulation.weeks.windows import forbidding
from wanderbus.subscription import PATTERN, Restriction

Decisions = tuple[dict[tuple[str, str], list[str]], dict[str, int]]
"""Subscriptions that must be notified, by session, and the place of the restriction that forbids each other match."""


def matching(account: Account, event: Event, at_us: int) -> Iterator[str]:
    """Yield the live subscriptions whose subject and filter an event matches at ``at_us`` of the broker's clock."""
    for identity, known in account.known.items():
        wanted = known.subscription
        if not known.live or wanted.subject != event.subject or wanted.language == PATTERN:
            continue
        if wanted.expires_us is not None and wanted.expires_us <= at_us:
            continue
        if filters.parse(wanted.expression, wanted.language).evaluate(event) is True:
            yield identity


def decisions(
    account: Account,
    matched: Iterable[str],
    event: Event,
    *,
    at_us: int,
    wall_us: int,
    held: Mapping[str, tuple[Restriction, ...]] = MappingProxyType({}),
) -> Decisions:
    """Return what the restrictions of these subscriptions decide about an event of these times.

    Those in ``held`` had these restrictions, the others their present ones.
    """
    allowed: dict[tuple[str, str], list[str]] = {}
    forbidden: dict[str, int] = {}
    for identity in matched:
        known = account.known[identity]
        wanted, away = known.subscription, account.is_away(known.subscription.owner)
        restrictions = held.get(identity, wanted.restrictions)
        place = forbidding(restrictions, event, at_us=at_us, wall_us=wall_us, last_us=known.last_us, away=away)
        if place is None:
            allowed.setdefault((wanted.owner, wanted.session), []).append(identity)
        else:
            forbidden[identity] = place
    return allowed, forbidden


def deliver(
    account: Account,
    source: NotifiedEvent,
    notified: Collection[Notified],
    restricted: Collection[tuple[str, int]],
    expected: Decisions,
) -> None:
    """Check the recorded delivery of an event, and add its notifications to their streams."""
    allowed, forbidden = expected
    offset, name = source.recorded, source.name
    if dict(restricted) != forbidden:
        account.wrong(offset, f"restrictions forbade {name} for {dict(restricted)}, they should {forbidden}")
    notifications = {(each.user, each.session): each for each in notified}
    for key in allowed.keys() | notifications.keys():
        given = notifications[key].subscriptions if key in notifications else ()
        if sorted(given) != sorted(allowed.get(key, ())):
            account.wrong(offset, f"event {name} notified {key} of {given}, it should of {allowed.get(key)}")
    for identity in forbidden:
        owner = account.known[identity].subscription
        account.stream(owner.owner, owner.session).restricted += 1
    for each in notified:
        _notify(account, source, each)


def _notify(account: Account, source: NotifiedEvent, notified: Notified) -> None:
    stream = account.stream(notified.user, notified.session)
    if notified.number != stream.next:
        account.wrong(source.recorded, f"number {notified.number} follows {stream.next - 1}")
    bound = {s: device for s in notified.subscriptions if (device := account.known[s].subscription.device)}
    if dict(notified.bound) != bound:
        account.wrong(source.recorded, f"bound are {notified.bound}, it should be {bound}")
    stream.add(source, notified)
    for identity in stream.entries[notified.number].waiting:
        for member in stream.members:
            if bound.get(identity) in (None, member):
                account.owed.setdefault((notified.user, member), set()).add((identity, notified.number))
    for identity in notified.subscriptions:
        account.known[identity].last_us = max(account.known[identity].last_us or 0, source.at_us)
