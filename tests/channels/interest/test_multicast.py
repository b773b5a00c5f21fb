"""Interest by multicast: one datagram for several servers, repaired on their links (SPEC J-12, K-05)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.interest_source import InterestSource
from wanderbus.channels.interest.messages import (
    ChangeForMany,
    InterestChanged,
    InterestConfirmed,
    InterestRequested,
    InterestWhole,
    Stream,
    decode_for_many,
)
from wanderbus.channels.interest.multicast import (
    CONFIRM_S,
    MISSES_MAX,
    PAUSE_S,
    PAYLOAD_BYTES_MAX,
    Multicast,
    MulticastMissed,
    SendToMany,
)
from wanderbus.channels.interest.outgoing_stream import RETRY_S, SendToServer
from wanderbus.errors import RemoteProtocolError
from wanderbus.filters import parse
from wanderbus.machine import Output

OWN = Stream(0, "a")
NUMBERS = {"b": 1, "c": 2, "d": 9}


class Sender:
    """A leader with links to three servers, all of which have confirmed their position."""

    def __init__(self, selects: Callable[[str, Interest], bool] = lambda server, interest: True) -> None:
        self.multicast = Multicast(NUMBERS)
        self.source = InterestSource(OWN, 1, "none", selects=selects, multicast=self.multicast)
        self.now = 0.0
        self.changes = 0
        for server in NUMBERS:
            self.source.outgoing.link_up(server, self.now)
            self.confirm(server, 0, is_multicast=False)

    def subscribe(self, text: str = "", subject: str = "s") -> list[Output]:
        """Add a filter."""
        self.changes += 1
        wanted = subject, parse(text or f"x == {self.changes}")
        return self.source.update({self.changes: wanted}, (), self.now)[1]

    def confirm(self, server: str, version: int, *, is_multicast: bool = True) -> list[Output]:
        message = InterestConfirmed(OWN, 1, version, is_multicast)
        return self.source.outgoing.receive(server, message, self.now)

    def later(self, seconds: float = CONFIRM_S) -> list[Output]:
        """Let time pass; return what is sent again."""
        self.now += seconds
        return self.source.outgoing.repeat(self.now)

    def miss(self) -> list[Output]:
        """Lose a datagram for server b alone; return the reports."""
        self.subscribe()
        version = self.source.outgoing.version
        for server in ("c", "d"):
            self.confirm(server, version)
        self.later()
        return self.confirm("b", version, is_multicast=False)


@pytest.fixture
def sender() -> Sender:
    return Sender()


def datagram(outputs: list[Output]) -> ChangeForMany:
    (sent,) = outputs
    assert isinstance(sent, SendToMany)
    return decode_for_many(sent.payload)


def by_link(outputs: list[Output]) -> dict[str, list[int]]:
    """The versions that links carry to each server."""
    found: dict[str, list[int]] = {}
    for each in outputs:
        if isinstance(each, SendToServer):
            found.setdefault(each.server, []).append(each.message.version)
    return found


def test_a_change_for_several_servers_is_one_datagram_with_the_change_of_each(sender: Sender) -> None:
    change = datagram(sender.subscribe("x < 5"))
    for number in NUMBERS.values():
        found = change.for_server(number)
        assert found is not None
        assert (found.previous, found.version, [each.expression for each in found.added]) == (0, 1, ["x < 5"])
    assert [change.for_server(number) for number in (0, 3, 8, 10)] == [None] * 4


def test_each_server_gets_the_version_before_at_that_server() -> None:
    sender = Sender(lambda server, interest: server != "d" or interest.subject == "s")
    assert datagram(sender.subscribe(subject="other")).for_server(9) is None
    for server in ("b", "c"):
        sender.confirm(server, 1)
    change = datagram(sender.subscribe())
    assert [getattr(change.for_server(number), "previous", None) for number in (1, 2, 9)] == [1, 1, 0]


def test_a_change_for_one_server_goes_by_its_link() -> None:
    sender = Sender(lambda server, interest: server == "c")
    assert by_link(sender.subscribe()) == {"c": [1]}
    assert sender.multicast.counts["c"].sent == 0


def test_an_unconfirmed_change_is_repaired_on_the_link_and_then_repeated(sender: Sender) -> None:
    sender.subscribe()
    sender.confirm("b", 1)
    assert sender.source.outgoing.repeat_at() == CONFIRM_S
    assert sender.later(CONFIRM_S / 2) == []
    assert by_link(sender.later(CONFIRM_S / 2)) == {"c": [1], "d": [1]}
    assert sender.source.outgoing.repeat_at() == CONFIRM_S + RETRY_S
    assert by_link(sender.later(RETRY_S / 2)) == {}
    assert by_link(sender.later(RETRY_S / 2)) == {"c": [1], "d": [1]}
    assert not sender.source.outgoing.effective >= 1
    for server in ("c", "d"):
        sender.confirm(server, 1, is_multicast=False)
    assert sender.source.outgoing.effective >= 1
    assert sender.source.outgoing.repeat_at() is None
    counts = sender.multicast.counts
    assert [(counts[each].sent, counts[each].repaired) for each in NUMBERS] == [(1, 0), (1, 1), (1, 1)]


def test_a_repair_has_all_datagrams_behind_the_lost_one_in_order(sender: Sender) -> None:
    for _ in range(3):
        sender.subscribe()
        sender.now += CONFIRM_S / 4
    assert by_link(sender.later(CONFIRM_S / 4)) == {server: [1, 2, 3] for server in NUMBERS}
    assert sender.confirm("b", 1, is_multicast=False) == sender.confirm("b", 3, is_multicast=False) == []
    sender.confirm("c", 3)
    for _ in range(MISSES_MAX - 2):
        assert sender.confirm("b", sender.source.outgoing.version, is_multicast=False) == [], "that was one miss"


def test_a_link_carries_what_follows_something_unconfirmed_on_it(sender: Sender) -> None:
    sender.subscribe()
    for server in ("b", "c"):
        sender.confirm(server, 1)
    sender.later()
    outputs = sender.subscribe()
    assert by_link(outputs) == {"d": [2]}, "a datagram would overtake the repair"
    assert [each for each in NUMBERS.values() if datagram(outputs[-1:]).for_server(each)] == [1, 2]
    sender.confirm("d", 2, is_multicast=False)
    sender.confirm("b", 2)
    sender.confirm("c", 2)
    assert datagram(sender.subscribe()).for_server(9) is not None


def test_a_change_that_does_not_fit_goes_by_links(sender: Sender) -> None:
    assert isinstance(sender.subscribe(f"y == '{'y' * 100}' and x == 1")[0], SendToMany)
    for server in NUMBERS:
        sender.confirm(server, 1)
    assert by_link(sender.subscribe(f"y == '{'y' * PAYLOAD_BYTES_MAX}'")) == {server: [2] for server in NUMBERS}
    assert [each.sent for each in sender.multicast.counts.values()] == [1, 1, 1]


def test_a_server_that_multicast_does_not_reach_is_left_out_for_a_while_with_one_report(sender: Sender) -> None:
    assert [sender.miss() for _ in range(MISSES_MAX)] == [*[[]] * (MISSES_MAX - 1), [MulticastMissed("b")]]
    outputs = sender.subscribe()
    assert by_link(outputs) == {"b": [MISSES_MAX + 1]}
    assert datagram(outputs[-1:]).for_server(1) is None
    for server in NUMBERS:
        sender.confirm(server, MISSES_MAX + 1, is_multicast=server != "b")
    sender.later(PAUSE_S)
    assert sender.miss() == [], "one try, and no second report"
    assert not sender.multicast.may_reach("b", sender.now)
    sender.later(PAUSE_S)
    assert datagram(sender.subscribe()).for_server(1) is not None


def test_a_network_without_multicast_is_reported_once_and_costs_a_datagram_in_each_pause(sender: Sender) -> None:
    reports: list[Output] = []
    datagrams = 0
    for _ in range(100):
        datagrams += sum(isinstance(each, SendToMany) for each in sender.subscribe())
        sender.later()
        for server in NUMBERS:
            reports += sender.confirm(server, sender.source.outgoing.version, is_multicast=False)
        sender.later(PAUSE_S / 50)
    assert reports == [MulticastMissed("b")]
    assert datagrams == MISSES_MAX + 1


def test_multicast_that_works_again_is_used_and_can_be_reported_again(sender: Sender) -> None:
    for _ in range(MISSES_MAX):
        sender.miss()
    sender.later(PAUSE_S)
    sender.subscribe()
    for server in NUMBERS:
        assert sender.confirm(server, sender.source.outgoing.version) == []
    assert [sender.miss() for _ in range(MISSES_MAX)][-1] == [MulticastMissed("b")]


def test_a_late_confirmation_of_a_datagram_is_no_miss(sender: Sender) -> None:
    for number in range(1, 3 * MISSES_MAX):
        sender.subscribe()
        sender.later()
        for server in NUMBERS:
            assert sender.confirm(server, number) == []
            assert sender.confirm(server, number, is_multicast=False) == [], "the answer to the repair"
    assert all(sender.multicast.may_reach(server, sender.now) for server in NUMBERS)


def test_a_new_link_begins_without_what_was_sent_before(sender: Sender) -> None:
    sender.subscribe()
    sender.source.outgoing.link_down("b", is_dead=False)
    assert by_link(sender.later()) == {"c": [1], "d": [1]}
    (position,) = sender.source.outgoing.link_up("b", sender.now)
    assert isinstance(position, SendToServer)
    assert sender.confirm("b", 1, is_multicast=False) == []
    whole = sender.source.outgoing.receive("c", InterestRequested(OWN, 1, 1), sender.now)
    assert [type(each.message) for each in whole if isinstance(each, SendToServer)] == [InterestWhole]
    assert by_link(sender.later(RETRY_S)) == {"c": [1], "d": [1]}


def test_bytes_that_are_no_change_are_refused(sender: Sender) -> None:
    with pytest.raises(RemoteProtocolError, match="not a change of interest"):
        decode_for_many(b"\xc1")
    change = datagram(sender.subscribe())
    assert change.for_server(1) == InterestChanged(OWN, 1, 1, 0, change.added, ())
