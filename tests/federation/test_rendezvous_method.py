"""Interest in types by rendezvous domains that hashing names (SPEC M-01, M-03)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
import pytest

from tests.federation.federated_world import World, disturb, partly_trusting, points, trusting
from wanderbus.channels.interest.messages import FromSender, InterestPosition, InterestWhole, NumberedFilter, Stream
from wanderbus.federation.filter_routing import FilterRouting
from wanderbus.federation.methods.filter_bounds import DOMAINS_MAX, FILTERS_MAX, TYPES_MAX
from wanderbus.federation.methods.rendezvous_choice import RendezvousChoice
from wanderbus.federation.methods.wire import ROLES, StreamCarried, TrustAnnounced, TrustedType, carried, decode, encode
from wanderbus.federation.routing_messages import (
    DomainLinked,
    DomainMessage,
    Neighbour,
    RoutingFailed,
    RoutingOutput,
    RoutingSettings,
    SendToDomain,
)

NAMES = ("a", "b", "c", "d")
TYPE = "price"
RENDEZVOUS = RendezvousChoice(NAMES).of(TYPE) or ""
OTHERS = [each for each in NAMES if each != RENDEZVOUS]


def linked(settings: dict[str, RoutingSettings], seed: int = 0) -> World:
    world = World(settings, seed)
    world.link_all()
    world.run(5.0)
    return world


def rendezvous_world() -> World:
    return linked(trusting(NAMES, [TYPE], method="rendezvous"))


def test_rendezvous_of_many_types() -> None:
    several = [f"type {number}" for number in range(2_000)]
    choice = RendezvousChoice(NAMES)
    counts = Counter(map(choice.of, several))
    assert all(400 < counts[each] < 600 for each in NAMES)
    assert [choice.of(each) for each in several] == [RendezvousChoice(NAMES[::-1]).of(each) for each in several]
    fewer = RendezvousChoice("abc")
    assert all(fewer.of(each) == choice.of(each) for each in several if choice.of(each) != "d")
    assert RendezvousChoice(()).of(TYPE) is None


def test_interest_that_a_rendezvous_spreads() -> None:
    world = rendezvous_world()
    del world.sent[:]
    asker = OTHERS[0]
    world.want(asker, "1", TYPE, "x < 4")
    world.run(5.0)
    for other in NAMES:
        if other != asker:
            assert points(world.wanted[other][asker], TYPE) == {0, 1, 2, 3}
    told = [(name, each.domain) for name, each in world.sent if filters_in(each.payload)]
    assert sorted(told) == sorted([(asker, RENDEZVOUS), *[(RENDEZVOUS, each) for each in OTHERS if each != asker]])
    world.unwant(asker, "1")
    world.run(5.0)
    world.check_at_rest()
    assert not any(points(world.wanted[other].get(asker, ()), TYPE) for other in NAMES)


def filters_in(payload: bytes) -> tuple[NumberedFilter, ...]:
    message = decode(payload)
    inner = message.message if isinstance(message, StreamCarried) else None
    return (*getattr(inner, "added", ()), *getattr(inner, "filters", ()))


def test_covered_interest_at_a_rendezvous() -> None:
    world = rendezvous_world()
    world.want(OTHERS[0], "1", TYPE, "x < 9")
    world.run(5.0)
    del world.sent[:]
    world.want(OTHERS[0], "2", TYPE, "x < 4")
    world.run(5.0)
    assert not world.sent


def is_spread(payload: bytes) -> bool:
    message = decode(payload)
    return isinstance(message, StreamCarried) and ROLES[message.role] == "spread"


def test_domains_that_do_not_send_the_type() -> None:
    settings = trusting(NAMES, [TYPE], method="rendezvous")
    silent = OTHERS[2]
    neighbours = {name: Neighbour(each.receives, frozenset()) for name, each in settings[silent].neighbours.items()}
    settings[silent] = RoutingSettings(silent, neighbours, "rendezvous")
    world = linked(settings)
    world.want(OTHERS[0], "1", TYPE, "x < 4")
    world.run(5.0)
    assert not [each for name, each in world.sent if each.domain == silent and is_spread(each.payload)]
    world.check_at_rest()


def test_rendezvous_that_is_away() -> None:
    world = rendezvous_world()
    one, other = OTHERS[:2]
    world.want(one, "1", TYPE, "x < 4")
    world.run(5.0)
    world.crash(RENDEZVOUS)
    assert world.routing[one].stalled() == {TYPE: RENDEZVOUS}
    world.want(one, "2", TYPE, "x > 9")
    world.run(100.0)
    assert points(world.wanted[other][one], TYPE) == {0, 1, 2, 3}
    world.start(RENDEZVOUS)
    world.link_all()
    world.run(5.0)
    assert points(world.wanted[other][one], TYPE) == {0, 1, 2, 3, 10, 11}
    assert not world.routing[one].stalled()
    world.check_at_rest()


def test_type_that_is_not_trusted_to_its_rendezvous() -> None:
    settings = trusting(NAMES, [TYPE], method="rendezvous")
    asker = OTHERS[0]
    neighbours = {**settings[asker].neighbours, RENDEZVOUS: Neighbour()}
    settings[asker] = RoutingSettings(asker, neighbours, "rendezvous")
    world = linked(settings)
    assert world.routing[asker].method_of(TYPE) == "multicast"
    world.want(asker, "1", TYPE, "x < 4")
    world.run(5.0)
    world.check_at_rest()
    assert points(world.wanted[OTHERS[1]][asker], TYPE) == {0, 1, 2, 3}
    assert RENDEZVOUS not in world.wanted or asker not in world.wanted[RENDEZVOUS]


def test_domain_with_another_backbone() -> None:
    """A rendezvous does not wait for a domain that has no types there."""
    settings = trusting(NAMES, [TYPE], method="rendezvous")
    other = OTHERS[2]
    neighbours = {
        name: msgspec.structs.replace(each, is_backbone=False) for name, each in settings[other].neighbours.items()
    }
    settings[other] = RoutingSettings(other, neighbours, "multicast")
    world = linked(settings)
    world.want(OTHERS[0], "1", TYPE, "x < 4")
    world.run(5.0)
    del world.sent[:]
    world.run(100.0)
    assert not world.sent


def test_known_types_of_a_restarted_gateway_at_a_rendezvous() -> None:
    world = rendezvous_world()
    one, other = OTHERS[:2]
    world.want(one, "1", TYPE, "x < 4")
    world.run(5.0)
    world.crash(other)
    world.start(other)
    world.link(one, other)
    world.run(5.0)
    assert world.known[other] == {}
    world.link(other, RENDEZVOUS)
    world.run(5.0)
    assert world.known[other] == {one: {TYPE}, RENDEZVOUS: {TYPE}}, "others may tell by another way"
    world.link(other, OTHERS[2])
    world.run(5.0)
    assert world.known[other] == {name: {TYPE} for name in NAMES if name != other}
    assert points(world.wanted[other][one], TYPE) == {0, 1, 2, 3}


def test_interest_that_is_withdrawn_before_the_rendezvous_has_told_it() -> None:
    """A rendezvous knows that an earlier life had the interest, and the present one knows it from its domain."""
    world = rendezvous_world()
    one, other = OTHERS[:2]
    world.want(one, "1", TYPE, "x < 4")
    world.run(5.0)
    for name in (one, other):
        world.crash(name)
        world.start(name, ("multicast", "rendezvous"))
    world.link(one, other)
    world.run(5.0)
    assert world.known[other] == {one: {TYPE}}
    world.link(one, RENDEZVOUS)
    world.run(5.0)
    assert not world.routing[one].changing()
    assert points(world.wanted[other][one], TYPE) == {0, 1, 2, 3}
    world.unwant(one, "1")
    world.link_all()
    world.run(5.0)
    world.check_at_rest()


@pytest.mark.parametrize("seed", range(20))
def test_disturbed_domains_at_rest(seed: int) -> None:
    world = World(trusting("abcde", ["price", "departure"], method="rendezvous"), seed)
    disturb(world, 80)
    world.check_at_rest()
    assert not world.failed


@pytest.mark.parametrize("seed", range(10))
def test_disturbed_domains_with_partial_trust(seed: int) -> None:
    """Only the rendezvous is trusted with everything."""
    settings = partly_trusting("abcdef", ["price", "departure", "ship"], seed)
    every = frozenset(("price", "departure", "ship"))
    for name, each in settings.items():
        changed = {
            other: Neighbour(every, every) if "f" in (name, other) else one for other, one in each.neighbours.items()
        }
        settings[name] = RoutingSettings(
            name,
            {other: msgspec.structs.replace(one, is_backbone=other == "f") for other, one in changed.items()},
            "rendezvous",
            is_backbone=name == "f",
        )
    world = World(settings, seed)
    disturb(world, 80)
    world.check_at_rest()
    assert not world.failed


# Change of the method --------------------------------------------------------------------------------------------


def test_routes_while_the_method_changes() -> None:
    world = linked(trusting(NAMES, [TYPE]))
    one = OTHERS[0]
    world.want(one, "1", TYPE, "x < 4")
    world.run(5.0)
    seen = []

    def look() -> None:
        seen.append([points(world.wanted[other].get(one, ()), TYPE) for other in NAMES if other != one])

    for step in range(400):
        world.at(world.now + step * 0.01, look)
    world.use(one, TYPE, "rendezvous")
    assert world.routing[one].changing() == [TYPE]
    world.run(5.0)
    assert world.routing[one].changing() == []
    assert seen == [[{0, 1, 2, 3}] * 3] * 400
    del world.sent[:]
    world.want(one, "2", TYPE, "x > 9")
    world.run(5.0)
    assert not [each for name, each in world.sent if name == one and each.domain != RENDEZVOUS and asks(each.payload)]
    world.check_at_rest()


def asks(payload: bytes) -> bool:
    message = decode(payload)
    return (
        isinstance(message, StreamCarried)
        and ROLES[message.role] in ("multicast", "asked")
        and bool(filters_in(payload))
    )


def test_former_routes_while_a_rendezvous_is_away() -> None:
    world = linked(trusting(NAMES, [TYPE]))
    one, other = OTHERS[:2]
    world.want(one, "1", TYPE, "x < 4")
    world.run(5.0)
    world.crash(RENDEZVOUS)
    world.use(one, TYPE, "rendezvous")
    world.run(50.0)
    world.want(one, "2", TYPE, "x > 9")
    world.run(50.0)
    assert points(world.wanted[other][one], TYPE) == {0, 1, 2, 3, 10, 11}
    world.use(one, TYPE, "multicast")
    world.run(1.0)
    assert points(world.wanted[other][one], TYPE) == {0, 1, 2, 3, 10, 11}
    world.start(RENDEZVOUS)
    world.link_all()
    world.run(50.0)
    assert not world.routing[one].changing()
    world.check_at_rest()


@pytest.mark.parametrize("seed", range(20))
def test_methods_of_disturbed_domains(seed: int) -> None:
    world = World(trusting("abcde", ["price", "departure"]), seed)
    disturb(world, 120, ("multicast", "rendezvous"))
    world.check_at_rest()
    assert not world.failed
    assert not any(each.changing() for each in world.routing.values())


def test_filters_that_come_before_the_trust_of_their_domain() -> None:
    """They are for an earlier life of the rendezvous: others must not hear from this one that nothing is wanted."""
    asker, sender = OTHERS[:2]
    world = World(trusting(NAMES, [TYPE], method="rendezvous"))
    routing = world.routing[RENDEZVOUS]
    wanted = (NumberedFilter(1, TYPE, "x < 4"),)
    early = DomainMessage(asker, carried("asked", InterestWhole(Stream(0, asker), 1, 1, wanted)))
    outputs = routing.step([DomainLinked(asker), DomainLinked(sender), early, trust_of(world, sender)], 0.0)
    assert asker not in streams_spread(outputs, sender)
    again = DomainMessage(asker, carried("asked", InterestWhole(Stream(0, asker), 1, 2, wanted)))
    outputs = routing.step([trust_of(world, asker), again], 1.0)
    assert streams_spread(outputs, sender) == [asker]


def trust_of(world: World, domain: str) -> DomainMessage:
    """Return what a domain says of its trust, on a new link to the rendezvous."""
    said = world.routing[domain].step([DomainLinked(RENDEZVOUS)], 0.0)
    payloads = [each.payload for each in said if isinstance(each, SendToDomain)]
    return DomainMessage(domain, next(each for each in payloads if isinstance(decode(each), TrustAnnounced)))


def streams_spread(outputs: Iterable[RoutingOutput], domain: str) -> list[str]:
    """Return the domains of whose interest a rendezvous tells another one."""
    sent = [decode(each.payload) for each in outputs if isinstance(each, SendToDomain) and each.domain == domain]
    spread = [each for each in sent if isinstance(each, StreamCarried) and ROLES[each.role] == "spread"]
    return [each.message.stream.origin for each in spread if isinstance(each.message, FromSender)]


# Nonsense --------------------------------------------------------------------------------------------------------


def failed(at: str, sender: str, *payloads: bytes) -> list[str]:
    routing = FilterRouting(trusting(NAMES, [TYPE], method="rendezvous")[at], epoch=1)
    trust = DomainMessage(sender, encode(TrustAnnounced((), ())))
    outputs = routing.step([DomainLinked(sender), trust, *[DomainMessage(sender, each) for each in payloads]], 0.0)
    return [each.reason for each in outputs if isinstance(each, RoutingFailed)]


def test_filters_beyond_the_bound_at_a_rendezvous() -> None:
    several = [NumberedFilter(number, TYPE, f"x == {number}") for number in range(FILTERS_MAX + 1)]
    whole = InterestWhole(Stream(0, OTHERS[0]), 1, 1, tuple(several))
    assert "1001 filters of price" in failed(RENDEZVOUS, OTHERS[0], carried("asked", whole))[0]


def test_filter_that_is_there_twice_at_a_rendezvous() -> None:
    twice = (NumberedFilter(1, TYPE, "x == 1"), NumberedFilter(2, TYPE, "x == 1"))
    whole = InterestWhole(Stream(0, OTHERS[0]), 1, 1, twice)
    assert "one filter twice" in failed(RENDEZVOUS, OTHERS[0], carried("asked", whole))[0]


def test_streams_of_too_many_domains() -> None:
    payloads = [carried("spread", InterestPosition(Stream(0, f"n{number}"), 1, 0)) for number in range(DOMAINS_MAX + 1)]
    assert not failed(OTHERS[0], RENDEZVOUS, *payloads[:-1])
    assert f"more than {DOMAINS_MAX} domains" in failed(OTHERS[0], RENDEZVOUS, *payloads)[0]


def test_trust_in_too_many_types() -> None:
    several = [TrustedType(f"type {number}", b"", b"") for number in range(TYPES_MAX + 1)]
    assert not failed(RENDEZVOUS, OTHERS[0], encode(TrustAnnounced((), tuple(several[:-1]))))
    assert "trust in 1001 types" in failed(RENDEZVOUS, OTHERS[0], encode(TrustAnnounced((), tuple(several))))[0]


def test_lying_rendezvous() -> None:
    """A domain that is no rendezvous of the type changes nothing, and cannot speak of the receiver."""
    liar = OTHERS[1]
    whole = InterestWhole(Stream(0, OTHERS[2]), 1, 1, (NumberedFilter(1, TYPE, "x == 1"),))
    routing = FilterRouting(trusting(NAMES, [TYPE], method="rendezvous")[OTHERS[0]], epoch=1)
    routing.step([DomainLinked(liar), DomainMessage(liar, carried("spread", whole))], 0.0)
    assert routing.wanted_by(OTHERS[2]) == []
    settings = trusting(NAMES, [TYPE], method="rendezvous")[OTHERS[0]]
    neighbours = {**settings.neighbours, OTHERS[2]: Neighbour(frozenset({TYPE}))}
    routing = FilterRouting(RoutingSettings(OTHERS[0], neighbours, "rendezvous"), epoch=1)
    routing.step([DomainLinked(RENDEZVOUS), DomainMessage(RENDEZVOUS, carried("spread", whole))], 0.0)
    assert routing.wanted_by(OTHERS[2]) == []
    own = InterestPosition(Stream(0, OTHERS[0]), 1, 0)
    assert "no stream of" in failed(OTHERS[0], liar, carried("spread", own))[0]
