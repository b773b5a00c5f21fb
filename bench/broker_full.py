"""Cost of an event for users who are away and whose queues are full, over that with room, for each kind of bound.

What the event displaces follows from the bound. Costs are processor time of the server; two servers take turns.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.broker_growth import Case, publish_on_request
from bench.broker_ours import SUBJECT, running
from bench.broker_peer import EVENT_BYTES, Place
from bench.broker_scale import directory_for_bench, publish_with_progress, subscribe_and_leave
from bench.process_times import threads_s
from harness.reporting import median, progress
from harness.workers import Worker

USERS: Final = (10, 100)
SETTLE_S: Final = 1.5
"""The state file follows the log within a second."""
WARMING: Final = 300
DEPTH: Final = 500
"""Notifications that a full queue has."""
ROOM: Final = 2_000
"""Depths for which a queue has room that must not become full while it is measured."""


class Kind(NamedTuple):
    """A bound that is reached, and the sessions of each user and their subscriptions, which all get every event."""

    bound: str = "[broker.queue]\nnotifications_max = {depth}\n"
    """Settings for so many notifications of each session, ``users`` and ``bytes`` of the notifications."""
    sessions: int = 1
    subscriptions: int = 1


KINDS: Final[Mapping[str, Kind]] = {
    "one": Kind(),
    "subscriptions": Kind(subscriptions=2),
    "sessions": Kind("[broker]\nuser_queued_bytes_max = {user_bytes}\n", sessions=2),
    "broker": Kind("[broker]\nqueued_bytes_max = {bytes}\n"),
    "policy": Kind(
        "[broker.queue]\nnotifications_max = {depth}\npolicy = 'oldest'\n"
        "[extensions.queue_policies]\noldest = 'bench.broker_full:oldest'\n"
    ),
}


def oldest(queue: Any) -> Collection[int]:
    """Drop what the broker would drop too: the policy of an operator."""
    return [queue.oldest[0].number] if queue.over else []


def full(events: int, batches: int, user_counts: Sequence[int]) -> dict[str, Any]:
    """Return the ratio of each kind and number of users, and the most of the usual kind and of the others."""
    ratios = {name: {users: _full_over_room(name, users, events, batches) for users in user_counts} for name in KINDS}
    worst = {name: max(of_users.values()) for name, of_users in ratios.items()}
    return {
        "ratios": ratios,
        "full_queues_vs_room": worst.pop("one"),
        "full_queues_of_other_kinds_vs_room": max(worst.values()),
    }


def _full_over_room(name: str, users: int, events: int, batches: int) -> float:
    """Return the median ratio over twice the batches; the queues of both servers began with the same depth."""
    kind, names = KINDS[name], [f"away{number}" for number in range(users)]
    with contextlib.ExitStack() as stack:
        places, publishers = [], []
        for depths in (ROOM, 1):
            place = _filled(stack, kind, names, depths * DEPTH)
            publisher = stack.enter_context(Worker())
            publisher.start(publish_on_request, place, Case()).receive()
            places.append(place)
            publishers.append(publisher)
        ratios = []
        for turn in range(2 * batches):
            costs_us = [0.0, 0.0]
            for which in (0, 1) if turn % 2 else (1, 0):
                time.sleep(SETTLE_S)
                began_s = threads_s(places[which]["pid"])
                publishers[which].send(events)
                publishers[which].receive()
                costs_us[which] = 1e6 * (threads_s(places[which]["pid"]) - began_s) / events
            ratios.append(costs_us[1] / costs_us[0])
            progress(
                f"full: {name}, {users} users: {costs_us[1]:.0f} us, with room {costs_us[0]:.0f} us, {ratios[-1]:.2f}"
            )
        return median(ratios)


def _filled(stack: contextlib.ExitStack, kind: Kind, names: Sequence[str], depth: int) -> Place:
    """Return a server with queues of more than :data:`DEPTH` notifications, of which ``depth`` may wait."""
    directory = Path(stack.enter_context(directory_for_bench()))
    settings, of_session = directory / "settings.toml", depth * EVENT_BYTES
    sizes = {"user_bytes": of_session * kind.sessions, "bytes": of_session * kind.sessions * len(names)}
    settings.write_text(kind.bound.format(depth=depth, **sizes), encoding="utf-8")
    place = stack.enter_context(running(directory, ["publisher", *names], "--config", str(settings)))
    with Worker() as worker:
        expressions = [f"Nth > {-number - 1}" for number in range(kind.subscriptions)]
        for number in range(kind.sessions):
            worker.start(subscribe_and_leave, place, names, SUBJECT, expressions, f"session{number}").receive()
        publish_with_progress("full", worker, place, DEPTH + WARMING)
    return place
