"""Latency of others while one user takes a backlog, with or without one who reads nothing, over that alone (SPEC U-03).

One server keeps the backlogs: each turn has a user with one of its own, which has to be longer than what is measured.
Others receive events at an even rate in turns with and without. Both kinds of turns share the server, its queues and
whatever else the machine has to do, and begin when the server is idle.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.broker_ours import CONSUMERS_MAX, SUBJECT, Ours, connected, running
from bench.broker_peer import Place, consume, publish_paced, reading
from bench.broker_scale import directory_for_bench, publish_with_progress, queue_bounds, subscribe_and_leave
from bench.process_times import threads_s
from harness.loads import LoadEndedError, wait_until_idle
from harness.reporting import median, percentile, progress
from harness.workers import Line, Worker
from wanderbus.parameters.broker import BrokerConfig

BACKLOG_SUBJECT: Final = "Past"
OTHERS: Final = 5
OTHERS_PER_S: Final = 200
TURNS: Final = 6
"""Turns of each kind."""

WINDOW: Final = BrokerConfig().unacknowledged_max
"""Notifications that the server has sent and the user has not read: with fewer left, the server may be done."""


class Returned(NamedTuple):
    """Notifications of a backlog that were read, and the seconds of the first, of the last and of the request to stop.

    The first one is counted.
    """

    taken: int
    first_s: float
    last_s: float
    stopped_s: float


def beside_returning(queued: int, turn_s: float, *, stuck: bool) -> dict[str, Any]:
    """Return the latency of others with and without one who returns to ``queued`` notifications, and their ratios.

    With ``stuck``, another user has a full window meanwhile and reads nothing. Ratios are those of the medians over the
    turns, so that one turn with a slow disk counts once, whichever kind it has.
    Raises :class:`LoadEndedError` if a backlog is over before what is measured.
    """
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    per_s, left = [], []
    with _scene(queued) as scene:
        for turn in range(TURNS):
            for is_there in (False, True) if turn % 2 == 0 else (True, False):
                progress(f"others: {'with' if is_there else 'without'} the one who returns, {turn + 1} of {TURNS}")
                wait_until_idle(lambda: threads_s(scene.place["pid"]))
                if not is_there:
                    found[False].append(_figures(scene.latency_s(turn_s)))
                    continue
                with scene.stuck(turn) if stuck else contextlib.nullcontext():
                    latency_s, returned = scene.latency_beside_s(turn_s, turn)
                check_lasted(queued, returned)
                found[True].append(_figures(latency_s))
                per_s.append((returned.taken - 1) / (returned.stopped_s - returned.first_s))
                left.append(queued - returned.taken)
    figures: dict[str, Any] = {"queued": queued, "returning_per_s": median(per_s), "left": min(left)}
    for share in ("p50", "p99"):
        alone_ms, beside_ms = (median(each[share] for each in found[is_there]) for is_there in (False, True))
        figures |= {f"alone_{share}_ms": alone_ms, f"beside_{share}_ms": beside_ms}
        figures[f"{share}_ratio"] = beside_ms / alone_ms
    return figures


def check_lasted(queued: int, returned: Returned) -> None:
    """Raise :class:`LoadEndedError` if the server may have sent all of a backlog before it was measured to the end."""
    if queued - returned.taken < WINDOW:
        early_s = returned.stopped_s - returned.last_s
        raise LoadEndedError(
            f"the backlog of {queued} was over {early_s:.1f} s before the measurement; queue more, or measure less"
        )


class _Scene:
    """A server with backlogs, and the workers of all sides."""

    def __init__(self, place: Place, stack: contextlib.ExitStack) -> None:
        self.place = place
        self._reader, self._publisher, self._returning, self._stuck = (stack.enter_context(Worker()) for _ in range(4))
        self._turns = 0

    def fill(self, queued: int) -> None:
        """Queue a backlog for each user who returns."""
        self._returning.start(subscribe_and_leave, self.place, _names("returning"), BACKLOG_SUBJECT).receive()
        publish_with_progress("others", self._publisher, self.place, queued, BACKLOG_SUBJECT)

    def latency_s(self, seconds: float) -> list[float]:
        """Return the latencies of others."""
        self._prepare(seconds)
        return self._measured()

    def latency_beside_s(self, seconds: float, turn: int) -> tuple[list[float], Returned]:
        """Return the same while the user of a turn returns, and how that went."""
        self._prepare(seconds)
        # It comes when everybody else is ready, so that little of the backlog is taken before.
        self._returning.start(_take, self.place, _names("returning")[turn]).receive()
        latency_s = self._measured()
        self._returning.send()
        return latency_s, self._returning.receive()

    @contextlib.contextmanager
    def stuck(self, turn: int) -> Iterator[None]:
        """Have a user with a full window who reads nothing, for the block."""
        self._stuck.start(_be_stuck, self.place, _names("stuck")[turn]).receive()
        publish_with_progress("others", self._publisher, self.place, 2 * WINDOW)
        yield
        self._stuck.send()
        self._stuck.receive()

    def _prepare(self, seconds: float) -> None:
        # Other users in each turn: events that wait for those of an earlier turn would be delivered first.
        first, events = OTHERS * self._turns, round(OTHERS_PER_S * seconds)
        self._turns += 1
        self._reader.start(consume, Ours(), self.place, first, OTHERS, events).receive()
        self._publisher.start(publish_paced, Ours(), self.place, OTHERS_PER_S, events).receive()

    def _measured(self) -> list[float]:
        self._publisher.send()
        self._publisher.receive()
        latency_s: list[float] = self._reader.receive().latency_s
        return latency_s


@contextlib.contextmanager
def _scene(queued: int) -> Iterator[_Scene]:
    users = ["publisher", *_names("returning"), *_names("stuck")]
    users += [f"consumer{number}" for number in range(CONSUMERS_MAX)]
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(directory_for_bench()))
        bounds = queue_bounds(directory, notifications_max=2 * queued, bytes_max=2**30)
        place = stack.enter_context(running(directory, users, *bounds))
        scene = _Scene(place, stack)
        scene.fill(queued)
        yield scene


def _names(kind: str) -> list[str]:
    return [f"{kind}{turn}" for turn in range(TURNS)]


def _figures(latency_s: list[float]) -> dict[str, float]:
    return {f"p{share}": 1_000 * percentile(latency_s, share / 100) for share in (50, 99)}


async def _take(line: Line, place: Place, name: str) -> Returned:
    """Reconnect, report the first event of the backlog, and consume until stopped."""
    taken = 1
    async with connected(place, name) as agent, agent.subscribe(BACKLOG_SUBJECT, keep=True) as notifications:
        await anext(notifications)
        first_s = last_s = time.monotonic()

        async def take() -> None:
            nonlocal taken, last_s
            async for _ in notifications:
                taken += 1
                last_s = time.monotonic()

        async with reading(take):
            line.send("taking")
            await line.receive()
            return Returned(taken, first_s, last_s, time.monotonic())


async def _be_stuck(line: Line, place: Place, name: str) -> None:
    """Subscribe and consume nothing until stopped."""
    async with connected(place, name) as agent, agent.subscribe(SUBJECT):
        line.send("stuck")
        await line.receive()
