"""Checks of every history: nothing lost, nothing twice, in order, nothing stuck, state equals log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wanderbus import filters, records
from wanderbus.event import Gap, Notification
from wanderbus.simulation.server import SimulatedServer
from wanderbus.simulation.system.traveller import Traveller, is_pattern
from wanderbus.subscription import Since


def check_all(server: SimulatedServer, travellers: Sequence[Traveller]) -> list[str]:
    """Return one line for every broken promise in the finished world."""
    log = server.disk.records()
    problems: list[str] = []
    for traveller in travellers:
        problems += [f"{traveller.name}: {problem}" for problem in traveller.problems]
        problems += [f"{traveller.name}: {problem}" for problem in _check_stuck(traveller)]
        problems += [f"{traveller.name}: {problem}" for problem in _check_publishes(log, traveller)]
        problems += [f"{traveller.name}: {problem}" for problem in _check_stream(log, traveller)]
    return problems + list(_check_state(server)) + list(_check_uids(log))


def _check_stuck(traveller: Traveller) -> Iterator[str]:
    if not traveller.connected:
        yield "is still DISCONNECTED"
    elif not traveller.settled:
        yield "has requests that were never answered"


def _check_publishes(log: Sequence[records.AnyRecord], traveller: Traveller) -> Iterator[str]:
    """Check that acknowledged events are in the log under the acknowledged id, in the order of publishing."""
    for uid, identity in traveller.accepted.items():
        record = log[identity.number] if identity.number < len(log) else None
        if not isinstance(record, records.Published) or record.event["Uid"] != uid:
            yield f"publish {uid} was acknowledged as {identity} but is not there"
    uids = [r.event["Uid"] for r in log if isinstance(r, records.Published) and r.acceptance.user == traveller.uri]
    if uids != sorted(uids):
        yield "its events are in the log out of order"


def _check_uids(log: Sequence[records.AnyRecord]) -> Iterator[str]:
    seen = set()
    for record in log:
        if isinstance(record, records.Published):
            if record.event["Uid"] in seen:
                yield f"event {record.event['Uid']} was published twice"
            seen.add(record.event["Uid"])


def _check_stream(log: Sequence[records.AnyRecord], traveller: Traveller) -> Iterator[str]:
    """Check the application's stream: the matches of each subscription, by the reference evaluator over the log."""
    for place, expression in enumerate(traveller.expressions, 1):
        if is_pattern(expression):
            continue  # its world checks it
        expected = list(_expected(log, traveller, expression))
        for problem in check_items(traveller, traveller.committed.items.get(place, ()), expected):
            yield f"{expression!r}: {problem}"


def check_items(traveller: Traveller, items: Sequence[Notification | Gap], expected: Sequence[object]) -> Iterator[str]:
    """Check the items of one subscription against the expected names of events: once each, in order, or in a gap."""
    seen: list[object] = []
    dropped = 0
    number = 0
    is_live = False
    for item in items:
        if isinstance(item, Gap):
            dropped += max(0, min(item.count, item.position.number - number))
            number = max(number, item.position.number)
        elif item.position.number > number:
            seen.append(item.event.get("Uid", item.event.get("detection")))
            number = item.position.number
            if is_live and item.is_history:
                yield f"number {number} is of the past and came after a new event"
            is_live = not item.is_history
        elif not item.redelivered or traveller.resumes:
            yield f"number {item.position.number} came again"
    if dropped == 0 and seen != expected:
        yield _difference(expected, seen)
    # For an application that does not report commits, a gap also covers committed items that were not acknowledged.
    redelivered = 0 if traveller.resumes else len(seen)
    if dropped and not (0 <= len(seen) + dropped - len(expected) <= redelivered and _in_order(seen, expected)):
        yield f"{len(seen)} seen and {dropped} dropped do not make {len(expected)} in order"


def _expected(log: Sequence[records.AnyRecord], traveller: Traveller, expression: str) -> Iterator[object]:
    made = (
        (offset, record.subscription)
        for offset, record in enumerate(log)
        if isinstance(record, records.Subscribed)
        and (record.subscription.owner, record.subscription.expression) == (traveller.uri, expression)
    )
    if (found := next(made, None)) is None:
        return
    begin, subscription = found
    wanted = filters.parse(subscription.expression, subscription.language)
    for offset, record in enumerate(log):
        if isinstance(record, records.Published):
            since = subscription.since
            is_due = offset > begin if since is None else _is_since(since, offset, record)
            if is_due and wanted.evaluate(record.event) is True:
                yield record.event["Uid"]


def _is_since(since: Since, offset: int, record: records.Published) -> bool:
    if since.at_us is not None:
        return record.at_us >= since.at_us
    return since.event is None or offset > since.event.number


def _in_order(some: Sequence[object], of: Sequence[object]) -> bool:
    rest = iter(of)
    return all(item in rest for item in some)


def _difference(expected: Sequence[object], seen: Sequence[object]) -> str:
    lost = [uid for uid in expected if uid not in set(seen)]
    extra = [uid for uid in seen if uid not in set(expected)]
    if lost or extra:
        return f"lost {lost[:5]} ({len(lost)}), unexpected {extra[:5]} ({len(extra)})"
    return "notifications came out of order"


def _check_state(server: SimulatedServer) -> Iterator[str]:
    """Check that the live state equals that of the log, with the rows of the state file and without (DESIGN 5.1)."""
    yield from server.storage.check_rows(server.state)
    for user in {row.user for row in server.state.devices.values()}:
        rows = [row for row in server.state.devices.values() if row.user == user]
        if any(row.status == "CONNECTED" and row.away_since_us is not None for row in rows):
            yield f"{user} is CONNECTED and away at once"
