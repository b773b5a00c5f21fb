"""Queue policy of an operator, and checks of its effect (SPEC G-23)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from wanderbus.broker.queues.policy_arguments import Queue
from wanderbus.simulation.weeks.stream import StreamEntry

LATEST: Final = "latest"
"""Name of the policy: the newest quote of each stock waits, older quotes are dropped."""

UNLUCKY: Final = 13
"""A price for which the policy fails; then nothing is dropped."""


def latest(queue: Queue) -> Collection[int]:
    """Decide for the broker."""
    newest = {each.event["Stock"]: each.number for each in queue.newest}
    if queue.newest[-1].event["Price"] == UNLUCKY:
        raise RuntimeError("a fault of the operator's")
    return {each.number for each in queue.newest} - set(newest.values())


def check_stale(waiting: Sequence[StreamEntry], whose: str) -> Iterator[str]:
    """Yield what still waits for a subscription although a newer quote of its stock was just queued."""
    last = waiting[-1] if waiting else None
    if last is not None and last.price != UNLUCKY and any(each.stock == last.stock for each in waiting[:-1]):
        yield f"an older quote of {last.stock} waits for {whose} beside {last.number}"


def check_superseded(waiting: Sequence[StreamEntry], dropped: StreamEntry, whose: str) -> Iterator[str]:
    """Yield the problems with a drop by the policy, before it is done."""
    if not any(each.number > dropped.number and each.stock == dropped.stock for each in waiting):
        yield f"{dropped.number} was dropped for {whose}, it is the latest of {dropped.stock}"
    if waiting[-1].price == UNLUCKY:
        yield f"{dropped.number} was dropped for {whose} by a policy that failed"
