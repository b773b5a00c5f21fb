"""A number that comes again for another event: a publisher that was restored, or that runs twice (SPEC X25, G-20)."""

from __future__ import annotations

import msgspec
import pytest

from tests.broker.desk import Desk
from tests.broker.test_outbox_order import answers, published
from wanderbus.event import Event
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.protocol import Publish

SUBJECT = "Trade"


def send(desk: Desk, link: int, number: int, value: int, outbox: int | None = 77) -> None:
    desk.send(link, Publish(number, Event(SUBJECT, {"N": value}), outbox=outbox))


@pytest.mark.parametrize("outbox", [77, None])
@pytest.mark.parametrize("restart", ["no", "from the log", "from saved rows"])
def test_another_event_under_a_used_number_is_refused(desk: Desk, restart: str, outbox: int | None) -> None:
    link = desk.attach(epoch=1)
    for number in (1, 2, 3):
        send(desk, link, number, number, outbox)
    if restart != "no":
        desk.save()
        desk.restart(with_rows=restart == "from saved rows")
        link = desk.attach(epoch=1)
    desk.out.clear()
    send(desk, link, 2, 2, outbox)
    send(desk, link, 2, 20, outbox)
    send(desk, link, 3, 30, outbox)
    assert answers(desk, link) == [(2, True, None), (2, False, "number_used"), (3, False, "number_used")]
    assert len(published(desk)) == 3


def test_in_another_epoch_the_refused_events_are_accepted_in_order(desk: Desk) -> None:
    link = desk.attach()
    for number in (1, 2, 3):
        send(desk, link, number, number)
    for number in (2, 3, 4):
        send(desk, link, number, 10 * number)
    assert len(published(desk)) == 3, "4 is new in its epoch, but waits for 2 and 3"
    for number in (2, 3, 4):
        send(desk, link, number, 10 * number, outbox=78)
    assert published(desk) == [1, 2, 3, 2, 3, 4]


def test_a_number_without_a_remembered_answer_needs_another_epoch() -> None:
    desk = Desk(BrokerConfig(publishes_remembered=2))
    link = desk.attach()
    for number in (1, 2, 3, 4):
        send(desk, link, number, number)
    desk.out.clear()
    send(desk, link, 1, 10)
    send(desk, link, 4, 4)
    assert answers(desk, link) == [(1, False, "number_used"), (4, True, None)]


def test_an_outbox_that_was_restored_in_an_earlier_epoch_needs_another(desk: Desk) -> None:
    link = desk.attach()
    send(desk, link, 1, 1)
    send(desk, link, 2, 2)
    send(desk, link, 2, 20, outbox=78)
    desk.out.clear()
    send(desk, link, 2, 20)
    assert answers(desk, link) == [(2, False, "number_used")]
    send(desk, link, 2, 20, outbox=79)
    assert published(desk) == [1, 2, 2, 2]


def test_an_event_that_cannot_be_published_is_not_the_one_of_its_number(desk: Desk) -> None:
    link = desk.attach()
    send(desk, link, 1, 1)
    desk.out.clear()
    desk.send(link, Publish(1, Event("", {}), outbox=77))
    assert answers(desk, link) == [(1, False, "number_used")]


def test_state_of_earlier_versions_has_no_checksums_and_its_numbers_are_trusted(desk: Desk) -> None:
    link = desk.attach()
    send(desk, link, 1, 1)
    for key, row in list(desk.broker.state.publishers.items()):
        desk.broker.state.publishers.put(key, msgspec.structs.replace(row, digests={}))
    desk.out.clear()
    send(desk, link, 1, 10)
    assert answers(desk, link) == [(1, True, None)]
