"""Tests of interest that a later life sends as a whole, under other numbers (SPEC M-01, M-02)."""

from __future__ import annotations

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.messages import InterestChanged, InterestWhole, NumberedFilter, Stream
from wanderbus.federation.domestic_interest import DomesticTable, ReceivedTypes
from wanderbus.federation.filter_routing import FilterRouting
from wanderbus.federation.methods.wire import carried
from wanderbus.federation.routing_messages import (
    DomainLinked,
    DomainMessage,
    Neighbour,
    RoutingFailed,
    RoutingSettings,
    WantedByDomain,
)

T = frozenset({"T"})
OF_SERVER, OF_DOMAIN = Stream(0, "a2"), Stream(0, "beta")


def routing() -> FilterRouting:
    machine = FilterRouting(RoutingSettings("alpha", {"beta": Neighbour(T, T)}), epoch=1)
    machine.step([DomainLinked("beta")], 0.0)
    return machine


def wanted(machine: FilterRouting, *messages: InterestWhole | InterestChanged) -> tuple[int, int, list[str]]:
    """Return the number of interests that a domain gains and loses by messages, and the reasons of failures."""
    outputs = machine.step([DomainMessage("beta", carried("multicast", each)) for each in messages], 1.0)
    changes = [each.change for each in outputs if isinstance(each, WantedByDomain)]
    return (
        sum(len(each.added) for each in changes),
        sum(len(each.removed) for each in changes),
        [each.reason for each in outputs if isinstance(each, RoutingFailed)],
    )


def test_end_of_a_filter_that_a_later_life_of_a_domain_has_sent_under_another_number() -> None:
    machine = routing()
    assert wanted(machine, InterestWhole(OF_DOMAIN, 1, 1, (NumberedFilter(1, "T", "x > 1"),))) == (1, 0, [])
    assert wanted(machine, InterestWhole(OF_DOMAIN, 2, 1, (NumberedFilter(7, "T", "x > 1"),))) == (0, 0, [])
    assert wanted(machine, InterestChanged(OF_DOMAIN, 2, 2, 1, (), (7,))) == (0, 1, [])
    assert machine.wanted_by("beta") == []


def test_end_of_a_filter_that_a_later_life_of_a_server_has_sent_under_another_number() -> None:
    table = DomesticTable(["a2"], ReceivedTypes(T, lambda subject: (subject,)))
    table.receive("a2", InterestWhole(OF_SERVER, 1, 1, (NumberedFilter(1, "T", "x > 1"),)), 0.0)
    _, change = table.receive("a2", InterestWhole(OF_SERVER, 2, 1, (NumberedFilter(7, "T", "x > 1"),)), 1.0)
    assert not change
    _, change = table.receive("a2", InterestChanged(OF_SERVER, 2, 2, 1, (), (7,)), 2.0)
    assert [each.subject for each in change.removed] == ["T"]
    assert table.wanted() == list[Interest]()


def test_a_repeated_change_is_no_failure() -> None:
    machine = routing()
    change = InterestChanged(OF_DOMAIN, 1, 2, 1, (NumberedFilter(2, "T", "x > 2"),), ())
    whole = InterestWhole(OF_DOMAIN, 1, 1, (NumberedFilter(1, "T", "x < 1"),))
    assert wanted(machine, whole, change) == (2, 0, [])
    assert wanted(machine, change) == (0, 0, [])


def test_a_change_of_a_later_life_with_a_number_of_the_former_one_is_no_failure() -> None:
    machine = routing()
    assert wanted(machine, InterestWhole(OF_DOMAIN, 1, 1, (NumberedFilter(1, "T", "x < 1"),))) == (1, 0, [])
    assert wanted(machine, InterestChanged(OF_DOMAIN, 2, 2, 1, (NumberedFilter(1, "T", "x > 2"),), ())) == (0, 0, [])
