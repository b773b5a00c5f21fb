"""Tests of the interest of a domain's own users, as its gateways put it together (SPEC M-02; decision 0161)."""

from __future__ import annotations

import pytest

from wanderbus.broker.messages import DomesticInterestChanged
from wanderbus.channels.hierarchy import Hierarchy
from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.channels.interest.messages import FromSender, InterestPosition, Message, Stream
from wanderbus.errors import RemoteProtocolError
from wanderbus.federation.domestic_interest import DomesticSource, DomesticTable, ReceivedTypes, messages_of
from wanderbus.filters import parse

TYPES = ReceivedTypes({"T", "Child"}, Hierarchy({"Child": "Top"}).lineage)


def subscribed(name: str, subject: str, expression: str = "x > 5") -> DomesticInterestChanged:
    return DomesticInterestChanged({name: ((subject, parse(expression)),)}, ())


def ended(*names: str) -> DomesticInterestChanged:
    return DomesticInterestChanged({}, names)


def subjects(change: InterestChange) -> tuple[list[str], list[str]]:
    """Return the types of the interests that a change adds, and of those that it removes."""
    added, removed = ([str(each.subject) for each in several] for several in (change.added, change.removed))
    return sorted(added), sorted(removed)


class Pair:
    """A server "s2" that tells the gateway "s1" what its users want."""

    def __init__(self) -> None:
        self.source = DomesticSource("s2", ["s1"], TYPES, 7)
        self.table = DomesticTable(["s2"], TYPES)

    def link(self) -> InterestChange:
        return self.exchange([each.message for each in messages_of(self.source.link_up("s1", 0.0))])

    def changed(self, changed: DomesticInterestChanged) -> InterestChange:
        return self.exchange([each.message for each in messages_of(self.source.changed(changed, 0.0))])

    def exchange(self, messages: list[Message]) -> InterestChange:
        """Deliver messages and their answers; return the last change of what the domain wants."""
        change = InterestChange()
        while messages:
            message = messages.pop(0)
            if isinstance(message, FromSender):
                answer, found = self.table.receive("s2", message, 0.0)
                change = found or change
                messages += [] if answer is None else [answer]
            else:
                messages += [each.message for each in messages_of(self.source.receive("s1", message, 0.0))]
        return change


@pytest.mark.parametrize(
    ("subject", "types"),
    [("T", ["T"]), ("Child", ["Child"]), ("Top", ["Child"]), ("*", ["Child", "T"]), ("Other", [])],
)
def test_a_subscription_stands_for_the_types_that_it_may_match(subject: str, types: list[str]) -> None:
    table = DomesticTable([], TYPES)
    assert subjects(table.changed(subscribed("one", subject))) == (types, [])
    assert subjects(table.changed(ended("one"))) == ([], types)


def test_covered_filters_of_different_servers_are_one() -> None:
    pair = Pair()
    pair.link()
    assert subjects(pair.table.changed(subscribed("here", "T", "x > 5"))) == (["T"], [])
    assert not pair.changed(subscribed("there", "T", "x > 7"))
    assert subjects(pair.table.changed(ended("here"))) == (["T"], ["T"])
    assert subjects(pair.changed(ended("there"))) == ([], ["T"])


def test_the_interest_of_a_server_is_known_once_its_stream_is() -> None:
    pair = Pair()
    pair.source.changed(subscribed("early", "T"), 0.0)
    assert [*pair.table.awaited] == ["s2"]
    assert subjects(pair.link()) == (["T"], [])
    assert not pair.table.awaited


def test_a_server_without_interest_is_known_too() -> None:
    pair = Pair()
    pair.link()
    assert not pair.table.awaited


def test_interest_that_changed_without_a_link_is_told_on_the_next_one() -> None:
    pair = Pair()
    pair.link()
    pair.changed(subscribed("one", "T"))
    pair.source.link_down("s1")
    pair.changed(subscribed("two", "Child"))
    pair.changed(ended("one"))
    assert subjects(pair.link()) == (["Child"], ["T"])


def test_a_renewed_subscription_replaces_its_filters() -> None:
    table = DomesticTable([], TYPES)
    table.changed(subscribed("one", "T", "x > 5"))
    assert subjects(table.changed(subscribed("one", "T", "x > 3"))) == (["T"], ["T"])
    assert len(table.wanted()) == 1


def test_a_server_that_tells_the_interest_of_others_is_an_error() -> None:
    table = DomesticTable(["s2", "s3"], TYPES)
    with pytest.raises(RemoteProtocolError, match="interest of others"):
        table.receive("s2", InterestPosition(Stream(0, "s3"), 7, 0), 0.0)
