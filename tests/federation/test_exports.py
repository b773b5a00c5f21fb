"""Tests of events that leave for a foreign domain: its sessions at the servers here (decision 0161)."""

from __future__ import annotations

import itertools

import msgspec

from wanderbus import protocol
from wanderbus.channels.interest.covering_index import Interest
from wanderbus.channels.interest.covering_set import InterestChange
from wanderbus.event import Event, EventId, Loss
from wanderbus.federation.circuit_messages import CircuitClosed, CircuitMessage, CircuitOpened
from wanderbus.federation.export_messages import ExportOutput, ToDomain, ToServer
from wanderbus.federation.exports import REOPEN_S, Exports
from wanderbus.federation.wire import EventForwarded, EventPassed, EventsLost, EventsTaken
from wanderbus.filters import parse
from wanderbus.filters.merging import filter_of
from wanderbus.filters.normalising import normal_form
from wanderbus.machine import SetTimer

EPOCH = 9


def interest(expression: str, subject: str = "T") -> Interest:
    (conjunction,) = normal_form(parse(expression))
    return Interest(subject, conjunction)


class Server:
    """The exports to a domain "beta", and one server "a1", whose broker the test is."""

    def __init__(self, *, has_order: bool = False) -> None:
        numbers = itertools.count(1).__next__
        self.exports = Exports("beta", frozenset({"T"}), ["a1"], numbers, 7, has_order=has_order)
        self.sent: list[protocol.FromAgent] = []
        """Messages for the broker of the server, since the last circuit."""
        self.for_domain: list[EventForwarded | EventPassed | EventsLost] = []
        self.timers: list[SetTimer] = []
        self.circuit = 0
        self.closed = 0
        self.taken = 0
        """Number that the server has acknowledged before."""

    def apply(self, outputs: list[ExportOutput]) -> None:
        for output in outputs:
            match output:
                case ToServer(message=CircuitOpened(circuit=circuit)):
                    self.circuit, self.sent = circuit, []
                case ToServer(message=CircuitMessage(payload=payload)):
                    self.sent.append(protocol.decode_from_agent(payload))
                case ToServer(message=CircuitClosed()):
                    self.closed += 1
                case ToDomain(message=message):
                    self.for_domain.append(message)
                case SetTimer():
                    self.timers.append(output)

    def answer(self, *messages: protocol.BrokerMessage) -> None:
        for each in messages:
            self.apply(self.exports.from_server("a1", [CircuitMessage(self.circuit, protocol.encode(each))], 0.0))

    def want(self, *added: Interest, removed: tuple[Interest, ...] = ()) -> None:
        self.apply(self.exports.wanted(InterestChange(added, removed), 0.0))

    def begin(self) -> None:
        """Let the server be up, and the link to the domain open; the broker attaches the session."""
        self.apply(self.exports.up("a1", 0.0))
        self.apply(self.exports.begin(0.0))
        self.answer(protocol.Attachment(EPOCH, taken=self.taken), protocol.Done(0, ()))

    def event(self, number: int, subject: str = "T", past: bytes = b"") -> None:
        event = Event(subject, {"x": number}, past=past or msgspec.UNSET)
        raw = msgspec.Raw(protocol.encode_event(event))
        self.answer(protocol.NotifyServer(number, number - 1, EventId("a1", 3, number), 5, raw))

    def acknowledge(self, number: int) -> None:
        self.apply(self.exports.taken(EventsTaken("a1", EPOCH, number), 0.0))

    def acknowledged(self) -> list[int]:
        return [each.number for each in self.sent if isinstance(each, protocol.NotifyAck)]

    def asked(self) -> list[tuple[str, str]]:
        return [(each.subject, each.expression) for each in self.sent if isinstance(each, protocol.Subscribe)]


def test_filters_of_the_domain_become_subscriptions_of_its_session() -> None:
    server = Server()
    server.want(interest("x > 5"))
    server.begin()
    assert server.asked() == [("T", filter_of(interest("x > 5").conjunction).text)]


def test_a_filter_of_a_type_that_is_not_sent_is_ignored() -> None:
    server = Server()
    server.want(interest("x > 5", "Secret"))
    server.begin()
    assert server.asked() == []
    server.want(removed=(interest("x > 5", "Secret"),))
    assert server.asked() == []


def test_no_circuit_is_open_before_the_link_and_the_server_are_there() -> None:
    server = Server()
    server.want(interest("x > 5"))
    server.apply(server.exports.up("a1", 0.0))
    assert server.circuit == 0
    server.apply(server.exports.begin(0.0))
    assert server.circuit == 1


def test_an_event_is_acknowledged_at_the_server_once_the_domain_has_taken_it() -> None:
    server = Server()
    server.want(interest("x > 5"))
    server.begin()
    server.event(1)
    server.event(2)
    assert [(each.server, each.number) for each in server.for_domain] == [("a1", 1), ("a1", 2)]
    assert server.acknowledged() == []
    server.acknowledge(1)
    assert server.acknowledged() == [1]


def test_an_event_of_a_child_is_passed_over_in_its_turn() -> None:
    server = Server()
    server.want(interest("x > 5"))
    server.begin()
    server.event(1, "Child")
    assert server.acknowledged() == [1]
    server.event(2)
    server.event(3, "Child")
    assert server.acknowledged() == [1]
    server.acknowledge(2)
    assert server.acknowledged() == [1, 3]
    assert [each.number for each in server.for_domain] == [2]


def test_a_past_that_cannot_be_read_names_no_domain_that_waits() -> None:
    server = Server(has_order=True)
    server.want(interest("x > 5"))
    server.begin()
    server.event(1, "Child", past=b"\xc1")
    assert server.acknowledged() == [1]
    assert server.for_domain == []


def test_a_loss_is_told_in_its_turn() -> None:
    server = Server()
    server.begin()
    server.answer(protocol.NotifyGap(1, 4, (Loss("s", "notifications_max", 4),)))
    assert server.for_domain == [EventsLost("a1", EPOCH, 4, 4, "notifications_max")]
    server.acknowledge(4)
    assert server.acknowledged() == [4]


def test_an_acknowledgement_of_more_than_was_sent_reaches_no_further() -> None:
    server = Server()
    server.want(interest("x > 5"))
    server.begin()
    server.event(1)
    server.acknowledge(100)
    assert server.acknowledged() == [1]
    server.apply(server.exports.taken(EventsTaken("a7", EPOCH, 1), 0.0))


def test_a_circuit_that_the_server_closes_is_opened_again_after_a_pause() -> None:
    server = Server()
    server.want(interest("x > 5"))
    server.begin()
    server.event(1)
    server.apply(server.exports.from_server("a1", [CircuitClosed(1, "kicked")], 5.0))
    assert server.timers == [SetTimer(("reopen", "a1"), 5.0 + REOPEN_S)]
    server.apply(server.exports.timer_fired(("reopen", "a1"), 7.0))
    assert server.circuit == 2
    server.answer(protocol.Attachment(EPOCH), protocol.Done(0, ()))
    server.event(1)
    assert [each.number for each in server.for_domain] == [1, 1]


def test_events_before_the_end_of_a_circuit_in_one_batch_are_sent() -> None:
    server = Server()
    server.want(interest("x > 5"))
    server.begin()
    raw = msgspec.Raw(protocol.encode_event(Event("T", {"x": 9})))
    notified = [protocol.NotifyServer(number, number - 1, EventId("a1", 3, number), 5, raw) for number in (1, 2)]
    batch = [CircuitMessage(1, protocol.encode(each)) for each in notified]
    server.apply(server.exports.from_server("a1", [*batch, CircuitClosed(1, "kicked")], 5.0))
    assert [each.number for each in server.for_domain] == [1, 2]
    assert server.timers == [SetTimer(("reopen", "a1"), 5.0 + REOPEN_S)]
    server.acknowledge(2)
    assert server.acknowledged() == []


def test_messages_of_an_earlier_circuit_are_ignored() -> None:
    server = Server()
    server.begin()
    server.apply(server.exports.down("a1", 1.0))
    server.apply(server.exports.up("a1", 2.0))
    raw = msgspec.Raw(protocol.encode_event(Event("T", {})))
    late = protocol.encode(protocol.NotifyServer(1, 0, EventId("a1", 3, 1), 5, raw))
    server.apply(server.exports.from_server("a1", [CircuitMessage(1, late)], 3.0))
    assert server.for_domain == []


def test_circuits_close_with_the_link_to_the_domain() -> None:
    server = Server()
    server.begin()
    server.apply(server.exports.end("the link is closed", 1.0))
    assert server.closed == 1
    server.apply(server.exports.begin(2.0))
    assert server.circuit == 2


def test_the_session_goes_on_where_its_server_says() -> None:
    server = Server()
    server.taken = 57
    server.want(interest("x > 5"))
    server.begin()
    assert server.acknowledged() == [57]
    server.event(58)
    assert [each.number for each in server.for_domain] == [58]


def test_an_event_of_a_type_that_is_sent_and_not_wanted_is_passed_over() -> None:
    server = Server()
    server.begin()
    server.event(1)
    server.want(interest("x > 5"))
    server.event(2)
    server.want(removed=(interest("x > 5"),))
    server.event(3)
    assert [each.number for each in server.for_domain] == [2]
