"""Tests of events that cross from domain to domain, with real brokers and gateways (SPEC M-01, M-02, S-01)."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise

import msgspec
import pytest

from tests.federation.domains import Domains, received
from wanderbus.federation.gateway_choice import SWITCH_S
from wanderbus.federation.routing_messages import Method
from wanderbus.federation.wire import EventForwarded, EventsTaken, decode
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.subscription import QueuePolicy

THREE = {"alpha": ["a1", "a2"], "beta": ["b1"], "gamma": ["g1", "g2"]}


METHODS: tuple[Method, ...] = ("multicast", "rendezvous", "tree")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("decentralised", [(), ("alpha",), ("beta", "gamma"), ("alpha", "beta", "gamma")])
def test_m05_an_event_reaches_who_wants_it_in_every_domain_once_and_in_order(
    decentralised: tuple[str, ...], method: Method
) -> None:
    domains = Domains(THREE, decentralised=decentralised, method=method)
    readers = [
        domains.subscriber(server, f"reader-{server}", "T", "x > 2") for server in ("a1", "a2", "b1", "g1", "g2")
    ]
    publisher = domains.device("a2", "publisher")
    domains.publish(publisher, *range(10))
    assert [received(each) for each in readers] == [list(range(3, 10))] * 5
    assert domains.problems() == []


@pytest.mark.parametrize("method", METHODS)
def test_only_what_is_wanted_crosses(method: Method) -> None:
    domains = Domains(THREE, method=method)
    domains.subscriber("b1", "reader", "T", "x == 3")
    domains.publish(domains.device("a1", "publisher"), *range(10))
    rows = domains.nodes["a1"].member.rows()
    assert (rows["beta"]["sent"], rows["gamma"]["sent"]) == (1, 0)
    assert domains.nodes["b1"].member.rows()["alpha"]["published"] == 1


def test_a_burst_of_events_is_acknowledged_to_its_domain_with_few_messages() -> None:
    sent: list[bytes] = []
    domains = Domains({"alpha": ["a1"], "beta": ["b1"]}, on_sent=sent.append)
    reader = domains.subscriber("b1", "reader")
    publisher = domains.device("a1", "publisher")
    sent.clear()
    for number in range(40):
        domains.publish_soon(publisher, number)
    domains.wait()
    assert received(reader) == list(range(40))
    kinds = Counter(type(decode(each)) for each in sent)
    assert kinds[EventForwarded] == 40
    assert 1 <= kinds[EventsTaken] <= 10
    assert domains.problems() == []


def test_an_event_of_one_domain_is_not_passed_on_by_another() -> None:
    domains = Domains(THREE)
    for server in ("a1", "b1", "g1"):
        domains.subscriber(server, f"reader-{server}")
    domains.publish(domains.device("b1", "publisher"), 1)
    sent = {name: [row["sent"] for row in domains.nodes[name].member.rows().values()] for name in ("a1", "b1", "g1")}
    assert sent == {"a1": [0, 0], "b1": [1, 1], "g1": [0, 0]}


@pytest.mark.parametrize(
    "shared",
    [
        {("alpha", "beta"): frozenset({"U"}), ("beta", "alpha"): frozenset({"T"})},
        {},
    ],
)
def test_m01_a_type_that_is_not_shared_does_not_cross(shared: dict[tuple[str, str], frozenset[str]]) -> None:
    domains = Domains({"alpha": ["a1"], "beta": ["b1"]}, shared=shared)
    reader = domains.subscriber("b1", "reader", "*")
    domains.publish(domains.device("a1", "publisher"), 1, 2)
    assert received(reader) == []
    assert domains.problems() == []


def test_a_subscription_to_a_parent_gets_the_shared_types_below_it() -> None:
    shared = {("alpha", "beta"): frozenset({"T"})}
    domains = Domains({"alpha": ["a1"], "beta": ["b1", "b2"]}, shared=shared, parents={"T": "Top", "U": "Top"})
    readers = [domains.subscriber("b2", "reader", "Top"), domains.subscriber("b1", "other", "*")]
    publisher = domains.device("a1", "publisher")
    domains.publish(publisher, 1, subject="T")
    domains.publish(publisher, 2, subject="U")
    assert [received(each) for each in readers] == [[1], [1]]


def test_a_child_of_a_shared_type_stays_at_home() -> None:
    shared = {("alpha", "beta"): frozenset({"T"})}
    domains = Domains({"alpha": ["a1"], "beta": ["b1"]}, shared=shared, parents={"Child": "T"})
    reader = domains.subscriber("b1", "reader", "T")
    publisher = domains.device("a1", "publisher")
    domains.publish(publisher, 1, subject="Child")
    domains.publish(publisher, 2, 3, subject="T")
    domains.publish(publisher, 4, subject="Child")
    assert received(reader) == [2, 3]
    assert domains.nodes["a1"].member.rows()["beta"]["sent"] == 2
    session = domains.nodes["a1"].broker.state.sessions_of("sip:beta@domains.alpha")[0]
    assert session.waiting == 0


@pytest.mark.parametrize("method", METHODS)
def test_interest_goes_with_the_last_subscription(method: Method) -> None:
    domains = Domains({"alpha": ["a1", "a2"], "beta": ["b1"]}, method=method)
    reader = domains.subscriber("b1", "reader")
    assert domains.nodes["a1"].member.rows()["beta"]["filters"] == 2
    reader.unsubscribe_all()
    domains.wait()
    assert domains.nodes["a1"].member.rows()["beta"]["filters"] == 0
    domains.publish(domains.device("a2", "publisher"), 1)
    assert domains.nodes["a1"].member.rows()["beta"]["sent"] == 0


def test_events_wait_while_a_domain_is_away() -> None:
    domains = Domains({"alpha": ["a1"], "beta": ["b1"]})
    reader, publisher = domains.subscriber("b1", "reader"), domains.device("a1", "publisher")
    domains.foreign_links.partition({"alpha/a1": 1})
    domains.publish(publisher, *range(20))
    assert received(reader) == []
    domains.foreign_links.partition({})
    domains.wait()
    assert received(reader) == list(range(20))


@pytest.mark.parametrize(("alpha", "beta"), [(2, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize("other", ["beta", "aaa"], ids=["opened here", "opened there"])
def test_another_gateway_has_the_link_that_the_first_one_cannot_have(other: str, alpha: int, beta: int) -> None:
    """The first gateway of alpha does not reach the other domain; the one with the lower name opens the links."""
    mine, theirs = [f"a{each}" for each in range(1, alpha + 1)], [f"b{each}" for each in range(1, beta + 1)]
    domains = Domains({"alpha": mine, other: theirs}, gateways={"alpha": mine, other: theirs})
    reader, publisher = domains.subscriber("b1", "reader"), domains.device("a1", "publisher")
    back, there = domains.subscriber("a1", "back", "U"), domains.device("b1", "publisher")

    def publish(number: int) -> None:
        domains.publish_soon(publisher, number)
        domains.publish_soon(there, number, "U")

    publish(0)
    domains.wait()
    domains.foreign_links.partition({"alpha/a1": 1})
    for number in range(1, 20):
        domains.world.after(number / 2, partial(publish, number))
    domains.wait(10.0 + (beta + 1) * SWITCH_S)
    assert received(reader) == received(back) == list(range(20))
    domains.foreign_links.partition({})
    domains.foreign_links.break_some()
    publish(20)
    domains.wait()
    assert received(reader) == received(back) == list(range(21))
    assert domains.problems() == []


@pytest.mark.parametrize("server", ["a1", "b1"])
def test_a_gateway_that_crashes_loses_and_repeats_nothing(server: str) -> None:
    domains = Domains({"alpha": ["a1", "a2"], "beta": ["b1", "b2"]})
    reader, publisher = domains.subscriber("b2", "reader"), domains.device("a2", "publisher")
    for number in range(0, 40, 4):
        for one in range(number, number + 4):
            domains.world.after(one / 50, lambda one=one: domains.publish_soon(publisher, one))  # type: ignore[misc]
    domains.wait(0.4)
    domains.nodes[server].crash(lose_rows=False)
    domains.wait(1.0)
    domains.nodes[server].start()
    domains.wait(60.0)
    assert received(reader) == list(range(40))
    assert domains.problems() == []


def test_the_next_gateway_takes_over() -> None:
    gateways = {"alpha": ["a1", "a2"], "beta": ["b1", "b2"]}
    domains = Domains({"alpha": ["a1", "a2", "a3"], "beta": ["b1", "b2", "b3"]}, gateways=gateways)
    reader, publisher = domains.subscriber("b3", "reader"), domains.device("a3", "publisher")
    domains.publish(publisher, 1, 2)
    for server in ("a1", "b1"):
        domains.nodes[server].crash(lose_rows=False)
    domains.publish(publisher, 3, 4)
    assert domains.nodes["b2"].member.rows()["alpha"]["is_linked"]
    for server in ("a1", "b1"):
        domains.nodes[server].start()
    domains.wait()
    domains.publish(publisher, 5, 6)
    domains.wait(60.0)
    assert received(reader) == [1, 2, 3, 4, 5, 6]
    assert domains.problems() == []


def test_a_gateway_with_fewer_lives_takes_over() -> None:
    domains = Domains({"alpha": ["a1", "a2"], "beta": ["b1"]}, gateways={"alpha": ["a1", "a2"]})
    former, reader = domains.subscriber("a2", "former", "U"), domains.subscriber("a2", "reader", "T", "x > 3")
    for _ in range(3):
        domains.nodes["a1"].crash(lose_rows=False)
        domains.nodes["a1"].start()
        domains.wait()
    domains.nodes["a1"].crash(lose_rows=False)
    former.unsubscribe_all()
    domains.wait()
    publisher = domains.device("b1", "publisher")
    domains.publish(publisher, 1, 4, 5)
    assert received(reader) == [4, 5]
    assert domains.nodes["b1"].member.rows()["alpha"]["filters"] == 1
    domains.nodes["a1"].start()
    domains.wait()
    domains.publish(publisher, 6)
    assert received(reader) == [4, 5, 6]
    assert domains.nodes["b1"].member.rows()["alpha"]["filters"] == 1
    assert domains.problems() == []


def test_filters_of_a_domain_stay_until_its_gateway_knows_all_interest_again() -> None:
    domains = Domains({"alpha": ["a1", "a2"], "beta": ["b1", "b2"]})
    reader, publisher = domains.subscriber("b2", "reader"), domains.device("a2", "publisher")
    for server in ("a1", "b1", "b2"):
        domains.nodes[server].crash(lose_rows=False)
    for server in ("a1", "b1"):
        domains.nodes[server].start()
    domains.wait()
    assert domains.nodes["b1"].member.rows()["alpha"]["awaited"] == ["b2"]
    domains.publish(publisher, 1, 2, 3)
    domains.nodes["b2"].start()
    domains.wait(60.0)
    assert received(reader) == [1, 2, 3]
    assert domains.problems() == []


SPLIT = {"alpha": ["a1"], "beta": ["b1", "b2", "b3"], "gamma": ["g1"]}


@pytest.mark.parametrize("method", METHODS)
def test_gateways_of_a_domain_act_as_one_if_other_domains_reach_different_ones(method: Method) -> None:
    """Alpha is the rendezvous of X, and gamma that of T and U; each reaches another gateway of beta."""
    domains = Domains(SPLIT, gateways={"beta": ["b1", "b2"]}, method=method)
    former = domains.subscriber("a1", "former", "T")
    domains.foreign_links.separate([("beta/b1", "alpha/a1")])
    domains.wait(60.0)
    subjects, servers = ("T", "U", "X"), ("a1", "b3", "g1")
    readers = [
        domains.subscriber(server, f"{server}-{subject}", subject, "x > 1")
        for subject in subjects
        for server in servers
    ]
    publishers = [domains.device(server, f"publisher-{server}") for server in servers]
    for publisher in publishers:
        for subject in subjects:
            domains.publish(publisher, 1, 2, 3, subject=subject)
    assert [sorted(received(each)) for each in readers] == [[2, 2, 2, 3, 3, 3]] * 9
    assert received(former) == [1, 2, 3] * 3
    assert domains.problems() == []


@pytest.mark.parametrize("method", METHODS)
def test_a_gateway_that_takes_over_again_forgets_what_it_knew(method: Method) -> None:
    """The rendezvous of both types is gamma, from which the second gateway hears nothing the second time."""
    domains = Domains(SPLIT, gateways={"beta": ["b2", "b3"]}, method=method)
    subjects = ("T", "U")
    for subject in subjects:
        domains.subscriber("a1", f"former-{subject}", subject, "x > 5")
    domains.nodes["b2"].crash(lose_rows=False)
    domains.wait(30.0)
    assert domains.nodes["b3"].member.rows()["alpha"]["is_known"]
    domains.nodes["b2"].start()
    domains.wait(30.0)
    readers = [domains.subscriber("a1", f"reader-{subject}", subject, "x < 3") for subject in subjects]
    publisher = domains.device("b1", "publisher")
    domains.foreign_links.separate([("beta/b3", "gamma/g1")])
    domains.nodes["b2"].crash(lose_rows=False)
    domains.wait(30.0)
    for subject in subjects:
        domains.publish(publisher, 1, 2, 3, subject=subject)
    domains.nodes["b2"].start()
    domains.wait(60.0)
    assert [received(each) for each in readers] == [[1, 2]] * len(subjects)
    assert domains.problems() == []


def restarted_with(domains: Domains, server: str, method: Method) -> None:
    """Restart a server whose file now has another method for all types."""
    node = domains.nodes[server]
    node.crash(lose_rows=False)
    routing = msgspec.structs.replace(node.parameters.routing, method=method)
    node.parameters = msgspec.structs.replace(node.parameters, routing=routing)
    node.start()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("away", ["alpha/a1", "gamma/g1"])
def test_m05_a_start_with_another_method_loses_no_event(away: str, method: Method) -> None:
    """The rendezvous is gamma. Neither does the former way end early, nor does the new way count for it."""
    domains = Domains(SPLIT, method=next(each for each in METHODS if each != method))
    reader, publisher = domains.subscriber("b3", "reader", "T"), domains.device("a1", "publisher")
    domains.foreign_links.separate([("beta/b1", away)])
    restarted_with(domains, "b1", method)
    domains.wait()
    domains.publish(publisher, 1)
    domains.foreign_links.separate([])
    domains.wait(60.0)
    domains.publish(publisher, 2)
    domains.foreign_links.separate([("alpha/a1", "gamma/g1")])
    domains.nodes["a1"].crash(lose_rows=False)
    domains.nodes["a1"].start()
    domains.wait()
    publisher = domains.device("a1", "other")
    domains.publish(publisher, 3)
    domains.foreign_links.separate([])
    domains.wait(60.0)
    assert received(reader) == [1, 2, 3]
    assert domains.problems() == []


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("domain", ["alpha", "beta"])
def test_words_of_other_domains_wait_until_all_interest_is_known(domain: str, method: Method) -> None:
    domains = Domains({"alpha": ["a1", "a2"], "beta": ["b1", "b2"]}, method=method)
    readers = {subject: domains.subscriber("b2", f"reader-{subject}", subject) for subject in ("T", "X")}
    publisher = domains.device("a2", "publisher")
    first, second = domains.domains[domain]
    for server in (first, second):
        domains.nodes[server].crash(lose_rows=False)
    domains.nodes[first].start()
    domains.wait(10.0)
    assert next(iter(domains.nodes[first].member.rows().values()))["awaited"] == [second]
    domains.nodes[second].start()
    domains.wait(60.0)
    for subject in readers:
        domains.publish(publisher, 1, 2, subject=subject)
    assert {subject: received(each) for subject, each in readers.items()} == {"T": [1, 2], "X": [1, 2]}
    assert domains.problems() == []


def lossy(servers: dict[str, list[str]]) -> Domains:
    """Domains of which one loses all but three events that wait for the other; only ``T`` and ``U`` are shared."""
    queue = QueuePolicy(notifications_max=3, bytes_max=2**20, when_full="drop_oldest")
    config = BrokerConfig(sweep_s=None, federated=True, queue=queue)
    shared = {("alpha", "beta"): frozenset({"T"}), ("beta", "alpha"): frozenset({"T", "U"})}
    return Domains(servers, config=config, shared=shared)


@pytest.mark.parametrize("server", ["b1", "b2"])
def test_m01_users_at_every_server_read_a_gap_for_what_another_domain_has_lost(server: str) -> None:
    domains = lossy({"alpha": ["a1"], "beta": ["b1", "b2"]})
    reader, every = domains.subscriber(server, "reader"), domains.subscriber(server, "every", "*")
    other = domains.subscriber(server, "other", "U")
    publisher = domains.device("a1", "publisher")
    domains.publish(publisher, 0)
    domains.foreign_links.partition({"alpha/a1": 1})
    domains.publish(publisher, *range(1, 10))
    domains.foreign_links.partition({})
    domains.wait()
    assert sorted(received(reader)) == sorted(received(every)) == [-1, 0, 7, 8, 9]
    assert received(other) == []
    (gap,) = [item for items in reader.items.values() for item in items if item.id is None]
    assert "domain_events_lost" in gap.text
    assert len(domains.nodes["b2"].lost) == len(domains.nodes["b1"].lost) == 1


def test_the_link_that_published_for_a_domain_is_forgotten_with_the_link_to_the_domain() -> None:
    domains = Domains({"alpha": ["a1"], "beta": ["b1"]})
    reader = domains.subscriber("b1", "reader")
    publisher = domains.device("a1", "publisher")
    for number in range(4):
        domains.publish(publisher, number)
        domains.foreign_links.break_some()
        domains.wait()
    domains.publish(publisher, 4)
    assert received(reader) == list(range(5))
    gateway = domains.nodes["b1"].member._gateway
    assert gateway is not None
    assert list(gateway._publishing.values()) == ["alpha"]


FOUR = {"alpha": ["a1"], "beta": ["b1"], "gamma": ["g1"], "delta": ["d1"]}
CHAIN = ("beta", "alpha", "delta", "gamma")
"""Domains of which each has a link to the next one alone."""


def messages_of_a_move(method: Method) -> int:
    """Return the number of messages on links after a user has come to another domain and left the former one."""
    sent: list[bytes] = []
    linked = {frozenset(each) for each in pairwise(CHAIN)}
    pairs = {frozenset((one, other)) for one in FOUR for other in FOUR if one != other}
    domains = Domains(FOUR, method=method, apart=pairs - linked if method == "tree" else (), on_sent=sent.append)
    former = domains.subscriber("b1", "former", "T", "x == 3")
    probes = len(sent)
    domains.wait(40.0)
    probes = len(sent) - probes
    sent.clear()
    domains.device("g1", "present").subscribe("T", "x == 3")
    domains.wait(19.0)
    former.unsubscribe_all()
    domains.wait()
    assert domains.problems() == []
    return len(sent) - probes


def test_m04_a_move_costs_more_messages_than_with_a_rendezvous() -> None:
    assert messages_of_a_move("tree") > messages_of_a_move("rendezvous")
