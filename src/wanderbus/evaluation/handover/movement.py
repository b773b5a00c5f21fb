"""Walks of users over the plane, as changes of the nearest server (SPEC S-07)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import count
from random import Random
from typing import Final, NamedTuple

from wanderbus.evaluation.handover.experiment import PLANE_M, HandoverJob, Movement

STEP_S: Final = 1.0
"""Time between two looks at where a user is."""

WALK_S_MAX: Final = 20_000.0
"""Time after which walks end, also if there were fewer moves."""

SPEED_M_S: Final = 5.0, 20.0
"""Least and greatest speed of a random waypoint."""

PAUSE_S_MAX: Final = 60.0
"""Longest pause at a random waypoint."""

MEMORY: Final = 0.75
"""Share of the former speed and direction in the next one (Gauss-Markov)."""

MEAN_SPEED_M_S: Final = 12.0
SPEED_DEVIATION_M_S: Final = 4.0
DIRECTION_DEVIATION: Final = 0.5
"""Standard deviation of the direction in radians."""

Place = tuple[float, float]


class Walk(NamedTuple):
    """A user comes to the cell of another server, whose number this is."""

    at_s: float
    user: int
    server: int


def server_places(servers: int, random: Random) -> list[Place]:
    """Return random places of servers."""
    return [(random.uniform(0, PLANE_M), random.uniform(0, PLANE_M)) for _ in range(servers)]


def nearest(place: Place, servers: Sequence[Place]) -> int:
    """Return the number of the server in whose cell a place is."""
    return min(range(len(servers)), key=lambda number: math.dist(place, servers[number]))


def walks(job: HandoverJob, servers: Sequence[Place], random: Random) -> tuple[list[int], list[Walk]]:
    """Return the first server of each user, and the moves in their order."""
    if job.movement is Movement.ONCE:
        return _once(job, random)
    if job.movement is Movement.TRACE:
        steps = _traced(job)
    else:
        walk = _waypoints if job.movement is Movement.WAYPOINT else _gauss_markov
        users = [walk(random) for _ in range(job.users)]
        steps = ((turn * STEP_S, user, next(users[user])) for turn in count() for user in range(job.users))
    return _crossings(job, servers, steps)


def _once(job: HandoverJob, random: Random) -> tuple[list[int], list[Walk]]:
    sources, targets = range(0, job.servers, 2), range(1, job.servers, 2)
    first = [random.choice(sources) for _ in range(job.users)]
    moves = [Walk(2.0 * user, user, random.choice(targets)) for user in range(job.users if targets else 0)]
    return first, moves


def _traced(job: HandoverJob) -> Iterator[tuple[float, int, Place]]:
    for each in sorted(job.trace, key=lambda point: point.at_s):
        yield each.at_s, each.user, (each.x_m, each.y_m)


def _crossings(
    job: HandoverJob, servers: Sequence[Place], steps: Iterator[tuple[float, int, Place]]
) -> tuple[list[int], list[Walk]]:
    cells: dict[int, int] = {}
    first: dict[int, int] = {}
    moves: list[Walk] = []
    for at_s, user, place in steps:
        if at_s > WALK_S_MAX or len(moves) == job.moves or (len(servers) == 1 and len(first) == job.users):
            break
        cell = nearest(place, servers)
        first.setdefault(user, cell)
        if cells.setdefault(user, cell) != cell:
            cells[user] = cell
            moves.append(Walk(at_s, user, cell))
    return [first.get(user, 0) for user in range(job.users)], moves


def _waypoints(random: Random) -> Iterator[Place]:
    x, y = _anywhere(random)
    while True:
        to_x, to_y = _anywhere(random)
        steps = max(1, math.ceil(math.dist((x, y), (to_x, to_y)) / (random.uniform(*SPEED_M_S) * STEP_S)))
        for step in range(1, steps + 1):
            yield x + (to_x - x) * step / steps, y + (to_y - y) * step / steps
        x, y = to_x, to_y
        for _ in range(int(random.uniform(0, PAUSE_S_MAX) / STEP_S)):
            yield x, y


def _gauss_markov(random: Random) -> Iterator[Place]:
    """Yield places; a user who comes to an edge turns to the middle."""
    x, y = _anywhere(random)
    speed, direction = MEAN_SPEED_M_S, random.uniform(-math.pi, math.pi)
    mean_direction, rest = direction, math.sqrt(1 - MEMORY**2)
    while True:
        yield x, y
        x = min(max(x + speed * math.cos(direction) * STEP_S, 0.0), PLANE_M)
        y = min(max(y + speed * math.sin(direction) * STEP_S, 0.0), PLANE_M)
        if x in (0.0, PLANE_M) or y in (0.0, PLANE_M):
            direction = mean_direction = math.atan2(PLANE_M / 2 - y, PLANE_M / 2 - x)
        noise = random.gauss(0, SPEED_DEVIATION_M_S), random.gauss(0, DIRECTION_DEVIATION)
        speed = max(0.0, MEMORY * speed + (1 - MEMORY) * MEAN_SPEED_M_S + rest * noise[0])
        direction = MEMORY * direction + (1 - MEMORY) * mean_direction + rest * noise[1]


def _anywhere(random: Random) -> Place:
    return random.uniform(0, PLANE_M), random.uniform(0, PLANE_M)
