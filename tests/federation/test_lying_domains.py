"""A foreign domain that lies harms itself: neither this domain nor third ones lose or repeat anything.

What each lie can do is in docs/SECURITY.md.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from tests.federation.domains import Domains, received
from wanderbus import protocol
from wanderbus.channels.interest.messages import (
    InterestChanged,
    InterestRefused,
    InterestWhole,
    NumberedFilter,
    Stream,
)
from wanderbus.event import Event, EventId
from wanderbus.federation.methods.filter_bounds import FILTERS_MAX
from wanderbus.federation.methods.wire import EPOCH_MAX, LINK_STATES_MAX, LinkState, StreamCarried, TreeAdopted
from wanderbus.federation.methods.wire import encode as encode_filters
from wanderbus.federation.routing_messages import Method
from wanderbus.federation.wire import EventForwarded, EventsLost, EventsTaken, FiltersBegun, FiltersSent, decode, encode
from wanderbus.limits import NUMBER_MAX
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.simulation.domains.links import DomainLink
from wanderbus.subscription import QueuePolicy

THREE: Final = {"alpha": ["a1"], "beta": ["b1", "b2"], "gamma": ["g1"]}
METHODS: Final[tuple[Method, ...]] = ("multicast", "rendezvous")


class Neighbourhood(Domains):
    """Three domains of which alpha lies, with a reader in each and a publisher of beta and of gamma."""

    def __init__(self, method: Method = "multicast", config: BrokerConfig | None = None) -> None:
        super().__init__(THREE, method=method, config=config)
        self.readers = [self.subscriber(server, f"reader-{server}") for server in ("a1", "b2", "g1")]
        self.publishers = [self.device(server, f"publisher-{server}") for server in ("b2", "g1")]
        self._number = 0
        self.published: list[int] = []

    def link(self, source: str, target: str) -> DomainLink:
        """Return the newest link between gateways of two domains."""
        ends = {self.nodes[source], self.nodes[target]}
        return [each for each in self.nodes[target]._server_links.values() if {each.source, each.target} == ends][-1]

    def say(self, *payloads: bytes, to: str = "b1", seconds: float = 5.0) -> None:
        """Let alpha send what it likes, and let time pass."""
        link = self.link("a1", to)
        for each in payloads:
            link.send(self.nodes["a1"], each)
        self.wait(seconds)

    def live(self) -> None:
        """Let an event of beta and one of gamma cross."""
        for publisher in self.publishers:
            self._number += 1
            self.published.append(self._number)
            self.publish(publisher, self._number)

    def check(self, *, is_whole: bool = True, gaps: int = 0) -> None:
        """Check that beta and gamma have everything once, and alpha too if it ``is_whole``; beta with ``gaps``."""
        for reader in self.readers[0 if is_whole else 1 :]:
            lost = [-1] * gaps if reader.user.endswith("@beta") else []
            assert sorted(received(reader)) == lost + self.published, reader.user

    def row(self, domain: str = "alpha") -> dict[str, Any]:
        """Return what beta's gateway tells about a domain."""
        return dict(self.nodes["b1"].member.rows()[domain])


def forged(number: int = 1, subject: str = "T", server: str = "x1", **id: Any) -> EventForwarded:
    """Return an event of alpha that nobody there has published."""
    identity = EventId(id.get("origin", server), id.get("incarnation", 5), id.get("number", number))
    raw = msgspec.Raw(protocol.encode_event(Event(subject, {"x": number, "Uid": f"forged-{number}"})))
    return EventForwarded(server, 9, number, identity, raw)


def carried(message: Any, role: int = 0) -> bytes:
    return encode(FiltersSent(encode_filters(StreamCarried(role, message))))


def whole(*filters: tuple[int, str | None, str], origin: str = "alpha", version: int = 100) -> InterestWhole:
    several = tuple([NumberedFilter(*each) for each in filters])
    return InterestWhole(Stream(0, origin), EPOCH_MAX, version, several)


STREAM: Final = Stream(0, "beta")

NONSENSE: Final[dict[str, bytes]] = {
    "nothing": b"",
    "no message": b"\xff\x00",
    "a kind that is none": msgspec.msgpack.encode([99, "x1"]),
    "a cut event": encode(forged())[:-3],
    "an event that is none": encode(msgspec.structs.replace(forged(), event=msgspec.Raw(msgspec.msgpack.encode(7)))),
    "a number too large": msgspec.msgpack.encode([3, "x1", 2**63, 1]),
    "a server without a name": encode(forged(server="", origin="x1")),
    "a server of two lines": encode(forged(server="x1\nERROR all is lost", origin="x1")),
    "a server with a type": encode(forged(server="x1/T", origin="x1")),
    "an origin with a type": encode(forged(origin="x1/T")),
    "filters that are none": encode(FiltersSent(b"\xc1")),
    "a way that is none": carried(InterestRefused(STREAM, 1, 1), role=77),
    "a filter that is none": carried(whole((1, "T", "x >"))),
    "a filter of every type": carried(whole((1, None, ""))),
    "too many filters": carried(whole(*((each, "T", f"x == {each}") for each in range(FILTERS_MAX + 1)))),
    "the stream of another domain": carried(whole((1, "T", ""), origin="gamma")),
    "a later life of beta, never reached": carried(InterestRefused(STREAM, 2**63, 1)),
    "the last life of beta": carried(InterestRefused(STREAM, EPOCH_MAX, 1)),
    "the last life of gamma": encode(FiltersSent(encode_filters(LinkState("T", "gamma", EPOCH_MAX, 1, ())))),
    "the last life of beta, in a tree": encode(FiltersSent(encode_filters(LinkState("T", "beta", EPOCH_MAX, 1, ())))),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_the_end_of_the_link_that_nonsense_comes_on(what: str) -> None:
    domains = Neighbourhood()
    domains.live()
    former = domains.link("a1", "b1")
    domains.say(NONSENSE[what])
    closing = [each for node in domains.nodes.values() for each in node.problems]
    assert len(closing) == 1
    assert closing[0].startswith("b1 closes a link to alpha/a1: alpha: ")
    assert closing[0].isprintable()
    assert len(closing[0]) < 300
    assert domains.link("a1", "b1") is not former
    domains.live()
    domains.check()
    assert domains.row()["waiting"] == 0


TREE: Final = encode(FiltersSent(encode_filters(TreeAdopted("T", 2**63))))

HARMLESS: Final[dict[str, bytes]] = {
    "an event of a type that is not received": encode(forged(subject="Secret")),
    "an event with the largest numbers": encode(
        EventForwarded("x1", NUMBER_MAX, NUMBER_MAX, EventId("x1", NUMBER_MAX, NUMBER_MAX), forged(subject="U").event)
    ),
    "an event with the id of another domain": encode(forged(subject="U", origin="g1", incarnation=1, number=1)),
    "an event with an id of the own domain": encode(forged(subject="U", origin="b2", incarnation=1, number=1)),
    "more losses than can be": encode(EventsLost("x1", 1, 1, NUMBER_MAX, "because\n" * 1_000)),
    "an acknowledgement of everything": encode(EventsTaken("b2", NUMBER_MAX, NUMBER_MAX)),
    "an acknowledgement of a server that is none": encode(EventsTaken("x1", 1, 1)),
    "filters of types that are not sent": carried(whole((1, "Secret", ""), (2, "T", ""))),
    "a gap in the filters": carried(InterestChanged(Stream(0, "alpha"), EPOCH_MAX, 9, 8, (), ())),
    "a later life of beta": carried(InterestRefused(STREAM, 1_000, 1)),
    "the last number of beta, in a tree": encode(
        FiltersSent(encode_filters(LinkState("T", "beta", 256, LINK_STATES_MAX, ())))
    ),
    "a tree that is none": TREE,
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("what", HARMLESS)
def test_no_harm_by_a_lie(what: str, method: Method) -> None:
    domains = Neighbourhood(method)
    domains.live()
    domains.say(*[HARMLESS[what]] * 3)
    domains.live()
    domains.check(is_whole=method == "multicast" or "filters" not in what, gaps=2 if "losses" in what else 0)
    assert domains.problems() == []
    assert domains.row()["waiting"] == 0
    msgspec.msgpack.encode(domains.nodes["b1"].member.rows())


def test_nothing_of_types_that_are_not_shared() -> None:
    domains = Domains({"alpha": ["a1"], "beta": ["b1"]}, shared={("beta", "alpha"): frozenset({"T"})})
    curious = domains.subscriber("b1", "curious", "*")
    stream, link = Stream(0, "alpha"), next(iter(domains.nodes["b1"]._server_links.values()))
    asked = InterestWhole(stream, EPOCH_MAX, 100, (NumberedFilter(1, "U", ""), NumberedFilter(2, "Secret", "")))
    for payload in (carried(asked), encode(forged(subject="U")), encode(forged(2, subject="T"))):
        link.send(domains.nodes["a1"], payload)
    publisher = domains.device("b1", "publisher")
    domains.publish(publisher, 1, subject="U")
    domains.publish(publisher, 2, subject="Secret")
    row = domains.nodes["b1"].member.rows()["alpha"]
    assert (row["sent"], row["filters"], row["not_received"], row.get("published")) == (0, 0, 2, None)
    assert sorted(received(curious)) == [1, 2]


def test_events_that_a_domain_forges_as_those_of_others_are_its_own() -> None:
    domains = Neighbourhood()
    domains.live()
    state = domains.nodes["b1"].broker.state
    known = {each for each in state.publishers if "domains.beta" in each and "gamma" in each}
    for origin in ("g1", "b2"):
        domains.say(*[encode(forged(each, "U", origin=origin, incarnation=9)) for each in range(1, 20)])
    assert {each for each in state.publishers if "domains.beta" in each and "gamma" in each} == known
    domains.live()
    domains.check()


@pytest.mark.parametrize("is_told_often", [False, True])
def test_lives_that_a_domain_invents_are_few(is_told_often: bool) -> None:
    domains = Neighbourhood()
    sent: list[bytes] = []
    link = domains.link("g1", "b1")
    send = link.send

    def note(node: Any, payload: bytes) -> None:
        sent.append(payload)
        send(node, payload)

    link.send = note  # type: ignore[method-assign]
    for each in range(200 if is_told_often else 2):
        domains.say(carried(InterestRefused(STREAM, 1_000_000 * (each + 1), 1)), seconds=0.01)
    domains.wait(5.0)
    assert 0 < len(sent) < (100 if is_told_often else 40)
    domains.live()
    domains.check()
    assert domains.problems() == []


def test_a_domain_that_forgets_all_filters_too_often_loses_its_link() -> None:
    domains = Neighbourhood()
    domains.live()
    domains.say(*[encode(FiltersBegun())] * 4)
    domains.live()
    assert domains.problems() == []
    domains.say(*[encode(FiltersBegun())] * 50)
    assert [each for each in domains.problems() if "it forgets all filters too often" in each]
    domains.live()
    domains.check()


def test_a_domain_that_acknowledges_nothing_fills_its_own_queue() -> None:
    policy = QueuePolicy(notifications_max=10, bytes_max=2**20, when_full="drop_oldest")
    domains = Neighbourhood(config=BrokerConfig(sweep_s=None, federated=True, queue=policy))
    link = domains.link("a1", "b1")
    send = link.send

    def send_no_acknowledgement(node: Any, payload: bytes) -> None:
        if node.name == "b1" or not isinstance(decode(payload), EventsTaken):
            send(node, payload)

    link.send = send_no_acknowledgement  # type: ignore[method-assign]
    for _ in range(30):
        domains.live()
    domains.check(is_whole=False)
    for server in ("b1", "b2"):
        (session,) = domains.nodes[server].broker.state.sessions_of("sip:alpha@domains.beta")
        assert session.waiting <= 10
    gateway = domains.nodes["b1"].member._gateway
    assert gateway is not None
    circuits = gateway._exports["alpha"]._circuits.values()
    assert 10 <= sum(len(each.unacknowledged) for each in circuits) <= BrokerConfig().unacknowledged_max
    for server in ("b1", "b2"):
        sessions = domains.nodes[server].broker.state.sessions_of("sip:gamma@domains.beta")
        assert sum(each.waiting for each in sessions) == 0


def test_a_flood_of_events_leaves_nothing_behind() -> None:
    domains = Neighbourhood()
    domains.live()
    again = [encode(forged(1 + each % 3, "U", server=f"x{each % 7}")) for each in range(3_000)]
    domains.say(*again)
    assert domains.row()["waiting"] == 0
    domains.live()
    domains.check()
    assert domains.problems() == []
    state = domains.nodes["b1"].broker.state
    assert sum("alpha@domains.beta" in each for each in state.publishers) <= 8


def test_links_that_are_opened_again_and_again() -> None:
    domains = Neighbourhood()
    domains.live()
    for _ in range(50):
        domains.foreign_links._open("alpha/a1", "beta/b1")
        domains.wait(0.02)
    domains.wait(5.0)
    domains.live()
    domains.check()
    node = domains.nodes["b1"]
    assert sum(node._is_foreign(each) for each in node._server_links.values()) == 2
    assert [each for each in domains.problems() if "closes" not in each] == []
