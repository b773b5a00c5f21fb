"""Changes of the federation file while servers run and events flow (SPEC M-01, M-05; decision 0169)."""

from __future__ import annotations

from functools import partial

import pytest

from tests.federation.domains import TYPES, Domains, received
from wanderbus.federation.routing_messages import Method

TWO = {"alpha": ["a1", "a2"], "beta": ["b1", "b2"]}
THREE = {**TWO, "gamma": ["g1"]}
GATEWAYS = {"alpha": ["a1", "a2"], "beta": ["b1", "b2"]}


def changed(domains: Domains, *names: str, pause_s: float = 0.0) -> None:
    """Let all servers of these domains read the files again, one after the other."""
    for name in names:
        for server in domains.domains[name]:
            domains.nodes[server].change_federation(domains.parameters(name, server))
            domains.wait(pause_s)


def publish_during(domains: Domains, server: str, *names: str) -> list[int]:
    """Let a device publish all the time while the servers of these domains read their files again; return what."""
    device = domains.device(server, "everywhere")
    for number in range(60):
        domains.world.after(0.2 * number, partial(domains.publish_soon, device, number))
    domains.wait(2.0)
    changed(domains, *names, pause_s=1.5)
    domains.wait(60.0)
    return list(range(60))


@pytest.mark.parametrize("method", ["multicast", "rendezvous"])
def test_m05_a_method_that_changes_while_events_flow(method: Method) -> None:
    other: Method = "rendezvous" if method == "multicast" else "multicast"
    domains = Domains(THREE, gateways=GATEWAYS, method=other)
    readers = [domains.subscriber(each, "reader") for each in ("b1", "b2", "g1")]
    domains.method = method
    published = publish_during(domains, "a2", *THREE)
    assert [received(each) for each in readers] == [published] * 3
    assert domains.problems() == []


def test_m01_a_domain_that_is_added_while_events_flow() -> None:
    domains = Domains(THREE, gateways=GATEWAYS, shared=dict.fromkeys([("alpha", "beta"), ("beta", "alpha")], TYPES))
    near = domains.subscriber("b2", "reader")
    far = domains.subscriber("g1", "reader")
    domains.shared = None
    assert received(near) == []
    published = publish_during(domains, "a1", *THREE)
    assert received(near) == published
    some = received(far)
    assert some == published[-len(some) :]
    assert some, "gamma receives what comes after the change"
    assert domains.problems() == []


def test_m01_a_domain_that_is_removed_while_events_flow_and_added_again() -> None:
    domains = Domains(THREE, gateways=GATEWAYS)
    near, far = (domains.subscriber(each, "reader") for each in ("b2", "g1"))
    domains.absent = {"gamma"}
    published = publish_during(domains, "a1", "alpha", "beta")
    assert received(near) == published
    some = received(far)
    assert some == published[: len(some)]
    assert len(some) < len(published)
    assert "gamma" not in domains.nodes["a1"].member.rows()
    domains.absent = set()
    changed(domains, "alpha", "beta")
    domains.wait(60.0)
    domains.publish(domains.device("a2", "other"), 100)
    assert received(near)[-1] == received(far)[-1] == 100
    assert domains.problems() == []


def test_m01_a_type_that_is_not_sent_any_more_ends_at_once() -> None:
    domains = Domains(TWO, gateways=GATEWAYS)
    reader = domains.subscriber("b2", "reader")
    publisher = domains.device("a2", "publisher")
    domains.publish(publisher, 1)
    domains.shared = {("beta", "alpha"): TYPES, ("alpha", "beta"): TYPES - {"T"}}
    changed(domains, "alpha")
    domains.publish(publisher, 2)
    assert received(reader) == [1]
    changed(domains, "beta")
    domains.shared = None
    changed(domains, "alpha", "beta")
    domains.wait()
    domains.publish(publisher, 3)
    assert received(reader) == [1, 3]
    assert domains.problems() == []


def test_a_request_that_waits_until_a_subscription_counts_everywhere_survives_a_change() -> None:
    domains = Domains(TWO, gateways=GATEWAYS)
    device = domains.device("b2", "reader")
    domains.foreign_links.separate([("alpha/a1", "beta/b1")])
    device.subscribe("T", "")
    domains.wait(1.0)
    changed(domains, "beta")
    domains.foreign_links.separate([])
    domains.wait(30.0)
    domains.publish(domains.device("a1", "publisher"), 1)
    assert received(device) == [1]
    assert domains.problems() == []
