"""Tests of links that go through other domains, along the tree of a type (SPEC M-04; decision 0170)."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from tests.federation.routed_world import RoutedWorld, settings_of
from wanderbus.federation.methods import wire
from wanderbus.federation.methods.wire import AnnouncedLink, LinkState
from wanderbus.federation.routed.link import WINDOW_BYTES, WINDOW_MESSAGES
from wanderbus.federation.routed.links import SILENT_S
from wanderbus.federation.routed.messages import (
    ROUTED_PREFIX,
    LinkId,
    Passed,
    PassedTaken,
    RoutedCalled,
    RoutedCarried,
    RoutedProbed,
    StateAnnounced,
    decode_end,
    decode_hop,
    encode_end,
    encode_hop,
)
from wanderbus.federation.routed.passing import MESSAGE_BYTES, SENDER_BYTES_MAX, WAITING_BYTES_MAX, PassedOn
from wanderbus.federation.routed.tree_paths import STATES_AT_ONCE, TreePaths
from wanderbus.federation.routing_lives import LIVES_AT_ONCE_MAX
from wanderbus.federation.routing_messages import Neighbour, RoutingSettings
from wanderbus.federation.shared_links import PASSED_BYTES_MAX
from wanderbus.federation.shared_outputs import AtGateway
from wanderbus.peers.messages import (
    CloseServerLink,
    ConsumedOnServerLink,
    SendOnServerLink,
    ServerLinkClosed,
    ServerLinkOpened,
    ServerMessageReceived,
)

SOON_S = 3.0
"""Time after which the trees and links are as the direct links permit."""


def chain(names: str = "abc") -> RoutedWorld:
    """Return a world of domains of which each has a link to the next one."""
    world = RoutedWorld(settings_of(names))
    world.link(*[one + other for one, other in pairwise(names)])
    world.run(SOON_S)
    return world


def carried(payload: bytes) -> bool:
    """Return whether a message of a direct link carries one of a routed link."""
    message = decode_hop(payload[len(ROUTED_PREFIX) :])
    return isinstance(message, Passed) and isinstance(decode_end(message.payload), RoutedCarried)


def consume(world: RoutedWorld, name: str, other: str, count: int) -> None:
    world.request(name, ConsumedOnServerLink(world.number(name, other), count))


def test_m04_messages_pass_through_the_domains_between_each_once_and_in_order() -> None:
    world = chain("abcde")
    payloads = [b"%d" % each for each in range(100)]
    world.send("a", "e", *payloads)
    world.send("e", "a", b"back")
    world.run(1.0)
    assert (world.received("e"), world.received("a")) == (payloads, [b"back"])
    assert world.routed["a"].through("e") == ("b", "c", "d")
    assert sum(carried(payload) for _, _, payload in world.sent) == 4 * 101


def test_m04_each_domain_reaches_each_other_one_on_the_shortest_tree() -> None:
    world = RoutedWorld(settings_of("abcd", lengths={"ab": 5.0, "bc": 1.0, "cd": 1.0, "ad": 2.0}))
    world.link("ab", "bc", "cd", "ad")
    world.run(SOON_S)
    assert {name: set(world.open_links(name)) for name in "abcd"} == {"a": {"c"}, "b": {"d"}, "c": {"a"}, "d": {"b"}}
    assert world.routed["a"].through("c") == ("d",)
    assert world.routed["b"].through("d") == ("c",)


def test_a_domain_with_a_link_has_no_routed_one() -> None:
    world = chain()
    assert set(world.open_links("a")) == {"c"}
    world.link("ac")
    world.request("a", CloseServerLink(world.number("a", "c"), "another link replaces it"))
    world.run(SOON_S)
    assert (world.open_links("a"), world.open_links("c")) == ({}, {})
    world.unlink("ac")
    world.run(SOON_S)
    assert set(world.open_links("a")) == {"c"}


def test_another_path_after_a_link_has_failed() -> None:
    world = RoutedWorld(settings_of("abcd", lengths={"ab": 1.0, "bc": 1.0, "cd": 1.0, "ad": 9.0}))
    world.link("ab", "bc", "cd", "ad")
    world.run(SOON_S)
    assert world.routed["a"].through("c") == ("b",)
    world.unlink("bc")
    world.run(SOON_S)
    assert world.routed["a"].through("c") == ("d",)
    world.send("a", "c", b"again")
    world.run(1.0)
    assert world.received("c") == [b"again"]
    world.link("bc")
    world.run(SOON_S)
    assert world.routed["a"].through("c") == ("b",)
    assert [len(each) for each in world.open_links("c").values()] == [1]


def test_a_lost_message_closes_the_link_at_both_ends() -> None:
    world = chain()
    former = world.number("a", "c")
    world.on_sent = lambda source, target, payload: not (source == "b" and carried(payload))
    world.send("a", "c", b"lost")
    world.run(0.1)
    world.on_sent = lambda source, target, payload: True
    world.request("a", SendOnServerLink(former, b"behind"))
    world.run(SOON_S)
    assert world.received("c") == []
    reasons = [each.reason for each in world.reports["a"] if isinstance(each, ServerLinkClosed)]
    assert reasons == ["a message was lost"]
    assert world.number("a", "c") != former
    world.send("a", "c", b"one", b"two")
    world.run(1.0)
    assert world.received("c") == [b"one", b"two"]


def test_a_last_message_that_is_lost_closes_the_link() -> None:
    world = chain()
    world.on_sent = lambda source, target, payload: not (source == "b" and carried(payload))
    world.send("a", "c", b"lost")
    world.run(SOON_S)
    assert [each.reason for each in world.reports["c"] if isinstance(each, ServerLinkClosed)] == ["a message was lost"]


def test_the_end_of_a_link_whose_other_end_is_silent() -> None:
    world = chain()
    world.on_sent = lambda source, target, payload: False
    world.run(SILENT_S + 1.0)
    assert (world.open_links("a"), world.open_links("c")) == ({}, {})
    world.on_sent = lambda source, target, payload: True
    world.run(SOON_S)
    assert set(world.open_links("c")) == {"a"}


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_gateway_that_starts_again(name: str) -> None:
    world = chain()
    world.start(name)
    world.reports[name].clear()
    world.link(*[each for each in ("ab", "bc") if name in each])
    world.run(SILENT_S + SOON_S)
    world.send("a", "c", b"again")
    world.run(1.0)
    assert world.received("c") == [b"again"]


def test_a_link_carries_no_more_than_the_other_end_has_finished_with() -> None:
    world = chain()
    world.send("a", "c", *[b"x"] * (WINDOW_MESSAGES + 10))
    world.run(1.0)
    assert len(world.received("c")) == WINDOW_MESSAGES
    consume(world, "c", "a", 10)
    world.run(1.0)
    assert len(world.received("c")) == WINDOW_MESSAGES + 10
    consume(world, "c", "a", WINDOW_MESSAGES)
    world.send("a", "c", *[bytes(WINDOW_BYTES // 2 + 1)] * 3)
    world.run(1.0)
    assert len(world.received("c")) == WINDOW_MESSAGES + 12
    consume(world, "c", "a", 1)
    assert world.open_links("a").keys() == {"c"}


def test_the_window_counts_what_a_domain_sends_beyond_it() -> None:
    world = chain()
    end = world.routed["a"]._of_domain["c"]
    for number in range(1, WINDOW_MESSAGES + 2):
        message = RoutedCarried(end.id, number, b"")
        world.inject("b", "c", encode_hop(Passed("T", ("a", "b", "c"), 2, encode_end(message))))
    assert len(world.received("c")) == WINDOW_MESSAGES
    assert world.open_links("c") == {}


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("a", "b", "c"), 1),
        (("c", "a", "b", "d"), 2),
        (("b", "a", "c"), 2),
        (("a", "b", "a", "c"), 3),
        (("b", "a", "b", "c"), 3),
        (("a", "b", "c"), 3),
    ],
)
def test_a_path_on_which_a_message_cannot_have_come(path: tuple[str, ...], place: int) -> None:
    world = chain("abcd")
    world.inject("b", "c", encode_hop(Passed("T", path, place, b"")))
    assert world.closed == [("c", "b: a message has a path on which it cannot have come")]


def test_a_message_of_a_type_that_one_neighbour_does_not_share_is_not_passed_on() -> None:
    settings = settings_of("abc", ("T", "U"))
    only = Neighbour(frozenset("T"), frozenset("T"))
    settings["b"] = msgspec.structs.replace(settings["b"], neighbours={**settings["b"].neighbours, "c": only})
    world = RoutedWorld(settings)
    world.link("ab", "bc")
    world.run(SOON_S)
    for type, passed in (("T", 1), ("U", 0), ("other", 0)):
        world.sent.clear()
        message = RoutedCarried(LinkId(1, 1), 1, b"")
        world.inject("a", "b", encode_hop(Passed(type, ("a", "b", "c"), 1, encode_end(message))))
        assert sum(carried(payload) for _, _, payload in world.sent) == passed


@pytest.mark.parametrize(
    ("between", "there"),
    [
        (Neighbour(frozenset("TU"), frozenset("T")), Neighbour(frozenset("TU"), frozenset("TU"))),
        (Neighbour(frozenset("T"), frozenset("TU")), Neighbour(frozenset("TU"), frozenset("T"))),
    ],
)
def test_no_path_through_a_domain_that_is_trusted_with_less(between: Neighbour, there: Neighbour) -> None:
    settings = settings_of("abc", ("T", "U"))
    settings["a"] = msgspec.structs.replace(settings["a"], neighbours={"b": between, "c": there})
    world = RoutedWorld(settings)
    world.link("ab", "bc")
    world.run(SOON_S)
    assert (world.open_links("a"), world.open_links("c")) == ({}, {})


def test_a_link_is_refused_on_a_path_that_the_tree_does_not_have() -> None:
    world = chain("abcd")
    before = world.open_links("d")
    for path in (("a", "c", "d"), ("b", "a", "c", "d"), ("x", "c", "d")):
        called = Passed("T", path, len(path) - 1, encode_end(RoutedCalled(LinkId(9, 9))))
        world.inject("c", "d", encode_hop(called))
    assert world.open_links("d") == before


def test_a_link_is_refused_where_there_is_a_direct_one() -> None:
    world = RoutedWorld(settings_of("abc", lengths={"ac": 9.0}))
    world.link("ab", "bc", "ac")
    world.run(SOON_S)
    world.inject("b", "c", encode_hop(Passed("T", ("a", "b", "c"), 2, encode_end(RoutedCalled(LinkId(9, 9))))))
    assert world.open_links("c") == {}


def test_a_link_is_refused_of_the_domain_that_has_to_wait_for_one() -> None:
    world = chain()
    before = world.open_links("a")
    world.inject("b", "a", encode_hop(Passed("T", ("c", "b", "a"), 2, encode_end(RoutedCalled(LinkId(9, 9))))))
    assert world.open_links("a") == before


def test_messages_on_another_path_than_that_of_their_link_are_ignored() -> None:
    world = RoutedWorld(settings_of("abcd", lengths={"ad": 9.0}))
    world.link("ab", "bc", "cd", "ad")
    world.run(SOON_S)
    end = world.routed["a"]._of_domain["c"]
    world.inject("d", "c", encode_hop(Passed("T", ("a", "d", "c"), 2, encode_end(RoutedCarried(end.id, 1, b"x")))))
    world.run(1.0)
    world.send("a", "c", b"one")
    world.run(1.0)
    assert world.received("c") == [b"one"]


def test_messages_on_a_former_link_are_consumed_and_ignored() -> None:
    world = chain()
    end, consumed = world.routed["a"]._of_domain["c"], world.consumed["c"]
    payload = encode_hop(Passed("T", ("a", "b", "c"), 2, encode_end(RoutedCarried(end.id, 1, b"x"))))
    world.at_links("c", ServerMessageReceived(1_000_000, "b/g", payload))
    assert (world.received("c"), world.consumed["c"]) == ([], consumed + 1)


def test_a_message_that_is_too_large_to_be_passed_on_is_lost() -> None:
    world = chain()
    world.send("a", "c", bytes(PASSED_BYTES_MAX))
    world.run(1.0)
    assert max(len(payload) for _, _, payload in world.sent) <= PASSED_BYTES_MAX
    assert any(isinstance(each, ServerLinkClosed) and "lost" in each.reason for each in world.reports["c"])


def test_an_end_that_has_finished_with_more_than_was_sent() -> None:
    world = chain()
    end = world.routed["a"]._of_domain["c"]
    world.inject("b", "a", encode_hop(Passed("T", ("c", "b", "a"), 2, encode_end(RoutedProbed(end.id, 0, 5)))))
    (closed,) = [each for each in world.reports["a"] if isinstance(each, ServerLinkClosed)]
    assert closed.reason == "messages are finished that were never sent"


def test_senseless_messages_of_another_end_close_the_link_to_no_neighbour() -> None:
    world = chain()
    world.inject("b", "c", encode_hop(Passed("T", ("a", "b", "c"), 2, b"\xc1")))
    assert world.closed == []
    assert world.open_links("c") == {}
    world.run(SOON_S)
    assert set(world.open_links("c")) == {"a"}


@pytest.mark.parametrize(
    "payload", [b"\x07", b"\x07\xc1", b"\x07\x93\x01\x02\x03", encode_hop(StateAnnounced(b"\xc1"))]
)
def test_senseless_messages_of_a_neighbour_close_its_link(payload: bytes) -> None:
    world = chain()
    world.inject("b", "c", payload)
    assert [name for name, _ in world.closed] == ["c"]


def test_a_domain_that_passes_on_counts_what_waits_at_the_next_one() -> None:
    passed = PassedOn()
    size = SENDER_BYTES_MAX // 4 - MESSAGE_BYTES
    assert [passed.may_pass("a", "c", size) for _ in range(5)] == [True] * 4 + [False]
    assert [passed.may_pass("b", "c", size) for _ in range(5)] == [True] * 4 + [False]
    assert 2 * SENDER_BYTES_MAX == WAITING_BYTES_MAX
    assert not passed.may_pass("d", "c", size)
    assert passed.may_pass("d", "e", size)
    passed.taken("c", 1)
    assert [passed.may_pass("a", "c", size) for _ in range(2)] == [True, False]
    passed.link_down("c")
    passed.taken("c", 1)
    assert [passed.may_pass("b", "c", size) for _ in range(5)] == [True] * 4 + [False]


def test_messages_that_the_next_domain_has_are_not_counted_any_more() -> None:
    world = chain()
    for _ in range(3):
        world.send("a", "c", *[bytes(1_000)] * 100)
        world.run(2.0)
        consume(world, "c", "a", 100)
        world.run(2.0)
    counted = world.routed["b"]._passed
    assert len(world.received("c")) == 300
    assert counted._of["a"] < 40 * MESSAGE_BYTES
    assert any(isinstance(decode_hop(payload[len(ROUTED_PREFIX) :]), PassedTaken) for _, _, payload in world.sent)


def test_a_domain_passes_on_no_more_than_may_wait() -> None:
    world = chain()
    payload = encode_hop(Passed("T", ("a", "b", "c"), 1, encode_end(RoutedCarried(LinkId(1, 1), 1, bytes(100_000)))))
    world.sent.clear()
    for _ in range(60):
        world.inject("a", "b", payload)
    assert sum(carried(payload) for _, _, payload in world.sent) == SENDER_BYTES_MAX // 100_300
    world.unlink("bc")
    assert world.routed["b"]._passed._of["a"] == 0


def test_a_path_whose_names_are_too_long_is_not_used() -> None:
    names = [f"{place:03}{'x' * 247}" for place in range(70)]
    shared = Neighbour(frozenset("T"), frozenset("T"))
    paths = TreePaths(RoutingSettings("own", dict.fromkeys(names, shared), "tree"), 1, 0)
    paths._paths["T"] = {names[place]: ("own", *names[: place + 1]) for place in range(70)}
    assert paths.path_by("T", names[60]) is not None
    assert paths.path_by("T", names[69]) is None


def test_every_message_of_the_direct_links_is_consumed() -> None:
    world = chain()
    world.send("a", "c", *[b"x"] * 50)
    world.run(1.005)
    arrived = {name: sum(target == name for _, target, _ in world.sent) for name in "abc"}
    assert all(arrived[name] - world.consumed[name] in (0, 1, 2) for name in "abc")


def announced(origin: str, epoch: int, number: int, *links: str) -> bytes:
    """Return a message with the state of links of a domain."""
    links_of = tuple([AnnouncedLink(each, 1.0, True, True) for each in links])
    return encode_hop(StateAnnounced(wire.encode(LinkState("T", origin, epoch, number, links_of))))


def test_a_state_of_links_from_a_time_to_come_is_ignored() -> None:
    world = chain()
    world.inject("b", "c", announced("a", wire.EPOCH_MAX, 1))
    world.inject("b", "c", announced("c", wire.EPOCH_MAX, 1))
    world.run(SOON_S)
    assert (world.closed, set(world.open_links("c"))) == ([], {"a"})


def test_a_later_life_that_others_know_is_followed() -> None:
    world = chain()
    world.inject("a", "b", announced("c", 256_000, 1))
    world.run(SOON_S)
    world.unlink("bc")
    world.run(SOON_S)
    world.link("bc")
    world.run(SOON_S)
    assert set(world.open_links("a")) == {"c"}


def test_a_senseless_state_of_links_closes_the_link_to_the_domain_that_it_is_of() -> None:
    world = chain()
    world.inject("b", "c", announced("x", 300, 1, "y", "y"))
    assert world.closed == []
    world.inject("b", "c", announced("b", 10_000, 1, "y", "y"))
    assert [name for name, _ in world.closed] == ["c"]


def test_later_lives_that_others_invent_are_followed_rarely() -> None:
    world = chain()
    epochs = [1_000 * each for each in range(1, 15)]
    for each in epochs:
        world.inject("b", "c", announced("c", each, 1))
    followed = world.routed["c"]._paths._epoch
    assert epochs[int(LIVES_AT_ONCE_MAX) - 1] < followed < epochs[int(LIVES_AT_ONCE_MAX) + 1]
    world.run(60.0)
    assert world.routed["c"]._paths._epoch > epochs[-1]
    assert set(world.open_links("c")) == {"a"}


def test_states_of_links_that_come_too_often_close_the_link() -> None:
    world = chain()
    for number in range(int(STATES_AT_ONCE * 3) + 2):
        if world.closed:
            break
        world.inject("b", "c", announced("x", 300, number))
    assert world.closed == [("c", "b: it tells of links too often")]


def test_a_domain_without_trees_says_nothing_of_links_and_ignores_what_others_say() -> None:
    settings = settings_of("abc")
    settings["b"] = settings_of("abc", method="multicast")["b"]
    world = RoutedWorld(settings)
    world.link("ab", "bc")
    world.run(SOON_S)
    assert {source for source, _, _ in world.sent} == {"a", "c"}
    assert (world.closed, world.open_links("a"), world.open_links("c")) == ([], {}, {})
    assert world.consumed["b"] == len(world.sent)


def test_a_link_of_a_domain_that_is_not_in_the_file_is_the_gateways_affair() -> None:
    """Another gateway, whose file has the domain, lends it; no tree has that domain, and none of its messages count."""
    routed = chain("ab").routed["a"]
    for report in (
        ServerLinkOpened(900, "z/g", is_ours=False),
        ServerMessageReceived(900, "z/g", encode_hop(StateAnnounced(b"x"))),
        ServerLinkClosed(900, "z/g", "it failed"),
    ):
        assert routed.at_links(report, 10.0) == [AtGateway(report)]
