"""Checks of sessions that move, by what devices have received and where the sessions are in the end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from wanderbus.simulation.domains.domain_device import DomainDevice, Item
from wanderbus.simulation.domains.domain_node import DomainNode
from wanderbus.subscription import Subscription


def check_received(
    devices: Iterable[DomainDevice],
    subscription: Subscription,
    recorded: Mapping[int, object],
    name_of: Callable[[Item], object],
) -> Iterator[str]:
    """Check that devices have received what was recorded for a subscription, in order.

    :param recorded: names of events by number
    :param name_of: returns the name of the event that was received
    """
    identity, received = subscription.id, set[int]()
    for device in devices:
        if device.user != subscription.owner:
            continue
        items = device.received(identity)
        if list(items) != sorted(items):
            yield f"{device.name} has received {identity} out of order"
        for number, item in items.items():
            if item.id is None:
                yield f"{device.name} has a gap at {number} of {identity}: {item.text}"
            elif recorded.get(number) != (name := name_of(item)):
                yield f"{device.name} has received {name} for {identity}, which is not recorded"
            else:
                received.add(number)
    if missing := sorted(recorded.keys() - received):
        yield f"{identity} of {subscription.owner} never received {missing}"


def check_one_owner(nodes: Collection[DomainNode], is_user: Callable[[DomainNode, str], bool]) -> Iterator[str]:
    """Check that each session of a user is at one server."""
    owners: dict[str, list[str]] = {}
    for node in nodes:
        for session in node.broker.state.sessions.values():
            if not session.is_fenced and session.subscriptions and is_user(node, session.user):
                owners.setdefault(session.key, []).append(node.name)
    for key, several in owners.items():
        if len(several) > 1:
            yield f"{key} is at {' and '.join(several)}"
