"""Plans of a reliable UDP world: the schedule of its events, drawn from the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wanderbus.simulation.rudp.party import Channel, End, RudpParty

if TYPE_CHECKING:
    from wanderbus.simulation.rudp.scenario import RudpScenario

SIZES: Final = (0, 1, 40, 200, 1_100, 1_139, 1_140, 1_141, 1_143, 1_144, 1_145, 1_156, 2_300, 5_000, 65_536)
"""Sizes of messages in bytes: about what fits one datagram, plain and sealed, and what needs many."""

LARGE: Final = (120_000, 300_000, 600_000)

CALM_PAUSE_S: Final = 8.0
"""Seconds between two changes of address in worlds where nothing may fail."""


def plan(scenario: RudpScenario, active_s: float) -> None:
    """Draw the traffic, the moves and the accidents of a world."""
    draw = scenario.world.random
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        scenario.world.at(draw.uniform(0, 3), scenario.open_channel)
    if scenario.calm:
        _plan_calm_moves(scenario, active_s)
    else:
        _plan_accidents(scenario, active_s)


def plan_traffic(scenario: RudpScenario, channel: Channel, until: float) -> None:
    """Draw the messages of a channel's two applications: many at once, a few sometimes, or none."""
    draw = scenario.world.random
    for end in channel.ends:
        kind = draw.choices(["bulk", "many", "sparse", "none"], [25, 15, 50, 10])[0]
        if kind == "bulk":
            sizes = [draw.choice(LARGE)] if draw.random() < 0.5 else [draw.choice(SIZES) for _ in range(40)]
            _plan_sending(scenario, end, sizes, until)
        elif kind == "many":
            _plan_sending(scenario, end, [draw.randint(0, 60)] * draw.choice([300, 1_500, 2_600]), until)
        elif kind == "sparse":
            for _ in range(draw.randint(1, 30)):
                sizes = [draw.choice(SIZES[:-1]) for _ in range(draw.choice([1, 1, 1, 5]))]
                _plan_sending(scenario, end, sizes, until)


def _plan_sending(scenario: RudpScenario, end: End, sizes: list[int], until: float) -> None:
    world = scenario.world
    world.at(world.random.uniform(world.now, until), lambda: scenario.send(end, sizes))


def _plan_calm_moves(scenario: RudpScenario, active_s: float) -> None:
    """Plan one change of address at a time, with time to heal before the next."""
    draw = scenario.world.random
    when = draw.uniform(3, 8)
    while when < active_s and draw.random() < 0.8:
        party = draw.choice(scenario.parties)
        _plan_change(scenario, party, when)
        when += CALM_PAUSE_S


def _plan_change(scenario: RudpScenario, party: RudpParty, when: float) -> None:
    """Announce the move, or not if keepalives suffice."""
    unannounced = party.config.keepalive_s is not None and scenario.world.random.random() < 0.5
    change = scenario.rebind_nat if unannounced else scenario.move
    scenario.world.at(when, lambda: change(party))


def _plan_accidents(scenario: RudpScenario, active_s: float) -> None:
    """Plan all kinds of failures, some of them simultaneous."""
    world, draw = scenario.world, scenario.world.random
    for party in scenario.parties:
        for _ in range(draw.choice([0, 0, 1, 2, 4])):
            when = draw.uniform(1, active_s)
            _plan_change(scenario, party, when)
            if draw.random() < 0.3:
                _plan_change(scenario, draw.choice(scenario.parties), when + draw.uniform(0, 0.3))
        if draw.random() < 0.15:
            world.at(draw.uniform(2, active_s), lambda party=party: scenario.restart(party))  # type: ignore[misc]
    for _ in range(draw.choice([0, 0, 1, 2])):
        seconds = draw.choice([draw.uniform(0.2, 4), draw.uniform(4, 12), draw.uniform(18, active_s)])
        start = draw.uniform(1, max(1.0, active_s - seconds))
        world.at(start, lambda seconds=seconds: scenario.kill_network(seconds))  # type: ignore[misc]
