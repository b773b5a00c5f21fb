"""Events of foreign domains, published here through a gateway: once, and in the order of their origin (SPEC M-01)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.broker.access_desk import NORTHERN, OWN, ForwardingDesk
from tests.broker.desk import SUBJECT, Desk, raw
from tests.broker.test_foreign_domains import BETA, foreign
from tests.broker.test_held_publishes import NORTH as HELD_NORTH
from tests.broker.test_held_publishes import WEST, LeaderDesk
from tests.broker.test_publish_for import SOUTH
from tests.broker.test_server_sessions import Hub, stream
from wanderbus.broker.messages import DiskFreed, DiskFull
from wanderbus.broker.publish import foreign_publishers, outbox_orders
from wanderbus.broker.publish.decisions import Source
from wanderbus.broker.publish.outbox_orders import OutboxOrders
from wanderbus.event import Event, EventId
from wanderbus.limits import EVENT_BYTES_MAX, FORWARDED_BYTES_MAX, HELD_BYTES_MAX, ORIGIN_BYTES_MAX
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import (
    NUMBER_USED,
    Publish,
    PublishAccepted,
    PublishFor,
    PublishRefused,
    decode_event,
    encode_event,
)
from wanderbus.protocol.outbox_order import OUT_OF_TURN
from wanderbus.records import Published


def of_beta(
    number: int, subject: str = SUBJECT, *, request: int | None = None, epoch: int = 5, server: str = "b1", **more: Any
) -> PublishFor:
    """An event that a server of another domain has accepted; its ``N`` is its number."""
    event = raw(Event(subject, {"N": number, **more}))
    device = f"{server}/{subject}"
    return PublishFor(number if request is None else request, BETA, device, epoch, number, event, 0, is_outbox=True)


def answers(desk: Desk, link: int) -> list[tuple[int, EventId | str | None]]:
    """Number of each answer, with the id of the event, or the limit of its refusal; since the last call."""
    found: list[tuple[int, EventId | str | None]] = []
    kept = []
    for each in desk.out.get(link, ()):
        if isinstance(each, PublishAccepted):
            found.append((each.number, each.id))
        elif isinstance(each, PublishRefused):
            found.append((each.number, each.limit))
        else:
            kept.append(each)
    desk.out[link] = kept
    return found


def refused(desk: Desk, link: int) -> list[tuple[int, str | None]]:
    """Number and limit of each refusal since the last call."""
    return [(number, each) for number, each in answers(desk, link) if not isinstance(each, EventId)]


def numbers(desk: Desk) -> list[int]:
    """The ``N`` of each event in the log."""
    return [record.event["N"] for record in desk.written(Published)]  # type: ignore[misc]


@pytest.fixture
def hub() -> Hub:
    return Hub()


@pytest.fixture
def desk() -> ForwardingDesk:
    return ForwardingDesk()


# Here ----------------------------------------------------------------------------------------------------------------


def test_a_record_with_the_identifier_of_the_origin_and_its_delivery(hub: Hub) -> None:
    alice, north, beta = hub.attach(), hub.server(), foreign(hub)
    hub.subscribed(alice)
    hub.subscribed(north)
    hub.send(beta, of_beta(7, request=3))
    (record,) = hub.written(Published)
    accepted = record.acceptance
    assert (accepted.user, accepted.device, accepted.epoch, accepted.number) == (BETA, f"b1/{SUBJECT}", 5, 7)
    assert accepted.outbox
    assert answers(hub, beta) == [(3, accepted.id)]
    assert (hub.stream(alice), stream(hub.came(north))) == ([7], [7])


def test_the_origin_that_a_gateway_gives_and_that_a_user_claims(hub: Hub) -> None:
    """A user would else have events passed over as repeats of another domain's."""
    alice, beta = hub.attach(), foreign(hub)
    hub.subscribed(alice)
    origin = EventId("beta/b1", 5, 7)
    event = Event(SUBJECT, {"N": 7}, origin=origin)
    hub.send(beta, msgspec.structs.replace(of_beta(7), event=raw(event)))
    hub.send(alice, Publish(1, event, 1))
    given, claimed = hub.written(Published)
    assert decode_event(bytes(given.acceptance.event)).origin == origin
    assert not decode_event(bytes(claimed.acceptance.event)).origin


@pytest.mark.parametrize("more", [0, ORIGIN_BYTES_MAX])
def test_the_origin_counts_beyond_the_largest_size_of_an_event(hub: Hub, more: int) -> None:
    """An event as large as a user may publish is accepted with its origin."""
    beta = foreign(hub)
    empty = len(encode_event(Event(SUBJECT, {"text": "x" * 256})))  # from here on a length takes two bytes
    text = "x" * (EVENT_BYTES_MAX - empty + 256 + more)
    event = Event(SUBJECT, {"text": text}, origin=EventId("beta/b1", 5, 7))
    hub.send(beta, msgspec.structs.replace(of_beta(7), event=raw(event)))
    assert len(hub.written(Published)) == (0 if more else 1)


def test_permissions_of_users_are_not_those_of_foreign_domains() -> None:
    config = BrokerConfig(server="south", domain="example.org", may_publish={"*": ()})
    hub, desk = Hub(config), ForwardingDesk(config)
    beta = foreign(hub)
    hub.send(beta, of_beta(1))
    assert numbers(hub) == [1]
    desk.send(foreign(desk), of_beta(1, NORTHERN))
    assert len(desk.forwarded()) == 1


def test_events_that_nobody_may_publish_are_refused_and_hold_back_nothing(hub: Hub) -> None:
    beta = foreign(hub)
    broken = msgspec.structs.replace(of_beta(3), event=msgspec.Raw(b"\x80"))
    hub.send(beta, of_beta(1), of_beta(2, Text="x" * 70_000), broken, of_beta(4))
    assert refused(hub, beta) == [(2, "event_bytes_max"), (3, None)]
    assert numbers(hub) == [1, 4]


@pytest.mark.parametrize("with_rows", [False, True])
def test_the_first_answer_for_a_repeat_on_the_link_of_another_gateway(hub: Hub, with_rows: bool) -> None:
    beta = foreign(hub)
    hub.send(beta, of_beta(1), of_beta(2))
    first = answers(hub, beta)
    hub.save()
    hub.restart(with_rows=with_rows)
    again = foreign(hub)
    hub.send(again, of_beta(1), of_beta(2), of_beta(3))
    assert answers(hub, again)[:2] == first
    assert numbers(hub) == [1, 2, 3]


@pytest.mark.parametrize("by_server", [False, True])
def test_a_repeat_without_an_answer_was_accepted_before_and_holds_back_nothing(by_server: bool) -> None:
    """The leader may have forgotten the answer; an earlier epoch is that of another log of the origin."""
    hub = Hub(BrokerConfig(publishes_remembered=1))
    link = hub.server() if by_server else foreign(hub)
    hub.send(link, of_beta(1), of_beta(2), of_beta(1, request=11))
    hub.send(link, of_beta(1, epoch=6, request=12), of_beta(2, request=13), of_beta(2, epoch=6, request=14))
    assert refused(hub, link) == [(11, NUMBER_USED), (13, NUMBER_USED)]
    assert [record.acceptance.epoch for record in hub.written(Published)] == [5, 5, 6, 6]


def test_another_event_under_a_number_that_was_used_holds_back_nothing(hub: Hub) -> None:
    beta = foreign(hub)
    hub.send(beta, of_beta(1), of_beta(1, More=1), of_beta(2))
    assert refused(hub, beta) == [(1, NUMBER_USED)]
    assert numbers(hub) == [1, 2]


def test_a_temporary_refusal_holds_back_the_later_events_of_the_same_device(hub: Hub) -> None:
    beta = foreign(hub)
    hub.give(DiskFull())
    hub.send(beta, of_beta(1))
    hub.give(DiskFreed())
    hub.send(beta, of_beta(2), of_beta(2, "Other"), of_beta(2, server="b2"), of_beta(2, epoch=6, request=9))
    assert refused(hub, beta) == [(1, "disk_full"), (2, "disk_full")]
    hub.send(beta, of_beta(1), of_beta(2))
    assert [record.acceptance.number for record in hub.written(Published)] == [2, 2, 2, 1, 2]


def test_an_event_that_another_gateway_has_published_meanwhile_holds_back_nothing(hub: Hub) -> None:
    north, south = hub.server(), hub.server(SOUTH)
    hub.give(DiskFull())
    hub.send(north, of_beta(1))
    hub.give(DiskFreed())
    hub.send(south, of_beta(1), of_beta(2))
    hub.send(north, of_beta(3))
    assert numbers(hub) == [1, 2, 3]


def test_the_first_device_is_forgotten_if_too_many_have_events_to_send_again(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_orders, "FOREIGN_ORDERS_MAX", 2)
    beta = foreign(hub)
    hub.give(DiskFull())
    hub.send(beta, *[of_beta(1, server=name) for name in ("b1", "b2", "b3")])
    hub.give(DiskFreed())
    answers(hub, beta)
    hub.send(beta, *[of_beta(2, server=name, request=n) for n, name in enumerate(("b1", "b2", "b3"))])
    assert refused(hub, beta) == [(1, "disk_full"), (2, "disk_full")]


@pytest.mark.parametrize("with_rows", [False, True])
def test_the_number_of_publishers_of_a_foreign_domain_is_bounded(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, with_rows: bool
) -> None:
    monkeypatch.setattr(foreign_publishers, "FOREIGN_PUBLISHERS_MAX", 2)
    beta = foreign(hub)
    hub.send(beta, *[of_beta(1, server=name, request=n) for n, name in enumerate(("b1", "b2", "b3", "b1"))])
    hub.send(beta, of_beta(2, server="b1"))
    assert refused(hub, beta) == [(2, "foreign_publishers_max")]
    hub.save()
    hub.restart(with_rows=with_rows)
    beta = foreign(hub)
    hub.send(beta, of_beta(1, server="b3"), of_beta(3, server="b1"))
    assert refused(hub, beta) == [(1, "foreign_publishers_max")]
    assert numbers(hub) == [1, 1, 2, 3]


def test_events_of_a_whole_foreign_domain_that_wait_for_reports_about_interest_are_bounded() -> None:
    desk, big = LeaderDesk(), "x" * 2**14
    beta = foreign(desk)
    most = HELD_BYTES_MAX // 2**14
    desk.send(beta, *[of_beta(1, OWN, request=n, server=f"b{n}", T=big) for n in range(most + 3)])
    late = [number for number, _ in refused(desk, beta)]
    assert late == list(range(late[0], most + 3)) != []
    desk.settle(HELD_NORTH, WEST)
    assert [number for number, _ in answers(desk, beta)] == list(range(late[0]))


# At the leader of the channel ----------------------------------------------------------------------------------------


def test_the_leader_gets_the_identifier_of_the_origin_and_its_answer_is_passed_on(desk: ForwardingDesk) -> None:
    beta = foreign(desk)
    desk.send(beta, of_beta(7, NORTHERN, request=3))
    (forwarded,) = desk.forwarded()
    assert forwarded == msgspec.structs.replace(of_beta(7, NORTHERN), request=1)
    desk.answered(1)
    assert answers(desk, beta) == [(3, EventId("north", 3, 900))]
    assert desk.written(Published) == []


def test_bytes_that_wait_for_leaders_are_bounded_and_nothing_overtakes(desk: ForwardingDesk) -> None:
    beta, big = foreign(desk), "x" * 2**14
    most = FORWARDED_BYTES_MAX // 2**14
    desk.send(beta, *[of_beta(n, NORTHERN, T=big) for n in range(1, most + 3)])
    late = [number for number, limit in refused(desk, beta) if limit == "forwarded_bytes_max"]
    assert late
    for each in desk.forwarded():
        desk.answered(each.request)
    desk.send(beta, of_beta(most + 3, NORTHERN))
    assert desk.forwarded() == []
    desk.send(beta, of_beta(late[0], NORTHERN))
    assert [each.number for each in desk.forwarded()] == [late[0]]


@pytest.mark.parametrize("is_open", [True, False])
def test_a_temporary_refusal_of_the_leader_takes_back_what_is_behind_it(desk: ForwardingDesk, is_open: bool) -> None:
    beta = foreign(desk)
    desk.send(beta, *[of_beta(n, NORTHERN) for n in (1, 2, 3)], of_beta(3, NORTHERN, server="b2", request=9))
    if not is_open:
        desk.close(beta)
    desk.answered(1)
    desk.refuses(2)
    assert desk.forgotten == [3]
    desk.answered(4)
    assert "events" not in desk.broker.diagnostics.waiting()
    if is_open:
        assert [number for number, _ in answers(desk, beta)] == [1, 2, 3, 9]


def test_later_events_wait_here_until_the_refused_one_is_sent_again(desk: ForwardingDesk) -> None:
    beta = foreign(desk)
    desk.send(beta, of_beta(1, NORTHERN), of_beta(2, NORTHERN))
    desk.refuses(1)
    out_of_turn = desk.received(beta, PublishRefused)[-1]
    assert (out_of_turn.number, out_of_turn.reason, out_of_turn.limit) == (2, OUT_OF_TURN, "disk_full")
    desk.forwarded()
    desk.send(beta, of_beta(3, NORTHERN))
    assert desk.forwarded() == []
    desk.send(beta, of_beta(1, NORTHERN), of_beta(2, NORTHERN))
    assert [each.number for each in desk.forwarded()] == [1, 2]


@pytest.mark.parametrize("limit", [None, NUMBER_USED, "event_bytes_max"])
def test_a_refusal_of_the_leader_that_is_final_holds_back_nothing(desk: ForwardingDesk, limit: str | None) -> None:
    beta = foreign(desk)
    desk.send(beta, of_beta(1, NORTHERN), of_beta(2, NORTHERN))
    desk.refuses(1, limit)
    desk.answered(2)
    desk.send(beta, of_beta(3, NORTHERN))
    assert desk.forgotten == []
    assert [each.number for each in desk.forwarded()] == [1, 2, 3]
    assert [number for number, _ in answers(desk, beta)] == [1, 2]


def test_an_event_that_was_accepted_where_its_channel_was_led_holds_back_nothing(hub: Hub) -> None:
    beta = foreign(hub)
    link = hub.broker._links.get(beta)
    assert link is not None
    orders = OutboxOrders(hub.broker._links)
    sources = [Source(BETA, "b1/T", 5, n, True, "key", n, 0, is_foreign=True) for n in (1, 2, 3)]
    orders.refused(link, sources[0], "disk_full")
    orders.refused(link, sources[1], "disk_full")
    assert orders.awaited(link, sources[2]) == "disk_full"
    assert orders.awaited(link, sources[1], accepted=1) is None
    assert orders.awaited(link, sources[2], accepted=1) == "disk_full"
