"""Checks of the interest of servers in ordered channels: what each wants, and what the leaders have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from wanderbus import filters
from wanderbus.broker.servers.server_users import server_user
from wanderbus.broker.state.rows import session_key
from wanderbus.event import Event
from wanderbus.filters import Filter
from wanderbus.peers.leader_interest import LeaderInterest
from wanderbus.simulation.domains.domain_node import DOMAIN, DomainNode
from wanderbus.simulation.domains.server_truth import is_server
from wanderbus.subscription import EVERY_SUBJECT


def check_tables(nodes: Mapping[str, DomainNode], events: Sequence[Event], *, is_empty: bool) -> Iterator[str]:
    """Yield the differences between what each server wants and what the leaders have, when all is quiet."""
    for name, node in nodes.items():
        for leader, interest in node.sessions.diagnostics().items():
            broker = nodes[leader].broker
            row = broker.state.sessions.get(session_key(server_user(name, DOMAIN), "default"))
            there = [broker.state.subscriptions[each].subscription for each in row.subscriptions] if row else []
            has = sorted((each.subject, each.expression) for each in there)
            wanted = sorted(interest.wanted())
            if has != wanted:
                yield f"{leader} has {has} of {name}, which wants {wanted}"
            yield from _not_minimal(f"{name} at {leader}", wanted, node)
            yield from _leaks(f"{name} at {leader}", interest, is_empty=is_empty)
            yield from _uncovered(f"{name} at {leader}", wanted, node, leader, events)


def _not_minimal(what: str, wanted: Sequence[tuple[str, str]], node: DomainNode) -> Iterator[str]:
    parsed = [(subject, filters.parse(text)) for subject, text in wanted]
    merging = node.channels.merging_of
    for subject, one in parsed:
        for covered, other in parsed:
            is_same = merging(subject) == merging(covered) and subject in (covered, EVERY_SUBJECT)
            if is_same and one is not other and filters.covers(one, other):
                yield f"{what}: {covered} {other.text} is covered by {subject} {one.text}"


def _leaks(what: str, interest: LeaderInterest, *, is_empty: bool) -> Iterator[str]:
    stands_for_filters = () if is_empty else ("local", "keys", "wanted", "present")
    if left := {name: kept for name, kept in interest.diagnostics().items() if kept and name not in stands_for_filters}:
        yield f"{what} keeps {left}"
    if not interest.is_settled:
        yield f"{what} is not settled"


def _uncovered(
    what: str, wanted: Sequence[tuple[str, str]], node: DomainNode, leader: str, events: Sequence[Event]
) -> Iterator[str]:
    """Yield events that a subscription here matches and that the leader would not send."""
    local: list[tuple[str, Filter]] = [
        (row.subscription.subject, filters.parse(row.subscription.expression))
        for _, row in node.broker.state.subscriptions.items()
        if not is_server(row.subscription.owner)
    ]
    sent = [(subject, filters.parse(text)) for subject, text in wanted]
    for event in events:
        if node.channels.leader(event.subject) == leader:
            lineage = (*node.channels.lineage(event.subject), EVERY_SUBJECT)
            if _matches(local, lineage, event) and not _matches(sent, lineage, event):
                yield f"{what}: {event} is wanted and not asked for"


def _matches(interests: Sequence[tuple[str, Filter]], lineage: Sequence[str], event: Event) -> bool:
    return any(subject in lineage and each.matches(event) for subject, each in interests)
