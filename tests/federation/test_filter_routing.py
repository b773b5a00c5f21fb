"""Methods of filters side by side: whom an event reaches, and changes of the method of a type (SPEC M-05)."""

from __future__ import annotations

import pytest

from tests.federation.federated_world import POINTS, World, disturb, points, trusting
from wanderbus.federation.methods.wire import MethodsAnnounced, encode
from wanderbus.federation.routing_messages import METHODS, DomainMessage, Method

TYPE = "price"


def reached(world: World, name: str, x: int) -> set[str]:
    """Return the domains that want an event and get it, directly or along a tree."""
    direct = {other for other, wanted in world.wanted[name].items() if x in points(wanted, TYPE)}
    wanting = {other for other in world.settings if x in points(world.own[other].sent(), TYPE)}
    return wanting & (direct | set(world.path_of(TYPE, name, x)))


def check_reached(world: World) -> None:
    """Check that an event of each domain reaches all others that want it."""
    for name in world.settings:
        for x in POINTS:
            wanting = {other for other in world.settings if x in points(world.own[other].sent(), TYPE)}
            assert reached(world, name, x) == wanting - {name}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(5))
def test_reached_domains_by_every_method(method: Method, seed: int) -> None:
    world = World(trusting("abcde", [TYPE], method=method), seed)
    disturb(world, 60)
    check_reached(world)
    assert not world.failed


@pytest.mark.parametrize("seed", range(20))
def test_methods_of_disturbed_domains(seed: int) -> None:
    world = World(trusting("abcde", [TYPE]), seed)
    disturb(world, 120, METHODS)
    check_reached(world)
    assert not world.failed
    assert not any(each.changing() for each in world.routing.values())


def test_filters_that_are_withdrawn_before_those_by_the_announced_method_are_known() -> None:
    """The other domain has counted what an earlier life here has confirmed: they stay until all is known that way."""
    several = trusting("abc", [f"type {number}" for number in range(20)])
    world = World(several)
    found = (
        each for each in sorted(several["a"].shared()) if world.routing["a"]._rendezvous.rendezvous_of(each) == "c"
    )
    type = next(found)
    world.link("a", "b")
    world.link("b", "c")
    world.want("b", "1", type, "x < 4")
    world.run(5.0)
    world.give("a", DomainMessage("b", encode(MethodsAnnounced((type,), ()))))
    world.unwant("b", "1")
    world.run(5.0)
    assert points(world.wanted["a"]["b"], type) == {0, 1, 2, 3}
    world.link("a", "c")
    world.run(5.0)
    assert points(world.wanted["a"]["b"], type) == set()


def test_change_from_multicast_to_a_tree_and_back() -> None:
    world = World(trusting("abc", [TYPE]))
    world.link_all()
    world.run(5.0)
    world.want("a", "1", TYPE, "x < 4")
    world.run(5.0)
    for name in "abc":
        world.use(name, TYPE, "tree")
    for _ in range(300):
        world.run(0.02)
        for other in "bc":
            assert any(points(each, TYPE) >= {0, 1, 2, 3} for each in world.wanted[other].values()), other
    assert not world.routing["a"].changing()
    check_reached(world)
    for name in "abc":
        world.use(name, TYPE, "multicast")
    world.run(5.0)
    world.check_at_rest()
