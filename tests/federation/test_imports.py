"""Tests of events of a foreign domain that are published in the own one (SPEC M-01; decision 0161)."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from wanderbus import protocol
from wanderbus.broker.messages import LinkClosed, LinkOpened, MessageArrived
from wanderbus.errors import RemoteProtocolError
from wanderbus.event import Event, EventId
from wanderbus.federation.imported import Imported
from wanderbus.federation.imports import RETRY_S, WAITING_MAX, Imports
from wanderbus.federation.reports.loss_reports import PAUSE_S
from wanderbus.federation.wire import EventForwarded, EventsLost, EventsTaken
from wanderbus.limits import NUMBER_MAX

LINK = 500
WALL_US = 1_000_000


def imports(events_per_s_max: float | None = None) -> Imports:
    return Imports("alpha", "beta", frozenset({"T", "U"}), itertools.count(LINK).__next__, 7, events_per_s_max)


def event(number: int, subject: str = "T", server: str = "a1", incarnation: int = 3) -> EventForwarded:
    claimed = EventId("gamma/g1", 1, 1)  # the neighbour does not decide where an event is from
    raw = msgspec.Raw(protocol.encode_event(Event(subject, {"x": number}, origin=claimed)))
    return EventForwarded(server, 9, number, EventId(server, incarnation, 100 + number), raw)


def published(result: Imported) -> list[protocol.PublishFor]:
    """Return the events that were given to the broker."""
    messages = [protocol.decode_from_agent(each.payload) for each in result.for_broker if type(each) is MessageArrived]
    return [each for each in messages if isinstance(each, protocol.PublishFor)]


def accepted(request: int) -> bytes:
    return protocol.encode(protocol.PublishAccepted(request, EventId("b1", 1, request), True))


def refused(request: int, limit: str | None) -> bytes:
    return protocol.encode(protocol.PublishRefused(request, "because", limit, True))


def test_an_event_is_published_by_the_server_and_type_that_it_comes_from() -> None:
    result = imports().received(event(1), WALL_US, 0.0)
    opened, attach, publish = result.for_broker
    assert opened == LinkOpened(LINK, "sip:alpha@domains.beta", "import", is_server=True)
    assert isinstance(attach, MessageArrived)
    assert isinstance(protocol.decode_from_agent(attach.payload), protocol.Attach)
    assert isinstance(publish, MessageArrived)
    found = protocol.decode_from_agent(publish.payload)
    assert isinstance(found, protocol.PublishFor)
    assert (found.user, found.device) == ("sip:alpha@domains.beta", "a1/T")
    assert (found.epoch, found.number, found.is_outbox) == (3, 101, True)
    assert protocol.decode_event(bytes(found.event)) == Event("T", {"x": 1}, origin=EventId("alpha/a1", 3, 101))
    assert found.received_us == WALL_US


def test_events_are_acknowledged_in_their_order_once_they_are_durable() -> None:
    one = imports()
    for number in (1, 2, 3):
        assert one.received(event(number), WALL_US, 0.0).taken == []
    assert one.answered(accepted(2), 1.0).taken == []
    first = one.answered(accepted(1), 1.0)
    assert (first.taken, first.done) == ([EventsTaken("a1", 9, 2)], 2)
    assert one.answered(accepted(3), 1.0).taken == [EventsTaken("a1", 9, 3)]
    assert one.waiting == 0


def test_servers_do_not_wait_for_each_other() -> None:
    one = imports()
    one.received(event(1), WALL_US, 0.0)
    one.received(event(1, server="a2"), WALL_US, 0.0)
    assert one.answered(accepted(2), 1.0).taken == [EventsTaken("a2", 9, 1)]


def test_an_event_of_a_type_that_is_not_received_is_passed_over() -> None:
    one = imports()
    result = one.received(event(1, "V"), WALL_US, 0.0)
    assert (published(result), result.taken, result.done) == ([], [EventsTaken("a1", 9, 1)], 1)
    assert one.counts == {"not_received": 1}


@pytest.mark.parametrize(
    ("limit", "kind"), [(None, "refused"), ("event_bytes_max", "refused"), (protocol.NUMBER_USED, "repeated")]
)
def test_a_final_refusal_ends_the_event(limit: str | None, kind: str) -> None:
    one = imports()
    one.received(event(1), WALL_US, 0.0)
    assert one.answered(refused(1, limit), 1.0).taken == [EventsTaken("a1", 9, 1)]
    assert one.counts == {kind: 1}


def test_events_that_were_refused_for_now_are_published_again_in_order() -> None:
    one = imports()
    for number in (1, 2, 3):
        one.received(event(number), WALL_US, 0.0)
    result = one.answered(refused(1, "disk_full"), 5.0)
    assert (result.taken, result.retry_at) == ([], 5.0 + RETRY_S)
    for request in (2, 3):
        assert one.answered(refused(request, "disk_full"), 5.0).retry_at is None
    assert [each.number for each in published(one.retry(6.0))] == [101, 102, 103]
    for request in (1, 2):
        one.answered(accepted(request), 7.0)
    assert one.answered(accepted(3), 7.0).taken == [EventsTaken("a1", 9, 3)]


def test_events_behind_a_refused_one_wait_until_its_device_has_all_answers() -> None:
    one = imports()
    for number in (1, 2):
        one.received(event(number), WALL_US, 0.0)
    one.answered(refused(1, "disk_full"), 0.0)
    assert published(one.received(event(3), WALL_US, 0.5)) == []
    assert [each.device for each in published(one.received(event(4, "U"), WALL_US, 0.5))] == ["a1/U"]
    waits = one.retry(1.0)
    assert (published(waits), waits.retry_at) == ([], 1.0 + RETRY_S)
    one.answered(refused(2, "disk_full"), 1.5)
    assert [each.number for each in published(one.retry(2.0))] == [101, 102, 103]


def test_a_link_that_the_broker_drops_is_opened_again() -> None:
    one = imports()
    one.received(event(1), WALL_US, 0.0)
    assert one.dropped(5.0).retry_at == 5.0 + RETRY_S
    again = one.retry(6.0)
    assert isinstance(again.for_broker[0], LinkOpened)
    assert again.for_broker[0].link == LINK + 1
    assert [each.number for each in published(again)] == [101]


def test_waiting_events_are_forgotten_with_the_link_to_the_foreign_domain() -> None:
    one = imports()
    one.received(event(1), WALL_US, 0.0)
    ended = one.end()
    assert isinstance(ended.for_broker[0], LinkClosed)
    assert (ended.done, one.waiting) == (1, 0)
    assert one.answered(accepted(1), 1.0).taken == []
    assert [each.number for each in published(one.received(event(1), WALL_US, 2.0))] == [101]


def test_a_loss_is_acknowledged_and_counted() -> None:
    one = imports()
    lost = EventsLost("a1", 9, 5, 5, "notifications_max")
    result = one.received(lost, WALL_US, 0.0)
    assert (result.lost, result.taken, result.report_at) == (lost, [EventsTaken("a1", 9, 5)], PAUSE_S)
    assert one.counts == {"lost": 5}


def test_no_more_events_a_second_are_published_than_the_bound() -> None:
    one = imports(events_per_s_max=2.0)
    results = [one.received(event(number), WALL_US, 0.0) for number in range(1, 6)]
    assert [len(published(each)) for each in results] == [1, 1, 0, 0, 0]
    retry_at = results[2].retry_at
    assert retry_at == pytest.approx(0.5)
    assert [each.number for each in published(one.retry(0.5))] == [103]


def test_events_that_are_read_again_replace_what_waits_of_their_server() -> None:
    one = imports()
    for number in (1, 2, 3):
        one.received(event(number), WALL_US, 0.0)
    one.received(event(1, server="a2"), WALL_US, 0.0)
    again = one.received(event(1), WALL_US, 1.0)
    assert (again.done, one.waiting) == (3, 2)
    assert one.answered(accepted(3), 1.0).taken == []
    assert one.answered(accepted(5), 1.0).taken == [EventsTaken("a1", 9, 1)]


def test_a_domain_that_ignores_its_windows_is_an_error() -> None:
    one = imports()
    for number in range(1, WAITING_MAX + 1):
        one.received(event(number), WALL_US, 0.0)
    with pytest.raises(RemoteProtocolError, match="more than it may"):
        one.received(event(WAITING_MAX + 1), WALL_US, 0.0)


def test_a_domain_with_too_many_servers_is_an_error() -> None:
    one = imports()
    for server in range(256):
        one.received(event(1, server=f"a{server}"), WALL_US, 0.0)
    with pytest.raises(RemoteProtocolError, match="more than 256 servers"):
        one.received(event(1, server="b"), WALL_US, 0.0)


def test_servers_that_a_domain_names_are_counted_over_all_links() -> None:
    one = imports()
    for server in range(128):
        one.received(event(1, server=f"a{server}"), WALL_US, 0.0)
        one.received(
            msgspec.structs.replace(event(2, server=f"a{server}"), id=EventId(f"o{server}", 1, 1)), WALL_US, 0.0
        )
        one.end()
    for unknown in (event(1, server="b"), msgspec.structs.replace(event(1), id=EventId("b", 1, 1))):
        with pytest.raises(RemoteProtocolError, match="more than 256 servers"):
            one.received(unknown, WALL_US, 0.0)
    one.received(event(3), WALL_US, 0.0)


def test_losses_are_counted_and_reported_now_and_then() -> None:
    one = imports()
    results = [one.received(EventsLost("a1", 9, each, NUMBER_MAX, ""), WALL_US, 0.0) for each in range(1, 100)]
    assert [(each.lost is not None, each.report_at) for each in results] == [(True, PAUSE_S), *[(False, None)] * 98]
    assert all(each.taken for each in results)
    late = one.losses_due(PAUSE_S)
    assert (late.lost, late.report_at) == (EventsLost("a1", 9, 99, NUMBER_MAX, ""), 2 * PAUSE_S)
    assert one.losses_due(2 * PAUSE_S) == Imported()
    again = EventsLost("a2", 9, 1, 1, "log_keep")
    assert one.received(again, WALL_US, 2 * PAUSE_S).lost == again
    for number, count in ((2, 3), (3, 4)):
        one.received(EventsLost("a2", 9, number, count, "log_keep"), WALL_US, 2 * PAUSE_S)
    assert one.losses_due(3 * PAUSE_S).lost == EventsLost("a2", 9, 3, 7, "log_keep")
    assert one.counts == {"lost": NUMBER_MAX}


def test_repeats_of_one_event_leave_one() -> None:
    one = imports(events_per_s_max=1.0)
    for _ in range(1_000):
        one.received(event(1), WALL_US, 0.0)
    assert (one.waiting, len(one._requests), len(one._unpublished)) == (1, 1, 1)
