"""Subscriptions that are confirmed once all domains know them which can be reached (SPEC M-02)."""

from __future__ import annotations

import pytest

from tests.federation.domains import Domains, received
from wanderbus import protocol
from wanderbus.federation import everywhere
from wanderbus.federation.everywhere import WAIT_S, EverywhereAnswers, EverywhereRequests
from wanderbus.federation.everywhere_messages import InterestCounts, Marks
from wanderbus.federation.filter_routing import FilterRouting
from wanderbus.federation.methods.multicast_method import MulticastMethod
from wanderbus.federation.routing_messages import Method, Neighbour, RoutingSettings
from wanderbus.simulation.domains.domain_device import DomainDevice

MARKS: Marks = {"T": ("multicast", 4)}


def subscribe(device: DomainDevice, *, is_everywhere: bool = True) -> None:
    """Request a subscription to everything of one type."""
    device.subscribed += 1
    device.ask(protocol.Subscribe(0, "T", "", None, (), False, everywhere=is_everywhere))


def wait_for_answer(domains: Domains, device: DomainDevice) -> float:
    """Return the time until a subscription of a device is confirmed."""
    begin, waited_s = domains.world.now, 0.0
    while not device.asked:
        waited_s += 0.02
        assert waited_s < 2 * WAIT_S
        domains.world.run(begin + waited_s)
    return waited_s


def slow(domains: Domains, delay_s: float) -> None:
    """Make the links between domains slow."""
    for node in domains.nodes.values():
        for link in node._server_links.values():
            if node._is_foreign(link):
                for each in link._directions.values():
                    each._delay_s = delay_s


@pytest.mark.parametrize("method", ["multicast", "rendezvous"])
@pytest.mark.parametrize("server", ["b1", "b2"])
@pytest.mark.parametrize("is_everywhere", [True, False])
def test_m02_an_event_that_another_domain_accepts_after_the_answer_arrives(
    server: str, method: Method, is_everywhere: bool
) -> None:
    domains = Domains({"alpha": ["a1", "a2"], "beta": ["b1", "b2"], "gamma": ["g1"]}, method=method)
    reader = domains.device(server, "reader")
    publishers = [domains.device(each, f"publisher-{each}") for each in ("a1", "a2", "g1")]
    slow(domains, 0.4)
    subscribe(reader, is_everywhere=is_everywhere)
    assert (wait_for_answer(domains, reader) > 0.4) is is_everywhere
    for each in publishers:
        domains.publish_soon(each, 1)
    domains.wait()
    assert (received(reader) == [1, 1, 1]) is is_everywhere
    assert domains.problems() == []


def test_m02_a_rendezvous_without_a_link_is_not_waited_for() -> None:
    domains = Domains({"alpha": ["a1"], "beta": ["b1", "b2"]}, method="rendezvous")
    reader = domains.device("b2", "reader")
    domains.foreign_links.partition({"alpha/a1": 1})
    domains.wait(60.0)
    reader.subscribed += 1
    reader.ask(protocol.Subscribe(0, "X", "", None, (), False, everywhere=True))
    assert wait_for_answer(domains, reader) < 1.0


def test_m02_a_gateway_that_does_not_know_all_interest_yet_does_not_answer() -> None:
    domains = Domains({"alpha": ["a1"], "beta": ["b1", "b2", "b3"]})
    reader = domains.device("b2", "reader")
    for each in ("b3", "b1"):
        domains.nodes[each].crash(lose_rows=False)
    domains.nodes["b1"].start()
    domains.wait(5.0)
    subscribe(reader)
    assert wait_for_answer(domains, reader) == pytest.approx(WAIT_S, abs=0.5)


def test_m02_a_domain_without_a_link_is_not_waited_for() -> None:
    domains = Domains({"alpha": ["a1"], "beta": ["b1", "b2"], "gamma": ["g1"]})
    reader, publisher = domains.device("b2", "reader"), domains.device("g1", "publisher")
    domains.foreign_links.partition({"alpha/a1": 1})
    domains.wait(60.0)
    subscribe(reader)
    assert wait_for_answer(domains, reader) < 1.0
    domains.publish(publisher, 1)
    assert received(reader) == [1]


def test_m02_a_domain_that_does_not_confirm_is_not_waited_for_any_longer() -> None:
    domains = Domains({"alpha": ["a1"], "beta": ["b1", "b2"]})
    reader = domains.device("b2", "reader")
    slow(domains, 100.0)
    for each in (reader, domains.device("b2", "other")):
        subscribe(each)
        assert wait_for_answer(domains, each) == pytest.approx(WAIT_S, abs=0.5)


def test_m02_a_server_does_not_wait_for_a_gateway_that_is_gone() -> None:
    domains = Domains({"alpha": ["a1"], "beta": ["b1", "b2"]})
    reader = domains.device("b2", "reader")
    slow(domains, 100.0)
    subscribe(reader)
    domains.wait(1.0)
    domains.nodes["b1"].crash(lose_rows=False)
    assert wait_for_answer(domains, reader) < 8.0


def test_m02_without_other_domains_the_answer_comes_at_once() -> None:
    domains = Domains({"beta": ["b1", "b2"]})
    reader = domains.device("b2", "reader")
    subscribe(reader)
    assert wait_for_answer(domains, reader) < 0.5


# At a server -------------------------------------------------------------------------------------------------------


def test_gateways_are_asked_once_they_have_the_interest_of_the_request() -> None:
    requests = EverywhereRequests()
    requests.ask("one", 0.0)
    assert requests.to_ask(None, 9.0, ["b1"]) == []
    assert requests.to_ask(4, 3.0, ["b1"]) == []
    requests.ask("two", 1.0)
    assert requests.to_ask(5, 4.0, ["b1", "b3"]) == [1]
    assert requests.to_ask(5, 4.0, ["b1", "b3"]) == []
    requests.answered("b1", 1)
    requests.answered("b1", 2)
    requests.answered("b1", 7)
    assert (requests.done(2.0), requests.given_up_at) == ((), WAIT_S)
    requests.gone("b3")
    assert (requests.done(2.0), requests.given_up_at) == (("one",), 1.0 + WAIT_S)
    assert requests.done(1.0 + WAIT_S) == ("two",)


# At a gateway ------------------------------------------------------------------------------------------------------


def test_a_request_is_answered_once_its_interest_counts() -> None:
    answers = EverywhereAnswers()
    answers.asked(7, 1)
    assert answers.to_answer(lambda: None, lambda marks: True) == []
    assert answers.to_answer(lambda: MARKS, lambda marks: False) == []
    later: Marks = {"T": ("multicast", 5)}
    answers.asked(8, 3)
    assert answers.to_answer(lambda: later, lambda marks: marks == MARKS) == [InterestCounts(7, 1)]
    answers.forget()
    assert answers.to_answer(lambda: MARKS, lambda marks: marks == later) == []
    assert answers.to_answer(lambda: MARKS, lambda marks: marks == MARKS) == [InterestCounts(8, 3)]


def test_the_first_request_is_forgotten_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everywhere, "ASKED_MAX", 1)
    answers = EverywhereAnswers()
    answers.asked(7, 1)
    answers.asked(7, 2)
    assert answers.to_answer(lambda: MARKS, lambda marks: True) == [InterestCounts(7, 2)]


def test_nothing_counts_while_a_change_takes_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = RoutingSettings("beta", {"alpha": Neighbour(frozenset({"T"}), frozenset())}, "multicast")
    routing = FilterRouting(settings, epoch=1)
    assert routing.marks() is not None
    monkeypatch.setattr(MulticastMethod, "is_settled", False)
    assert routing.marks() is None


def test_requests_are_asked_again_under_other_numbers_where_a_part_has_begun_again() -> None:
    """An answer that was on its way answers what the former part was asked."""
    requests = EverywhereRequests()
    requests.ask("one", 0.0)
    (number,) = requests.to_ask(1, 1, ["b1"])
    requests.ask_again()
    (again,) = requests.to_ask(1, 1, ["b1"])
    requests.answered("b1", number)
    assert requests.done(1.0) == ()
    requests.answered("b1", again)
    assert requests.done(1.0) == ("one",)
