"""Tests of causal order between small domains: how they agree, and the order in which answers come (SPEC K-06)."""

from __future__ import annotations

from tests.federation.domains import Domains, received
from wanderbus.broker.state.decentralised_state import decode_past, encode_past
from wanderbus.channels.causal.domain_past import CAUSE_WAIT_S, decode_domain_past
from wanderbus.federation.gateway_choice import link_name

THREE = {"alpha": ["a1", "a2"], "beta": ["b1", "b2"], "gamma": ["g1"]}


def causal(*pairs: tuple[str, str]) -> Domains:
    """Return three decentralised domains; those of each pair ask for causal order, the first with the second."""
    domains = Domains(THREE, decentralised=tuple(THREE))
    ask(domains, *pairs)
    return domains


def ask(domains: Domains, *pairs: tuple[str, str]) -> None:
    """Let the files of the domains say that these pairs ask for causal order."""
    domains.causal = set(pairs)
    for name, servers in domains.domains.items():
        for server in servers:
            domains.nodes[server].change_federation(domains.parameters(name, server))
    domains.wait()


EACH = tuple((one, other) for one in THREE for other in THREE if one != other)


def order(domains: Domains, server: str, domain: str) -> str:
    return str(domains.nodes[server].member.rows()[domain]["order"])


def test_agreement_of_both_domains_as_each_of_them_sees_it() -> None:
    domains = causal(("alpha", "beta"), ("beta", "alpha"), ("alpha", "gamma"))
    assert (order(domains, "a1", "beta"), order(domains, "b1", "alpha")) == ("causal", "causal")
    assert (order(domains, "a1", "gamma"), order(domains, "g1", "alpha")) == ("asked here", "asked there")
    assert order(domains, "b1", "gamma") == ""
    ask(domains, ("gamma", "alpha"), ("alpha", "gamma"))
    assert (order(domains, "a1", "beta"), order(domains, "b1", "alpha")) == ("", "")
    assert (order(domains, "a1", "gamma"), order(domains, "g1", "alpha")) == ("causal", "causal")
    assert domains.problems() == []


def answered_on_the_shorter_way(domains: Domains, cut_s: float) -> list[int]:
    """Let beta answer an event of alpha while alpha and gamma are apart; return what comes to gamma."""
    domains.subscriber("b2", "asked")
    reader = domains.subscriber("g1", "reader")
    publisher, answering = domains.device("a2", "publisher"), domains.device("b2", "answering")
    domains.foreign_links.separate([(link_name("alpha", "a1"), link_name("gamma", "g1"))])
    domains.wait(5.0)
    domains.publish_soon(publisher, 1)
    domains.wait(1.0)
    domains.publish_soon(answering, 2)
    domains.world.after(cut_s, lambda: domains.foreign_links.separate(()))
    domains.wait(60.0)
    assert domains.problems() == []
    return received(reader)


def test_an_answer_that_comes_before_its_cause() -> None:
    assert answered_on_the_shorter_way(causal(), 3.0) == [2, 1], "nobody asks for an order"
    assert answered_on_the_shorter_way(causal(*EACH), 3.0) == [1, 2]


def test_an_answer_whose_cause_is_late_does_not_wait_for_it() -> None:
    domains = causal(*EACH)
    assert answered_on_the_shorter_way(domains, CAUSE_WAIT_S + 5.0) == [2, 1]
    assert domains.nodes["g1"].member.rows()["beta"]["unordered"] == 1


def test_causal_order_that_begins_and_ends_while_servers_run() -> None:
    domains = causal()
    ask(domains, *EACH)
    assert answered_on_the_shorter_way(domains, 3.0) == [1, 2]
    domains = causal(*EACH)
    ask(domains)
    assert answered_on_the_shorter_way(domains, 3.0) == [2, 1]


def test_the_past_is_for_domains_that_ask_for_order() -> None:
    sent: list[bytes] = []
    domains = Domains(THREE, decentralised=tuple(THREE), on_sent=sent.append)
    ask(domains, ("alpha", "beta"), ("beta", "alpha"))
    domains.subscriber("g1", "reader")
    publisher = domains.device("a2", "publisher")
    sent.clear()
    domains.publish(publisher, 1)
    assert any(b"Uid" in each for each in sent)
    assert not any(b"past" in each for each in sent)
    domains.subscriber("b2", "reader")
    sent.clear()
    domains.publish(publisher, 2)
    assert any(b"past" in each for each in sent)


def test_an_event_that_crosses_comes_to_the_gateway_here() -> None:
    domains = causal(*EACH)
    domains.subscriber("b2", "reader")
    publisher = domains.device("a2", "publisher")
    domains.publish(publisher, 1)
    state = domains.nodes["a1"].broker.state
    assert state.decentralised.seen["a2"].id.origin == "a2", "nobody there has subscribed"
    domains.publish(publisher, 1, subject="U")
    assert state.decentralised.seen["a2"].id < domains.nodes["a2"].broker.state.next_id
    assert domains.problems() == []


def test_the_past_of_a_session_that_moves_within_its_domain() -> None:
    domains = causal(*EACH)
    domains.subscriber("b2", "asked")
    domains.subscriber("g1", "reader")
    domains.publish_soon(domains.device("a2", "publisher"), 1)
    domains.wait(1.0)
    here, there = (domains.nodes[each].broker.state for each in ("b2", "b1"))
    exported = encode_past(here.decentralised, here.wall_us)
    assert decode_domain_past(decode_past(exported).domains).causes
    done: list[bool] = []
    node = domains.nodes["b1"]
    while there.decentralised.domain_pasts.causes("beta", THREE, there.wall_us):
        domains.wait(CAUSE_WAIT_S + 1.0)
        domains.publish(domains.device("b1", "local"), 9, subject="X")
    decentralised = node.broker._peers.decentralised
    assert decentralised is not None
    decentralised.after_past("b2", decode_past(exported), lambda: done.append(True))
    assert done == [True]
    found = there.decentralised.domain_pasts.causes("beta", THREE, there.wall_us)
    assert [each.origin for each in found] == ["alpha/a2"]
