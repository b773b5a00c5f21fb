"""Streams of interest: order, gaps, incarnations, confirmations and parts (SPEC J-10, J-11, K-05, K-07)."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from wanderbus.channels.interest.incoming_streams import ASK_S, IncomingStreams
from wanderbus.channels.interest.interest_set import Wanted
from wanderbus.channels.interest.interest_source import TURN_S, InterestSource
from wanderbus.channels.interest.measured_precision import RELAX_WINDOWS, WINDOW, MeasuredPrecision
from wanderbus.channels.interest.messages import (
    FromReceiver,
    FromSender,
    InterestChanged,
    InterestConfirmed,
    InterestPosition,
    InterestRefused,
    InterestRequested,
    InterestWhole,
    Message,
    NumberedFilter,
    Stream,
    decode,
    encode,
)
from wanderbus.channels.interest.outgoing_stream import PENDING_MAX, RETRY_S, Fenced, SendToServer
from wanderbus.channels.interest.proxy_channels import Lineage, ProxyChannels
from wanderbus.errors import RemoteProtocolError
from wanderbus.filters import parse
from wanderbus.filters.covering import covers
from wanderbus.filters.normalising import normal_form
from wanderbus.machine import Output

OWN = Stream(7, "a")
SENDER = "rs"


def sent(outputs: list[Output]) -> list[Message]:
    """Return the messages of ``outputs``, each through its bytes."""
    return [decode(encode(each.message)) for each in outputs if isinstance(each, SendToServer)]


def only(outputs: list[Output]) -> FromSender:
    (message,) = sent(outputs)
    assert isinstance(message, FromSender)
    return message


def added(source: InterestSource, id: str, text: str, subject: str | None = "s") -> tuple[int, list[Output]]:
    return source.update({id: (subject, parse(text))}, (), 0.0)


def linked(source: InterestSource, tables: IncomingStreams) -> None:
    """Connect ``source`` with a receiver "r" and confirm its position."""
    answer = tables.receive(SENDER, only(source.outgoing.link_up("r", 0.0)), 0.0).answer
    assert isinstance(answer, InterestConfirmed)
    source.outgoing.receive("r", answer, 0.0)


def shown(tables: IncomingStreams, stream: Stream = OWN) -> set[str]:
    return {f"{each.subject}: {each.expression}" for each in tables.filters((SENDER, stream))}


def test_a_change_counts_when_every_receiver_that_is_alive_has_confirmed() -> None:
    source, tables = InterestSource(OWN, 1), IncomingStreams()
    linked(source, tables)
    source.outgoing.expect("other")
    version, outputs = added(source, "1", "x < 5")
    answer = tables.receive(SENDER, only(outputs), 0.0).answer
    assert isinstance(answer, InterestConfirmed)
    source.outgoing.receive("r", answer, 0.0)
    assert not source.outgoing.effective >= version, "the other is expected"
    source.outgoing.link_down("other", is_dead=False)
    assert not source.outgoing.effective >= version, "it may only be cut off"
    source.outgoing.link_down("other", is_dead=True)
    assert source.outgoing.effective >= version
    assert shown(tables) == {"s: x < 5"}


def test_uncovering_and_removing_travel_in_one_message() -> None:
    source, tables = InterestSource(OWN, 1), IncomingStreams()
    linked(source, tables)
    tables.receive(SENDER, only(added(source, "wide", "x < 9")[1]), 0.0)
    assert added(source, "narrow", "x < 5 and y == 1")[1] == []
    message = only(source.update({}, ["wide"], 0.0)[1])
    assert isinstance(message, InterestChanged)
    assert (len(message.added), len(message.removed)) == (1, 1)
    tables.receive(SENDER, message, 0.0)
    assert shown(tables) == {"s: x < 5 and y == 1"}


def test_a_receiver_that_missed_a_change_asks_for_the_whole() -> None:
    source, tables = InterestSource(OWN, 1), IncomingStreams()
    linked(source, tables)
    added(source, "1", "x == 1")
    second = only(added(source, "2", "y == 2")[1])
    request = tables.receive(SENDER, second, 0.0).answer
    assert isinstance(request, InterestRequested)
    assert shown(tables) == set()
    assert tables.receive(SENDER, second, ASK_S / 2).answer is None, "it has asked"
    whole = only(source.outgoing.receive("r", request, 0.0))
    assert isinstance(whole, InterestWhole)
    taken = tables.receive(SENDER, whole, 0.0)
    assert isinstance(taken.answer, InterestConfirmed)
    source.outgoing.receive("r", taken.answer, 0.0)
    assert source.outgoing.effective >= 2
    assert shown(tables) == {"s: x == 1", "s: y == 2"}


def test_a_repeated_or_late_message_is_confirmed_and_changes_nothing() -> None:
    source, tables = InterestSource(OWN, 1), IncomingStreams()
    linked(source, tables)
    first = only(added(source, "1", "x == 1")[1])
    tables.receive(SENDER, first, 0.0)
    tables.receive(SENDER, only(source.update({}, ["1"], 0.0)[1]), 0.0)
    assert tables.receive(SENDER, first, 0.0).answer == InterestConfirmed(OWN, 1, 2)
    assert shown(tables) == set()


def test_an_earlier_incarnation_is_refused_and_stops() -> None:
    tables, earlier = IncomingStreams(), InterestSource(OWN, 1)
    linked(earlier, tables)
    linked(InterestSource(OWN, 2), tables)
    answer = tables.receive(SENDER, only(added(earlier, "1", "x == 1")[1]), 0.0).answer
    assert answer == InterestRefused(OWN, 2, 0)
    assert isinstance(answer, FromReceiver)
    assert earlier.outgoing.receive("r", answer, 0.0) == [Fenced(OWN, 2)]
    assert earlier.outgoing.is_fenced
    assert shown(tables) == set()


def test_a_new_incarnation_replaces_the_table_at_once() -> None:
    tables, earlier, later = IncomingStreams(), InterestSource(OWN, 1), InterestSource(OWN, 2)
    linked(earlier, tables)
    tables.receive(SENDER, only(added(earlier, "1", "x == 1")[1]), 0.0)
    added(later, "1", "x == 2")
    request = tables.receive(SENDER, only(later.outgoing.link_up("r", 0.0)), 0.0).answer
    assert isinstance(request, InterestRequested)
    assert shown(tables) == {"s: x == 1"}, "the known routes stay until the whole is there"
    tables.receive(SENDER, only(later.outgoing.receive("r", request, 0.0)), 0.0)
    assert shown(tables) == {"s: x == 2"}


def test_an_unconfirmed_message_is_repeated_less_and_less_often() -> None:
    source = InterestSource(OWN, 1)
    source.outgoing.link_up("r", 0.0)
    assert source.outgoing.repeat_at() == RETRY_S
    assert source.outgoing.repeat(RETRY_S / 2) == []
    assert isinstance(only(source.outgoing.repeat(RETRY_S)), InterestPosition)
    assert source.outgoing.repeat_at() == 3 * RETRY_S
    source.outgoing.link_down("r", is_dead=False)
    assert source.outgoing.repeat_at() is None


def test_many_unconfirmed_changes_become_the_whole() -> None:
    source, tables = InterestSource(OWN, 1, "none"), IncomingStreams()
    linked(source, tables)
    for number in range(PENDING_MAX):
        added(source, f"{number}", f"x == {number}")
    whole = only(added(source, "last", "x == -1")[1])
    assert isinstance(whole, InterestWhole)
    assert not source.outgoing.effective >= 1
    answer = tables.receive(SENDER, whole, 0.0).answer
    assert isinstance(answer, InterestConfirmed)
    source.outgoing.receive("r", answer, 0.0)
    assert source.outgoing.effective >= PENDING_MAX + 1
    assert len(shown(tables)) == PENDING_MAX + 1


def test_an_invalid_filter_leaves_the_table_as_it_was() -> None:
    tables = IncomingStreams()
    tables.receive(SENDER, InterestPosition(OWN, 1, 0), 0.0)
    filters = (NumberedFilter(1, "s", "x == 1"), NumberedFilter(2, "s", "x =="))
    with pytest.raises(RemoteProtocolError, match="invalid filter"):
        tables.receive(SENDER, InterestChanged(OWN, 1, 1, 0, filters, ()), 0.0)
    assert shown(tables) == set()
    assert tables.position((SENDER, OWN)) == (1, 0)


def test_bytes_that_are_no_message_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="not a message of interest"):
        decode(b"\xc1")


def test_a_table_is_current_again_when_its_sender_is_heard() -> None:
    source, tables = InterestSource(OWN, 1), IncomingStreams()
    linked(source, tables)
    assert tables.is_current((SENDER, OWN))
    tables.restart()
    assert not tables.is_current((SENDER, OWN))
    linked(source, tables)
    assert tables.is_current((SENDER, OWN))


class Domain:
    """A resolution server, and access servers whose messages arrive at once."""

    def __init__(self, *names: str, advertised: bool = True, lineage: Lineage = lambda subject: (subject,)) -> None:
        self.proxies = ProxyChannels(7, 1, uses_advertisements=advertised, lineage=lineage)
        self.sources = {name: InterestSource(Stream(7, name), 1) for name in names}
        self.offers = {name: InterestSource(Stream(7, name, "advertisements"), 1) for name in names}
        self.tables = {name: IncomingStreams() for name in names}
        self.held: set[str] = set()
        for name in names:
            self.deliver(self.proxies.link_up(name, 0.0))
            for source in (self.sources[name], self.offers[name]):
                self.to_resolution(name, source.outgoing.link_up("rs", 0.0))

    def to_resolution(self, name: str, outputs: list[Output]) -> None:
        for message in sent(outputs):
            self.deliver(self.proxies.receive(name, message, 0.0))

    def deliver(self, outputs: list[Output]) -> None:
        for each in outputs:
            assert isinstance(each, SendToServer)
            name, message = each.server, each.message
            if isinstance(message, FromReceiver):
                source = (self.sources if message.stream.kind == "interest" else self.offers)[name]
                self.to_resolution(name, source.outgoing.receive("rs", message, 0.0))
            elif name not in self.held:
                answer = self.tables[name].receive(SENDER, message, 0.0).answer
                assert answer is not None
                self.deliver(self.proxies.receive(name, answer, 0.0))

    def subscribe(self, name: str, id: str, text: str, subject: str | None = "s") -> int:
        version, outputs = added(self.sources[name], id, text, subject)
        self.to_resolution(name, outputs)
        return version

    def unsubscribe(self, name: str, id: str) -> None:
        self.to_resolution(name, self.sources[name].update({}, [id], 0.0)[1])

    def advertise(self, name: str, id: str, text: str, subject: str | None = "s") -> None:
        self.to_resolution(name, added(self.offers[name], id, text, subject)[1])

    def routes(self, name: str, origin: str) -> set[str]:
        return shown(self.tables[name], Stream(7, origin))


def test_j03_the_channel_holds_a_smaller_and_more_generic_table_than_its_servers() -> None:
    """A third of the filters is covered, a third merges, and a third stays."""
    domain = Domain("a", "b", advertised=False)
    wanted = {"a": [], "b": []}  # type: dict[str, list[str]]
    for n in range(30):
        text = (f"x < {n}", f"y == {n}", f"z{n} == 1")[n % 3]
        for name in wanted:
            domain.subscribe(name, str(n), text)
            wanted[name].append(text)
    for name, texts in wanted.items():
        held = [parse(each.expression) for each in domain.proxies.incoming.filters((name, Stream(7, name)))]
        assert len(domain.sources[name].interests.ids()) == 30, "the access server holds the full set"
        assert len(held) == 12
        forms = [normal_form(each) for each in held]
        assert all(any(covers(form, normal_form(parse(text))) for form in forms) for text in texts)


def test_k05_the_table_at_every_other_server_follows_each_change() -> None:
    domain = Domain("a", "b", "c", advertised=False)
    domain.subscribe("a", "wide", "x < 9")
    domain.subscribe("a", "narrow", "x < 5 and y == 1")
    assert domain.routes("b", "a") == domain.routes("c", "a") == {"s: x < 9"}
    domain.unsubscribe("a", "wide")
    assert domain.routes("b", "a") == domain.routes("c", "a") == {"s: x < 5 and y == 1"}
    domain.proxies.link_down("c", is_dead=False)
    domain.unsubscribe("a", "narrow")
    versions = {"a": domain.subscribe("a", "new", "x == 7"), "b": domain.subscribe("b", "own", "z == 1")}
    assert (domain.routes("b", "a"), domain.routes("a", "b")) == ({"s: x == 7"}, {"s: z == 1"})
    assert (domain.routes("c", "a"), domain.routes("c", "b")) == ({"s: x < 5 and y == 1"}, set()), "it has no link"
    for name, version in versions.items():
        assert not domain.sources[name].outgoing.effective >= version, "c may still publish by what it has"
    domain.held = {"c"}
    domain.deliver(domain.proxies.link_up("c", 0.0))
    domain.held = set()
    domain.deliver(domain.proxies.repeat(RETRY_S))
    assert (domain.routes("c", "a"), domain.routes("c", "b")) == ({"s: x == 7"}, {"s: z == 1"})
    for name, version in versions.items():
        assert domain.sources[name].outgoing.effective >= version
    assert [domain.routes(name, name) for name in "abc"] == [set()] * 3


def test_a_server_that_comes_later_gets_what_is_known() -> None:
    domain = Domain("a", "b", advertised=False)
    domain.proxies.link_down("b", is_dead=True)
    domain.subscribe("a", "1", "x < 3")
    assert domain.routes("b", "a") == set()
    domain.deliver(domain.proxies.link_up("b", 0.0))
    assert domain.routes("b", "a") == {"s: x < 3"}


def test_interest_goes_only_where_an_advertisement_can_match() -> None:
    domain = Domain("a", "b", "c")
    domain.advertise("b", "1", "all x < 5")
    domain.subscribe("a", "1", "x < 3")
    domain.subscribe("a", "2", "x > 7 and y == 1")
    assert domain.routes("b", "a") == {"s: x < 3"}
    assert domain.routes("c", "a") == set()
    domain.advertise("c", "1", "", None)
    assert domain.routes("c", "a") == {"s: x < 3", "s: x > 7 and y == 1"}
    domain.to_resolution("b", domain.offers["b"].update({}, ["1"], 0.0)[1])
    assert domain.routes("b", "a") == set()


def test_interest_and_advertisements_meet_in_one_lineage() -> None:
    parents = {"Delay": ("Delay", "Flight"), "Gate": ("Gate", "Flight")}
    domain = Domain("a", "b", "c", lineage=lambda subject: parents.get(subject, (subject,)))
    domain.advertise("b", "1", "", "Delay")
    domain.advertise("c", "1", "", "Flight")
    for subject in ("Flight", "Delay", "Gate", "Other", None):
        domain.subscribe("a", str(subject), "x < 3" if subject else "x < 2", subject)
    assert domain.routes("b", "a") == {"Flight: x < 3", "Delay: x < 3", "None: x < 2"}
    assert domain.routes("c", "a") == {"Flight: x < 3", "Delay: x < 3", "Gate: x < 3", "None: x < 2"}


def test_an_advertisement_counts_when_its_own_server_has_the_interest() -> None:
    domain = Domain("a", "b", "c")
    domain.subscribe("a", "1", "x < 3")
    domain.advertise("b", "1", "")
    offers = domain.offers["b"].outgoing
    assert offers.effective >= offers.version
    domain.held = {"c"}
    domain.advertise("c", "1", "")
    domain.advertise("b", "2", "", "t")
    assert offers.effective >= offers.version, "c still has to confirm, but b publishes"
    other = domain.offers["c"].outgoing
    assert not other.effective >= other.version


def test_without_advertisements_interest_goes_everywhere() -> None:
    domain = Domain("a", "b", advertised=False)
    domain.subscribe("a", "1", "x < 3")
    assert domain.routes("b", "a") == {"s: x < 3"}
    assert domain.routes("a", "a") == set()


def test_a_subscription_counts_when_the_proxies_have_it() -> None:
    domain = Domain("a", "b", advertised=False)
    domain.held = {"b"}
    version = domain.subscribe("a", "1", "x < 3")
    assert not domain.sources["a"].outgoing.effective >= version
    domain.deliver(domain.proxies.link_down("b", is_dead=True))
    assert domain.sources["a"].outgoing.effective >= version


def test_a_server_that_left_the_domain_leaves_no_routes() -> None:
    domain = Domain("a", "b", advertised=False)
    domain.subscribe("a", "1", "x < 3")
    domain.deliver(domain.proxies.forget("a", 0.0))
    assert domain.routes("b", "a") == set()


def test_a_server_speaks_only_for_itself() -> None:
    domain = Domain("a", "b")
    with pytest.raises(RemoteProtocolError, match="interest of b"):
        domain.proxies.receive("a", InterestPosition(Stream(7, "b"), 9, 0), 0.0)


def test_precision_is_kept_by_measurement_and_relaxed_late() -> None:
    measured = MeasuredPrecision(0.8)
    assert measured.estimate == pytest.approx(0.8)
    changed = [measured.count(matched=number % 2 == 0) for number in range(WINDOW)]
    assert changed == [*[False] * (WINDOW - 1), True]
    assert measured.estimate == pytest.approx(0.9)
    for _ in range(10 * WINDOW):
        measured.count(matched=False)
    assert measured.estimate == 1.0
    changed = [measured.count(matched=True) for _ in range(RELAX_WINDOWS * WINDOW)]
    assert changed.index(True) == RELAX_WINDOWS * WINDOW - 1
    assert measured.estimate < 1.0


def test_adaptive_interest_splits_when_too_many_events_match_nobody() -> None:
    source, tables = InterestSource(OWN, 1, "adaptive", precision_min=0.5), IncomingStreams()
    linked(source, tables)
    for number, text in enumerate(["x > 0 and x < 4", "x > 6 and x < 9"]):
        tables.receive(SENDER, only(added(source, f"{number}", f"{text} and y == {number}")[1]), 0.0)
    before = len(source.interests.sent())
    outputs = [output for _ in range(5 * WINDOW) for output in source.event_arrived("s", matched=False, now=0.0)]
    assert before == 1
    assert len(source.interests.sent()) == 2
    for message in sent(outputs):
        assert isinstance(message, FromSender)
        tables.receive(SENDER, message, 0.0)
    assert shown(tables) == {"s: x > 0 and x < 4 and y == 0", "s: x > 6 and x < 9 and y == 1"}


def test_merging_to_another_precision_goes_on_in_later_turns_which_changes_do_not_postpone() -> None:
    source = InterestSource(OWN, 1, "adaptive", precision_min=0.5)
    wanted: dict[Hashable, Wanted] = {
        n: ("s", parse(f"x > {20 * n} and x < {20 * n + n % 7 + 2} and y == {n % 9}")) for n in range(800)
    }
    source.update(wanted, (), 0.0)
    for _ in range(WINDOW):
        source.event_arrived("s", matched=False, now=1.0)
    assert source.repeat_at() == 1.0 + TURN_S
    source.update({"more": ("s", parse("z == 1"))}, (), 1.005)
    assert source.repeat_at() == 1.0 + TURN_S
    turns = 1
    while source.repeat_at() is not None:
        source.repeat(1.0 + turns * TURN_S)
        turns += 1
    assert turns > 2
    assert source.interests.is_settled
