"""Interest along a spanning tree of each type (SPEC M-01, M-04, M-05)."""

from __future__ import annotations

import math
import random
from itertools import combinations, pairwise

import pytest

from tests.federation.federated_world import POINTS, World, disturb, points, trusting
from wanderbus.channels.interest.messages import InterestRefused, InterestWhole, NumberedFilter, Stream
from wanderbus.federation.filter_routing import FilterRouting
from wanderbus.federation.methods.filter_bounds import DOMAINS_MAX
from wanderbus.federation.methods.link_states import LinkStates
from wanderbus.federation.methods.spanning_tree import Edge, spanning_tree
from wanderbus.federation.methods.type_tree import TREES_MAX
from wanderbus.federation.methods.wire import (
    LINK_STATES_MAX,
    AnnouncedLink,
    LinkState,
    StreamCarried,
    carried,
    decode,
    encode,
)
from wanderbus.federation.routing_messages import (
    DomainLinked,
    DomainMessage,
    Neighbour,
    RoutingFailed,
    RoutingSettings,
    RoutingSuperseded,
    SendToDomain,
)
from wanderbus.machine import SetTimer, TimerFired

TYPE = "price"
TYPES = frozenset({TYPE})


def line(names: str) -> dict[str, RoutingSettings]:
    """Return the settings of domains of which each knows those beside it."""
    beside = {name: [names[at - 1 : at], names[at + 1 : at + 2]] for at, name in enumerate(names)}
    beside[names[0]][0] = ""
    return {
        name: RoutingSettings(name, {each: Neighbour(TYPES, TYPES) for each in several if each}, "tree")
        for name, several in beside.items()
    }


def linked(settings: dict[str, RoutingSettings], seed: int = 0) -> World:
    world = World(settings, seed)
    world.link_all()
    world.run(10.0)
    return world


def test_types_are_joined_in_the_order_of_their_names() -> None:
    """A history must not depend on how a process hashes names."""
    types = frozenset(f"type{number}" for number in range(9))
    routing = FilterRouting(RoutingSettings("a", {"b": Neighbour(types, types)}, "tree"), epoch=1)
    joined: list[str] = []
    now, waiting = 0.0, list(routing.step([DomainLinked("b")], 0.0))
    while waiting and now < 1.0:
        output = waiting.pop(0)
        if isinstance(output, SendToDomain) and isinstance(state := decode(output.payload), LinkState):
            joined.append(state.type)
        elif isinstance(output, SetTimer):
            now = output.at
            waiting += routing.step([TimerFired(output.key)], now)
    assert list(dict.fromkeys(joined)) == sorted(types)


# The tree --------------------------------------------------------------------------------------------------------


def edges_among(count: int, seed: int) -> list[Edge]:
    chance = random.Random(seed)
    pairs = [each for each in combinations([f"d{number}" for number in range(count)], 2) if chance.random() < 0.8]
    return [Edge(chance.random() < 0.2, float(chance.randrange(1, 9)), *each) for each in pairs]


@pytest.mark.parametrize("seed", range(20))
def test_tree_of_least_length(seed: int) -> None:
    edges = [edge for edge in edges_among(5, seed) if not edge.is_one_way]
    trees = [spanning_tree(TYPE, f"d{number}", edges) for number in range(5)]
    members = trees[0].members
    lengths = [
        sum(edge.distance for edge in chosen)
        for chosen in combinations(edges, len(members) - 1)
        if spanning_tree(TYPE, "d0", chosen).members == members
    ]
    assert sum(edge.distance for edge in trees[0].edges) == min(lengths)
    assert {each.id for each in trees if each.members == members} == {trees[0].id}
    assert spanning_tree("other", "d0", edges).id != trees[0].id
    assert spanning_tree(TYPE, "d0", edges[::-1]) == trees[0]


def test_links_of_one_direction_follow_the_others() -> None:
    edges = [Edge(False, 9.0, "a", "b"), Edge(False, 9.0, "b", "c"), Edge(True, 1.0, "a", "c")]
    assert spanning_tree(TYPE, "a", edges).neighbours == ("b",)
    assert spanning_tree(TYPE, "a", edges[1:]).neighbours == ("c",)


@pytest.mark.parametrize(
    ("one", "other", "edges"),
    [
        ((True, True), (True, True), [False]),
        ((True, False), (False, True), [True]),
        ((False, True), (True, True), [True]),
        ((True, False), (True, False), []),
        ((False, True), (False, True), []),
    ],
)
def test_directions_of_links(one: tuple[bool, bool], other: tuple[bool, bool], edges: list[bool]) -> None:
    states = LinkStates("a")
    states.put(LinkState(TYPE, "a", 1, 1, (AnnouncedLink("b", 1.0, *one),)))
    assert states.edges() == []
    states.put(LinkState(TYPE, "b", 1, 1, (AnnouncedLink("a", 3.0, *other),)))
    assert states.edges() == [Edge(is_one_way, 3.0, "a", "b") for is_one_way in edges]


# Interest --------------------------------------------------------------------------------------------------------


def test_interest_and_events_along_a_line() -> None:
    world = linked(line("abcd"))
    world.want("d", "1", TYPE, "x < 4")
    world.want("b", "1", TYPE, "x > 9")
    world.run(5.0)
    assert points(world.wanted["a"]["b"], TYPE) == {0, 1, 2, 3, 10, 11}
    assert points(world.wanted["c"]["d"], TYPE) == {0, 1, 2, 3}
    assert points(world.wanted["c"]["b"], TYPE) == {10, 11}
    assert world.path_of(TYPE, "a", 2) == ["b", "c", "d"]
    assert world.path_of(TYPE, "a", 10) == ["b"]
    assert world.path_of(TYPE, "c", 5) == []
    world.unwant("d", "1")
    world.run(5.0)
    assert points(world.wanted["a"]["b"], TYPE) == {10, 11}


@pytest.mark.parametrize("seed", range(5))
def test_confirmations_from_the_ends_of_all_branches(seed: int) -> None:
    world = linked(line("abcd"), seed)
    for low in range(5):
        world.want("a", f"{low}", TYPE, f"x == {low}")
        assert not world.routing["a"].is_effective(TYPE)
        while not world.routing["a"].is_effective(TYPE):
            world.run(0.001)
        assert low in points(world.wanted["d"]["c"], TYPE)


def test_neighbour_that_the_type_is_not_received_from() -> None:
    settings = {
        "a": RoutingSettings("a", {"b": Neighbour(frozenset(), TYPES), "c": Neighbour(TYPES, TYPES)}, "tree"),
        "b": RoutingSettings("b", {"a": Neighbour(TYPES, TYPES)}, "tree"),
        "c": RoutingSettings("c", {"a": Neighbour(TYPES, TYPES)}, "tree"),
    }
    world = linked(settings)
    world.want("a", "1", TYPE, "x < 4")
    world.run(5.0)
    assert points(world.wanted["c"]["a"], TYPE) == {0, 1, 2, 3}
    assert not world.wanted["b"].get("a")


def test_shortest_links() -> None:
    settings = trusting("abc", [TYPE], method="tree")
    far = {"a": "b", "b": "a"}
    settings = {
        name: RoutingSettings(
            name,
            {
                other: Neighbour(TYPES, TYPES, distance=5.0 if far.get(name) == other else 1.0)
                for other in each.neighbours
            },
            "tree",
        )
        for name, each in settings.items()
    }
    world = linked(settings)
    assert world.routing["a"].tree_neighbours(TYPE) == ("c",)
    world.unlink("a", "c")
    world.run(5.0)
    assert world.routing["a"].tree_neighbours(TYPE) == ("b",)


def test_covered_interest_in_a_branch() -> None:
    world = linked(line("abcd"))
    world.want("c", "1", TYPE, "x < 9")
    world.run(5.0)
    del world.sent[:]
    world.want("d", "1", TYPE, "x < 4")
    world.run(5.0)
    assert {(name, each.domain) for name, each in world.sent} == {("d", "c"), ("c", "d")}


def test_domain_that_is_away() -> None:
    world = linked(line("abcd"))
    world.want("d", "1", TYPE, "x < 4")
    world.run(5.0)
    world.crash("d")
    world.run(100.0)
    assert world.path_of(TYPE, "a", 2)[:2] == ["b", "c"]
    assert points(world.wanted["c"]["d"], TYPE) == {0, 1, 2, 3}
    world.start("d")
    world.unwant("d", "1")
    world.link("c", "d")
    world.run(10.0)
    assert world.path_of(TYPE, "a", 2) == []


def test_routes_while_the_tree_changes() -> None:
    """The former way stays until the next one is complete."""
    world = linked(trusting("abcd", [TYPE], method="tree"))
    world.want("a", "1", TYPE, "x < 4")
    world.run(5.0)
    first, others = world.routing["a"].tree_neighbours(TYPE), "bcd"
    cut = first[0]
    world.unlink("a", cut)
    for _ in range(500):
        world.run(0.01)
        for other in others:
            assert any(points(each, TYPE) >= {0, 1, 2, 3} for each in world.wanted[other].values()), other
    check_paths(world)


@pytest.mark.parametrize("seed", range(20))
def test_domain_that_leaves_a_tree_and_comes_back(seed: int) -> None:
    """The other end of its branch may have stayed in the tree all the time, with nothing to tell."""
    world = linked(line("abc"), seed)
    world.want("a", "1", TYPE, "x < 4")
    world.want("c", "1", TYPE, "x > 9")
    world.run(5.0)
    world.unlink("b", "c")
    world.run(0.16)
    world.link("b", "c")
    world.run(10.0)
    world.want("b", "1", TYPE, "x == 6")
    world.run(10.0)
    check_paths(world)
    assert points(world.wanted["b"]["a"], TYPE) == {0, 1, 2, 3}
    assert points(world.wanted["a"]["b"], TYPE) == {6, 10, 11}


def test_link_that_comes_and_goes() -> None:
    world = linked(line("abc"))
    del world.sent[:]
    for _ in range(20):
        world.unlink("b", "c")
        world.run(0.3)
        world.link("b", "c")
        world.run(0.3)
    messages = [decode(each.payload) for name, each in world.sent if name == "b"]
    trees = {each.message.incarnation for each in messages if isinstance(each, StreamCarried) and each.role == 3}
    assert 2 < len(trees) <= 15


def check_paths(world: World) -> None:
    """Check that each event reaches exactly those that want it, and those on the way, each once."""
    for name in world.settings:
        for x in POINTS:
            reached = world.path_of(TYPE, name, x)
            assert len(reached) == len(set(reached))
            wanting = {other for other in world.settings if x in points(world.own[other].sent(), TYPE)}
            assert wanting - {name} <= set(reached)
            for hop in reached:
                behind = world.routing[hop].forwards(TYPE, None)
                assert hop in wanting or len(behind) > 1, f"{hop} is a leaf and wants no {x}"


@pytest.mark.parametrize("seed", range(30))
def test_disturbed_domains_at_rest(seed: int) -> None:
    world = World(trusting("abcdef", [TYPE], method="tree"), seed)
    disturb(world, 80)
    check_paths(world)
    ends = [len(each.tree_neighbours(TYPE)) for each in world.routing.values()]
    assert sum(ends) == 2 * (len(ends) - 1)
    assert not world.failed


@pytest.mark.parametrize("seed", range(20))
def test_disturbed_domains_of_a_mesh(seed: int) -> None:
    chance = random.Random(seed)
    names = "abcdefgh"
    pairs = {*pairwise(names), *(tuple(sorted(chance.sample(names, 2))) for _ in range(5))}
    settings = {
        name: RoutingSettings(
            name,
            {
                other: Neighbour(TYPES, TYPES, distance=float(chance.randrange(1, 5)))
                for other in names
                if (name, other) in pairs or (other, name) in pairs
            },
            "tree",
        )
        for name in names
    }
    world = World(settings, seed)
    disturb(world, 100)
    check_paths(world)
    assert not world.failed


# Nonsense --------------------------------------------------------------------------------------------------------


def failed(*payloads: bytes) -> list[str]:
    routing = FilterRouting(trusting("ab", [TYPE], method="tree")["a"], epoch=1)
    outputs = routing.step([DomainLinked("b"), *[DomainMessage("b", each) for each in payloads]], 0.0)
    return [each.reason for each in outputs if isinstance(each, RoutingFailed)]


def state(origin: str, *links: AnnouncedLink, number: int = 1) -> bytes:
    return encode(LinkState(TYPE, origin, 1, number, links))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (state("b", AnnouncedLink("a", -1.0, True, True)), "negative or no number"),
        (state("b", AnnouncedLink("a", math.nan, True, True)), "negative or no number"),
        (state("b", AnnouncedLink("a", math.inf, True, True)), "negative or no number"),
        (state("b", AnnouncedLink("a", 1.0, True, True), AnnouncedLink("a", 2.0, True, True)), "two to one domain"),
        (state("b", AnnouncedLink("b", 1.0, True, True)), "two to one domain"),
        (state("b", *[AnnouncedLink(f"n{each}", 1.0, True, True) for each in range(DOMAINS_MAX + 1)]), "has 201 links"),
        (state("n" * 256), "too long"),
        (state("b", number=LINK_STATES_MAX + 1), "not a message between domains"),
    ],
)
def test_senseless_states(payload: bytes, reason: str) -> None:
    assert reason in failed(payload)[0]


def test_states_of_too_many_domains() -> None:
    ring = [f"n{number}" for number in range(DOMAINS_MAX + 1)]
    payloads = [
        state(
            each,
            AnnouncedLink(ring[at - 1], 1.0, True, True),
            AnnouncedLink(ring[(at + 1) % len(ring)], 1.0, True, True),
        )
        for at, each in enumerate(ring)
    ]
    assert not failed(*payloads[:DOMAINS_MAX])
    assert "more than 200 other domains" in failed(*payloads)[0]


def test_states_of_domains_without_links() -> None:
    assert not failed(*[state(f"n{number}") for number in range(2 * DOMAINS_MAX)])


def test_state_of_a_type_that_is_not_shared() -> None:
    """A neighbour cannot begin trees of types that it invents: not even a timer is set."""
    routing = FilterRouting(trusting("ab", [TYPE])["a"], epoch=1)
    routing.step([DomainLinked("b")], 0.0)
    link = AnnouncedLink("a", 1.0, True, True)
    assert routing.step([DomainMessage("b", encode(LinkState("other", "b", 1, 1, (link,))))], 0.0) == []
    assert routing.step([DomainMessage("b", encode(LinkState(TYPE, "b", 1, 1, (link,))))], 0.0) != []


def test_known_types_of_a_restarted_gateway_in_a_tree() -> None:
    world = linked(line("abc"))
    world.want("c", "1", TYPE, "x < 4")
    world.run(5.0)
    world.crash("a")
    world.start("a")
    world.run(5.0)
    assert world.known["a"] == {}
    world.link("a", "b")
    world.run(5.0)
    assert world.known["a"] == {"b": {TYPE}}
    assert points(world.wanted["a"]["b"], TYPE) == {0, 1, 2, 3}


def test_invented_state_of_the_own_domain() -> None:
    world = linked(line("abc"))
    forged = DomainMessage("b", encode(LinkState(TYPE, "a", 1, 1_000, ())))
    world.give("a", forged)
    world.run(5.0)
    world.want("a", "1", TYPE, "x < 4")
    world.run(5.0)
    assert world.path_of(TYPE, "c", 2) == ["b", "a"]


def test_stream_of_another_origin_in_a_tree() -> None:
    world = linked(line("ab"))
    routing = world.routing["a"]
    (hop,) = routing.tree_neighbours(TYPE)
    tree = spanning_tree(TYPE, "a", [Edge(False, 1.0, "a", "b")])
    whole = InterestWhole(Stream(tree.id, "c"), 9, 1, (NumberedFilter(1, TYPE, "x == 1"),))
    outputs = routing.step([DomainMessage(hop, carried("tree", whole))], world.now)
    assert any(isinstance(each, RoutingFailed) for each in outputs)


@pytest.mark.parametrize(("epoch", "number"), [(1, LINK_STATES_MAX), (9, 1)])
def test_state_of_the_own_domain_that_only_a_later_life_can_follow(epoch: int, number: int) -> None:
    world = linked(line("ab"))
    forged = DomainMessage("b", encode(LinkState(TYPE, "a", epoch, number, ())))
    assert RoutingSuperseded(epoch, "b") in world.routing["a"].step([forged], world.now)


def test_life_that_is_known_from_a_tree() -> None:
    world = linked(line("ab"))
    routing = world.routing["a"]
    tree = spanning_tree(TYPE, "a", [Edge(False, 1.0, "a", "b")])
    refused = InterestRefused(Stream(tree.id, "a"), 7 * TREES_MAX + 3, 1)
    outputs = routing.step([DomainMessage("b", carried("tree", refused))], world.now)
    assert RoutingSuperseded(7, "b") in outputs


@pytest.mark.parametrize("origin", ["a", "z"])
def test_state_of_a_life_that_cannot_have_been(origin: str) -> None:
    world = linked(line("ab"))
    routing = world.routing["a"]
    routing.believe(100)
    outputs = routing.step([DomainMessage("b", encode(LinkState(TYPE, origin, 101, 1, ())))], world.now)
    assert any(isinstance(each, RoutingFailed) for each in outputs)
