"""Interest at a leader: nothing that counts is missed, and at rest the leader has what is wanted (SPEC J-10, B-10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wanderbus import protocol
from wanderbus.channels.interest.interest_set import MODES, InterestMode
from wanderbus.channels.own_channels import Merging
from wanderbus.channels.pending import Pending
from wanderbus.event import Event
from wanderbus.filters import parse
from wanderbus.peers.leader_interest import PIECE_CHARACTERS_MAX, LeaderInterest
from wanderbus.subscription import Subscription

Entries = Sequence[tuple[str, str]]

SUBJECTS = ("Trade", "Quote", "*")
FILTERS = (
    "",
    "x < 3",
    "x < 7",
    "x >= 3 and x < 7",
    "x == 1",
    "x == 5",
    "y == 2",
    "x < 3 and y == 2",
    "x == 9 or y == 0",
)
EVENTS = [
    Event(subject, {"x": x, "y": y}) for subject in ("Trade", "Quote") for x in (0, 1, 3, 5, 8, 9) for y in (0, 2)
]


class Leader:
    """A plain model of a leader behind a link that keeps order: its subscriptions of this server."""

    def __init__(self, mode: InterestMode = "perfect") -> None:
        self.interest = LeaderInterest(lambda subject: Merging(mode))
        self.present: dict[str, tuple[str, str]] = {}
        self.refuses = False
        self.is_linked = False
        self.up: list[protocol.AgentMessage] = []
        self.down: list[protocol.BrokerMessage] = []
        self.local: dict[str, Entries] = {}
        self.pending: Pending[str, str] = Pending()
        self.counting: set[str] = set()
        self.needs_retry = False
        self._ids = 0

    def add(self, name: str, *entries: tuple[str, str]) -> list[protocol.AgentMessage]:
        """Add a local subscription; return the messages to the leader."""
        self.local[name] = entries
        messages = self.interest.add({name: [(subject, parse(text)) for subject, text in entries]})
        self.pending.add(name, {"leader": self.interest.version})
        return self.sent(messages)

    def remove(self, name: str) -> list[protocol.AgentMessage]:
        """Remove a local subscription; return the messages to the leader."""
        del self.local[name]
        self.counting.discard(name)
        self.pending.drop(name)
        return self.sent(self.interest.remove(name))

    def sent(self, messages: list[protocol.AgentMessage]) -> list[protocol.AgentMessage]:
        """Put messages on the link, or lose them; note what counts."""
        if self.is_linked:
            self.up += messages
        self.counting |= set(self.pending.confirmed("leader", self.interest.confirmed))
        return messages

    def open(self) -> None:
        """Open a link."""
        self.close()
        self.is_linked = True
        self.sent(self.interest.begin())

    def close(self, lost: int = 0) -> None:
        """Break the link; the leader still gets what was sent, but for the last ``lost`` messages."""
        if self.is_linked:
            while len(self.up) > lost:
                self.leader_takes()
            self.up.clear()
            self.down.clear()
            self.is_linked = False
            self.interest.end()

    def leader_takes(self) -> None:
        """Let the leader take the next message."""
        match self.up.pop(0):
            case protocol.Query(request=request):
                answer: protocol.BrokerMessage = protocol.Done(request, tuple(map(self._row, self.present)))
            case protocol.Subscribe(request=request) if self.refuses:
                answer = protocol.RequestRefused(request, "the disk is full", limit="disk_full")
            case protocol.Subscribe(request=request, subject=subject, expression=expression):
                assert (subject, expression) not in self.present.values(), "subscribed twice"
                self._ids += 1
                self.present[str(self._ids)] = subject, expression
                answer = protocol.Done(request, (self._row(str(self._ids)),))
            case protocol.Unsubscribe(request=request, subscription=identity):
                del self.present[identity]
                answer = protocol.Done(request, ())
            case message:
                raise AssertionError(message)
        self.down.append(answer)

    def server_takes(self) -> None:
        """Let this server take the next answer."""
        match self.down.pop(0):
            case protocol.Done() as done:
                self.sent(self.interest.done(done))
            case protocol.RequestRefused(request=request):
                self.needs_retry |= self.interest.refused(request)
        self.sent([])

    def ends(self, identity: str) -> None:
        """Let the leader end a subscription."""
        subject, _ = self.present[identity]
        row = self._row(identity)
        del self.present[identity]
        self.down.append(protocol.SubscriptionEnded(row, "kicked"))
        assert subject

    def retry(self) -> None:
        """Repeat what was refused."""
        self.needs_retry = False
        self.sent(self.interest.retry())

    def settle(self) -> None:
        """Let everything arrive."""
        while self.up or self.down or (self.needs_retry and not self.refuses):
            if self.up:
                self.leader_takes()
            elif self.down:
                self.server_takes()
            else:
                self.retry()

    def check(self) -> None:
        """Check that every event of a filter that counts is sent by the leader."""
        present = [(subject, parse(text)) for subject, text in self.present.values()]
        for name in self.counting:
            for subject, text in self.local[name]:
                wanted = parse(text)
                for event in EVENTS:
                    if subject in ("*", event.subject) and wanted.matches(event):
                        assert any(each in ("*", event.subject) and one.matches(event) for each, one in present), (
                            f"{name} misses {event}; the leader has {self.present}"
                        )

    def check_rest(self) -> None:
        """Check that the leader has exactly what is wanted, and that nothing else is kept."""
        interest = self.interest
        assert sorted(self.present.values()) == sorted(interest.wanted())
        assert interest.is_settled
        assert self.counting == self.local.keys() == interest._local.keys()
        assert (list(self.pending), interest._requested) == ([], {})
        assert (interest._unconfirmed, interest._removals, interest._queried) == ({}, {}, [])

    def _row(self, identity: str) -> Subscription:
        subject, expression = self.present[identity]
        return Subscription(identity, "sip:south@servers.example.org", "default", subject, expression, None, (), None)


@pytest.fixture
def leader() -> Leader:
    linked = Leader()
    linked.open()
    linked.settle()
    return linked


def kinds(messages: Sequence[protocol.AgentMessage]) -> list[Any]:
    """The expression of each subscription, and the id of each one that ends."""
    return [each.expression if isinstance(each, protocol.Subscribe) else each.subscription for each in messages]  # type: ignore[attr-defined]


def test_a_long_merged_filter_is_several_subscriptions_of_which_a_new_value_changes_one(leader: Leader) -> None:
    for n in range(150):
        leader.add(str(n), ("Trade", f'name == "{n * 7919} {"x" * 40}" and y == 2'))
        leader.settle()
    assert 1 < len(leader.present) < 60
    assert all(len(expression) <= PIECE_CHARACTERS_MAX for _, expression in leader.present.values())
    leader.add("new", ("Trade", f'name == "{"z" * 47}" and y == 2'))
    assert len(leader.up) == 1
    leader.settle()
    leader.check_rest()
    for n in range(150):
        leader.remove(str(n))
    leader.settle()
    leader.check_rest()


def test_pieces_that_two_filters_have_in_common_stay_until_both_are_gone() -> None:
    leader = Leader("none")
    leader.open()
    leader.settle()
    values = [f'"{n * 7919} {"x" * 40}"' for n in range(302)]
    leader.add("one", ("Trade", f"name in ({', '.join(values[:301])})"))
    leader.settle()
    leader.add("two", ("Trade", f"name in ({', '.join(values[1:])})"))
    leader.settle()
    common = len(leader.present)
    leader.remove("one")
    leader.settle()
    leader.check_rest()
    assert common - 2 <= len(leader.present) < common


@pytest.mark.parametrize("mode", MODES)
def test_a_covered_subscription_costs_no_message_and_counts_at_once(mode: InterestMode) -> None:
    leader = Leader(mode)
    leader.open()
    leader.settle()
    leader.add("wide", ("Trade", "x < 7"))
    leader.settle()
    assert leader.add("narrow", ("Trade", "x < 3")) == []
    assert leader.remove("narrow") == []
    assert leader.add("narrow", ("Trade", "x < 3 and y == 2")) == []
    assert leader.counting == {"wide", "narrow"}


def test_it_counts_when_the_leader_confirms_it(leader: Leader) -> None:
    leader.add("first", ("Trade", "x < 3"), ("Quote", "y == 2"))
    leader.leader_takes()
    leader.server_takes()
    assert leader.counting == set()
    leader.settle()
    assert leader.counting == {"first"}


def test_a_filter_that_is_covered_by_one_on_its_way_waits_for_that(leader: Leader) -> None:
    leader.add("wide", ("Trade", "x < 7"))
    leader.add("narrow", ("Trade", "x < 3"))
    assert leader.counting == set()
    leader.settle()
    assert leader.counting == {"wide", "narrow"}


def test_a_replaced_filter_is_removed_once_the_replacement_is_confirmed(leader: Leader) -> None:
    leader.add("narrow", ("Trade", "x < 3"))
    leader.settle()
    assert kinds(leader.add("wide", ("Trade", "x < 7"))) == ["x < 7"]
    leader.leader_takes()
    assert leader.up == []
    leader.server_takes()
    assert kinds(leader.up) == ["1"]


def test_a_covering_filter_is_removed_once_the_covered_one_is_confirmed(leader: Leader) -> None:
    leader.add("wide", ("Trade", "x < 7"))
    leader.add("narrow", ("Trade", "x < 3"))
    leader.settle()
    assert kinds(leader.remove("wide")) == ["x < 3"]
    leader.leader_takes()
    leader.server_takes()
    assert kinds(leader.up) == ["1"]
    leader.settle()
    leader.check_rest()


def test_a_filter_that_is_wanted_again_in_time_stays(leader: Leader) -> None:
    leader.add("wide", ("Trade", "x < 7"))
    leader.add("narrow", ("Trade", "x < 3"))
    leader.settle()
    leader.remove("wide")
    assert leader.add("again", ("Trade", "x < 7")) == []
    leader.settle()
    leader.check_rest()
    assert list(leader.present.values()) == [("Trade", "x < 7")]


def test_a_new_link_asks_first_and_sends_the_difference_alone(leader: Leader) -> None:
    leader.add("kept", ("Trade", "x < 3"))
    leader.add("ends", ("Quote", "x < 3"))
    leader.settle()
    leader.close()
    leader.remove("ends")
    leader.add("new", ("Trade", "y == 2"))
    leader.open()
    assert leader.up == [protocol.Query(0)]
    leader.leader_takes()
    leader.server_takes()
    assert kinds(leader.up) == ["y == 2"]
    assert leader.counting == {"kept"}
    leader.settle()
    leader.check_rest()


def test_an_answer_in_parts_is_compared_when_it_is_whole(leader: Leader) -> None:
    leader.add("one", ("Trade", "x < 3"))
    leader.add("two", ("Trade", "y == 2"))
    leader.settle()
    rows = [leader._row(each) for each in leader.present]
    leader.interest.begin()
    assert leader.interest.done(protocol.Done(0, (rows[0],), more=True)) == []
    assert leader.interest.done(protocol.Done(0, (rows[1],))) == []
    assert leader.interest.is_settled


def test_a_refused_subscription_is_requested_again_and_does_not_count_before(leader: Leader) -> None:
    leader.refuses = True
    leader.add("first", ("Trade", "x < 3"))
    leader.settle()
    assert (leader.counting, leader.needs_retry) == (set(), True)
    leader.refuses = False
    leader.settle()
    leader.check_rest()


def test_one_that_was_refused_and_is_not_wanted_any_more_is_not_requested_again(leader: Leader) -> None:
    leader.refuses = True
    leader.add("first", ("Trade", "x < 3"))
    leader.remove("first")
    leader.settle()
    leader.refuses = False
    assert leader.interest.retry() == []
    leader.check_rest()


def test_a_subscription_that_waits_for_a_refused_filter_waits_for_its_replacement(leader: Leader) -> None:
    leader.refuses = True
    leader.add("narrow", ("Trade", "x < 3"))
    leader.settle()
    leader.refuses = False
    leader.add("wide", ("Trade", "x < 7"))
    leader.check()
    assert leader.counting == set()
    leader.settle()
    leader.check_rest()


def test_one_that_is_refused_after_its_replacement_was_requested_holds_up_what_waits_for_it(leader: Leader) -> None:
    leader.refuses = True
    leader.add("narrow", ("Trade", "x < 3"))
    leader.add("wide", ("Trade", "x < 7"))
    leader.leader_takes()
    leader.refuses = False
    leader.server_takes()
    leader.check()
    assert leader.counting == set()
    leader.settle()
    leader.check_rest()


def test_a_filter_that_a_refused_one_replaces_stays_until_the_next_replacement_is_confirmed(leader: Leader) -> None:
    leader.add("first", ("Trade", "x < 3"))
    leader.settle()
    leader.refuses = True
    leader.add("second", ("Trade", "x < 7"))
    leader.settle()
    leader.refuses = False
    leader.add("third", ("Trade", ""))
    assert [type(each) for each in leader.up] == [protocol.Subscribe]
    leader.check()
    leader.settle()
    leader.check_rest()


def test_a_subscription_that_the_leader_ends_is_requested_again(leader: Leader) -> None:
    leader.add("first", ("Trade", "x < 3"))
    leader.settle()
    (identity,) = leader.present
    row = leader._row(identity)
    del leader.present[identity]
    assert kinds(leader.sent(leader.interest.ended(row.id))) == ["x < 3"]
    assert leader.interest.ended("unknown") == []
    leader.add("covered", ("Trade", "x == 1"))
    assert leader.counting == {"first"}
    leader.settle()
    leader.check_rest()


def test_adaptive_merging_is_made_stricter_without_a_hole() -> None:
    leader = Leader("adaptive")
    leader.interest = LeaderInterest(lambda subject: Merging("adaptive", 0.5))
    leader.open()
    leader.settle()
    for n in range(8):
        leader.add(str(n), ("Trade", f"x == {n} and y == {n}"))
    leader.settle()
    loose = leader.interest.wanted()
    for _ in range(64 * 4):
        leader.sent(leader.interest.event_arrived(["Trade"], is_matched=False))
        leader.check()
    leader.settle()
    leader.check_rest()
    assert len(loose) < len(leader.interest.wanted())


ENTRIES = st.lists(st.tuples(st.sampled_from(SUBJECTS), st.sampled_from(FILTERS)), min_size=1, max_size=2)
STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 7), ENTRIES),
    st.tuples(st.sampled_from(("remove", "open", "retry", "settle")), st.integers(0, 7), st.none()),
    st.tuples(st.sampled_from(("leader takes", "server takes", "break")), st.integers(0, 4), st.none()),
    st.tuples(st.sampled_from(("refuse", "arrive")), st.integers(0, 1), st.none()),
)


def perform(leader: Leader, what: str, n: int, entries: Entries | None) -> None:
    """Perform one step of the property."""
    if what == "add" and str(n) not in leader.local:
        leader.add(str(n), *entries or ())
    elif what == "remove" and str(n) in leader.local:
        leader.remove(str(n))
    elif what == "leader takes":
        for _ in range(min(n, len(leader.up))):
            leader.leader_takes()
            leader.check()
    elif what == "server takes":
        for _ in range(min(n, len(leader.down))):
            leader.server_takes()
    elif what == "break":
        leader.close(lost=n)
    elif what == "open":
        leader.open()
    elif what == "refuse":
        leader.refuses = bool(n)
    elif what == "retry":
        leader.retry()
    elif what == "arrive":
        for _ in range(64):
            leader.sent(leader.interest.event_arrived(["Trade"], is_matched=bool(n)))
    elif what == "settle":
        leader.settle()


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(MODES), st.lists(STEPS, max_size=40))
def test_nothing_that_counts_is_missed_and_at_rest_the_leader_has_what_is_wanted(
    mode: InterestMode, steps: list[tuple[str, int, Entries | None]]
) -> None:
    leader = Leader(mode)
    leader.open()
    for step in steps:
        perform(leader, *step)
        leader.check()
    leader.refuses = False
    if not leader.is_linked:
        leader.open()
    leader.settle()
    leader.check()
    leader.check_rest()
    for name in list(leader.local):
        leader.remove(name)
    leader.settle()
    assert leader.present == {}
    leader.check_rest()
