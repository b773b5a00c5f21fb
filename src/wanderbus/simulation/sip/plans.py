"""Plans of a SIP world: the schedule of its events, drawn from the seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wanderbus.simulation.sip.party import SIPParty

if TYPE_CHECKING:
    from wanderbus.simulation.sip.scenario import SIPScenario

CALM_PAUSE_S: Final = 1.5
"""Seconds between two moves in a calm world: longer than a move takes to heal."""

RACE_S: Final = 0.2
"""Distance in seconds between events that should collide: about a round trip."""

Pair = tuple[SIPParty, SIPParty]


def plan_calm(scenario: SIPScenario, active_s: float) -> None:
    """Let everybody call somebody, and then one party move at a time."""
    world = scenario.world
    for caller, callee in _pairs(scenario):
        world.at(world.random.uniform(1, 4), lambda pair=(caller, callee): scenario.call(*pair))  # type: ignore[misc]
    when = 8.0
    while when < active_s - CALM_PAUSE_S:
        mover = world.random.choice(scenario.parties)
        world.at(when, lambda mover=mover: scenario.move(mover))  # type: ignore[misc]
        when += CALM_PAUSE_S


def plan_rough(scenario: SIPScenario, active_s: float) -> None:
    """Plan all kinds of failures."""
    draw = scenario.world.random
    for pair in _pairs(scenario):
        _plan_pair(scenario, pair, active_s)
    for party in scenario.parties:
        _plan_party(scenario, party, active_s)
    if draw.random() < 0.5:
        for _ in range(draw.randint(1, 3)):
            _plan_restart(scenario, draw.uniform(2, active_s - 6))
    if draw.random() < 0.2:
        scenario.world.at(draw.uniform(2, active_s), lambda: scenario.cut_server(draw.uniform(0.2, 12)))


def _pairs(scenario: SIPScenario) -> list[Pair]:
    """Draw the pairs of callers and callees: everybody but perhaps the last calls one or two others."""
    draw = scenario.world.random
    pairs: list[Pair] = []
    for caller in scenario.parties:
        others = [party for party in scenario.parties if party is not caller]
        count = draw.randint(0 if pairs else 1, min(2, len(others)))
        pairs += [(caller, callee) for callee in draw.sample(others, count)]
    return pairs


def _plan_pair(scenario: SIPScenario, pair: Pair, active_s: float) -> None:
    """Plan calls and ends of a pair, and moves of either side or both, also during a request."""
    world, draw = scenario.world, scenario.world.random
    caller, callee = pair
    start = draw.uniform(0.5, 15)
    world.at(start, lambda: scenario.call(caller, callee))
    if draw.random() < 0.4:
        _move_soon(scenario, draw.choice(pair), start)
    for _ in range(draw.randint(0, 2)):
        both = draw.uniform(start, active_s)
        world.at(both, lambda: scenario.move(caller))
        world.at(both + draw.choice([0.0, draw.uniform(0, RACE_S)]), lambda: scenario.move(callee))
    if draw.random() < 0.4:
        end = draw.uniform(start, active_s)
        world.at(end, lambda: caller.end(callee.uri))
        if draw.random() < 0.5:
            _move_soon(scenario, draw.choice(pair), end)
        if draw.random() < 0.6:
            world.at(end + draw.uniform(0.01, 5), lambda: scenario.call(caller, callee))
    if draw.random() < 0.2:
        hang_up = draw.uniform(start, active_s)
        world.at(hang_up, callee.hang_up)
        if draw.random() < 0.5:
            _move_soon(scenario, draw.choice(pair), hang_up)


def _move_soon(scenario: SIPScenario, party: SIPParty, when: float) -> None:
    scenario.world.at(when + scenario.world.random.uniform(0, RACE_S), lambda: scenario.move(party))


def _plan_party(scenario: SIPScenario, party: SIPParty, active_s: float) -> None:
    """Plan moves, network loss, crashes and restarts of a party."""
    world, draw = scenario.world, scenario.world.random
    for _ in range(draw.randint(0, 3)):
        when = draw.uniform(2, active_s)
        world.at(when, lambda: scenario.move(party))
        if draw.random() < 0.3:
            _move_soon(scenario, party, when)
    if draw.random() < 0.4:
        start = draw.uniform(2, active_s - 12)
        world.at(start, lambda: _cut(scenario, party, draw.uniform(0.2, 12)))
    if draw.random() < 0.4:
        start = draw.uniform(2, active_s - 8)
        forgetful = draw.random() < 0.25
        world.at(start, lambda: scenario.kill(party))
        world.at(start + draw.uniform(0.05, 8), lambda: scenario.revive(party, forgetful=forgetful))
    if party.manner.transport != "UDP":
        for _ in range(draw.randint(0, 4)):
            world.at(draw.uniform(2, active_s), lambda: scenario.close_stream(party))


def _cut(scenario: SIPScenario, party: SIPParty, seconds: float) -> None:
    ip = party.ip
    scenario.network.cut(ip)
    scenario.world.after(seconds, lambda: scenario.network.mend(ip))


def _plan_restart(scenario: SIPScenario, when: float) -> None:
    draw = scenario.world.random
    forgetful = draw.random() < 0.5
    scenario.world.at(when, lambda: scenario.stop_server(forgetful=forgetful))
    scenario.world.at(when + draw.uniform(0.02, 5), scenario.start_server)
