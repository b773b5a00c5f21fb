"""The plan of a run: moves, switch-offs and kills, with their targets and times.

Moments are fractions of the events published, so that a plan means the same on a slow machine as on a fast one. The
plan is drawn from a seed:

- every traveller but the control moves twice, once before and once after the server dies;
- one is switched off before the server is killed and comes back after its restart, so that what it missed has to
  outlive the server;
- another is killed with ``kill -9`` and restarted between its two moves;
- the server is killed with ``kill -9`` at about half time and restarted; in a domain two of them, one after the other;
- in a domain, one server drains for a while before that, and one channel group moves after it;
- Spark is killed with ``kill -9`` after that and restarted, if it matches all events.

With several domains nothing is killed: travellers fly, one of them without a network, and one domain is cut off. Where
they land, their sessions move to the domain that serves them there.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from demo.network import SERVER, SPARK
from demo.users import User

FIRST_MOVES = (0.04, 0.34)
DRAIN_AT = 0.24
DRAIN_END_AT = 0.42
SWITCH_OFF_AT = 0.38
SERVER_KILL_AT = 0.46
NEXT_SERVER_KILL_AFTER = 0.08
SPARK_KILL_AT = 0.54
SWITCH_ON_AT = 0.60
SECOND_MOVES = (0.62, 0.92)
GROUP_MOVE_AT = 0.66
AGENT_KILL_AT = 0.72

CUT_AT = 0.30
FLIGHTS = ((0.05, 0.30), (0.38, 0.62), (0.68, 0.93))
"""Spans in which each traveller who moves flies once."""


class Action(Enum):
    """Action on a traveller, on a server, or on Spark."""

    MOVE = "moves"
    SWITCH_OFF = "is switched off"
    SWITCH_ON = "is switched on"
    KILL = "is killed"
    KILL_SERVER = "the server is killed"
    KILL_SPARK = "Spark is killed"
    DRAIN = "drains"
    END_DRAIN = "takes sessions again"
    MOVE_GROUP = "gives a channel group away"
    TAKE_SESSION = "takes the session along"
    CUT = "is cut off"


@dataclass(frozen=True)
class Step:
    """One action once the fraction ``at`` of the events has been published; ``name`` is its target.

    ``to`` is the next leader of a channel group, the next place of a traveller for people, or the domain to which the
    session moves; a traveller who is switched on calls it.
    """

    at: float
    action: Action
    name: str = ""
    to: str = ""


def domain_plan(users: Sequence[User], seed: int, *, access: str, drained: str, leader: str, to: str) -> list[Step]:
    """Return the steps of a run with a domain: the servers ``access`` and ``leader`` are killed, ``drained`` drains,
    and a channel group moves from ``leader`` to another server.
    """
    own = [
        Step(DRAIN_AT, Action.DRAIN, drained),
        Step(DRAIN_END_AT, Action.END_DRAIN, drained),
        Step(GROUP_MOVE_AT, Action.MOVE_GROUP, leader, to),
    ]
    return sorted([*plan(users, seed, killed_servers=(access, leader)), *own], key=lambda step: step.at)


def domains_plan(
    users: Sequence[User], places: Sequence[str], services: Mapping[tuple[str, str], str], cut_off: str, seed: int
) -> list[Step]:
    """Return the steps of a run with several domains: the domain ``cut_off`` is cut off once, and travellers fly.

    A flight is two moves, each to the next of the ``places``. ``services`` has the domain that serves a traveller at a
    place, to which the session moves. On its first flight one traveller has no network, and then calls that domain; it
    is none that the cut is about, which could not ask for the session.
    """
    chance = random.Random(seed)
    movers = [user.name for user in users if user.moves]
    touched = {name for (name, _), domain in services.items() if domain == cut_off}
    sleeper = chance.choice([name for name in movers if (name, places[2]) in services and name not in touched])
    places_left = dict.fromkeys(movers, 1)
    steps = [Step(CUT_AT, Action.CUT, cut_off)]
    for number, (start, end) in enumerate(FLIGHTS):
        order = chance.sample(movers, len(movers))
        slot = (end - start) / (len(order) + 1)
        for turn, name in enumerate(order):
            takes_off = start + slot * (turn + chance.uniform(0.0, 0.3))
            lands = takes_off + slot * chance.uniform(0.8, 1.3)
            aboard, there = (places[(places_left[name] + each) % len(places)] for each in (0, 1))
            places_left[name] += 2
            service = services.get((name, there), "")
            if number == 0 and name == sleeper:
                steps += [
                    Step(takes_off, Action.SWITCH_OFF, name),
                    Step(lands, Action.MOVE, name, aboard),
                    Step(lands, Action.MOVE, name, there),
                    Step(lands, Action.SWITCH_ON, name, service),
                ]
            else:
                steps += [Step(takes_off, Action.MOVE, name, aboard), Step(lands, Action.MOVE, name, there)]
                steps += [Step(lands, Action.TAKE_SESSION, name, service)] if service else []
    return sorted(steps, key=lambda step: step.at)


def plan(
    users: Sequence[User], seed: int, *, kills_spark: bool = False, killed_servers: Sequence[str] = (SERVER,)
) -> list[Step]:
    """Return the steps of a run in the order they are due; at least three users must move."""
    chance = random.Random(seed)
    movers = [user.name for user in users if user.moves]
    sleeper, victim, *others = chance.sample(movers, len(movers))
    steps = [
        Step(SWITCH_OFF_AT, Action.SWITCH_OFF, sleeper),
        *(
            Step(SERVER_KILL_AT + place * NEXT_SERVER_KILL_AFTER, Action.KILL_SERVER, name)
            for place, name in enumerate(killed_servers)
        ),
        Step(SWITCH_ON_AT, Action.SWITCH_ON, sleeper),
        Step(AGENT_KILL_AT, Action.KILL, victim),
    ]
    steps += [Step(SPARK_KILL_AT, Action.KILL_SPARK, SPARK)] if kills_spark else []
    early, late = [*others, victim], [*others, sleeper]
    chance.shuffle(early)
    chance.shuffle(late)
    steps += _moves([sleeper, *early], FIRST_MOVES, chance)
    steps += _moves([*late, victim], SECOND_MOVES, chance)
    return sorted(steps, key=lambda step: step.at)


def _moves(names: Sequence[str], span: tuple[float, float], chance: random.Random) -> list[Step]:
    """Spread one move of each of ``names``, in that order, over ``span`` with some irregularity."""
    start, end = span
    slot = (end - start) / len(names)
    return [Step(start + slot * (n + chance.uniform(0.0, 0.6)), Action.MOVE, name) for n, name in enumerate(names)]
