"""The stock exchange of the papers: scripted quotes of an afternoon give the expected notifications (SPEC Q-05)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from examples.stock_exchange import CHEAP
from tests.broker.desk import BOB, START_US, Desk
from wanderbus.event import Event
from wanderbus.protocol import Notify, Publish, decode_event
from wanderbus.subscription import Daily, Frequency

SUBJECT = "StockExchange"
QUOTES = (
    ("15:59:50", "PETR4", 24.0, False),  # before the window
    ("16:00:00", "PETR4", 24.1, True),
    ("16:00:14", "PETR4", 24.2, False),  # 14 s after the last notification
    ("16:00:15", "PETR4", 24.3, True),
    ("16:00:40", "PETR4", 25.0, False),  # not below 25
    ("16:00:41", "VALE3", 24.0, False),  # another stock
    ("16:00:42", "PETR4", 24.4, True),
    ("16:59:59", "PETR4", 24.5, True),
    ("17:00:00", "PETR4", 24.6, False),  # the end is outside
    ("17:30:00", "PETR4", 24.7, False),
)
"""Time of day, stock, price, and whether the investor is notified."""


@pytest.mark.parametrize("days", [1, 2])
def test_q05_quotes_of_an_afternoon_give_the_expected_notifications(days: int) -> None:
    """Price below 25, at most every 15 s, from 16:00 to 17:00 every day."""
    desk = Desk()
    link, exchange = desk.attach(), desk.attach(BOB)
    restrictions = (Frequency(15.0), Daily("16:00", "17:00", "UTC"))
    desk.subscribed(link, CHEAP, subject=SUBJECT, restrictions=restrictions)
    start = datetime.fromtimestamp(START_US / 1e6, UTC)
    number = 0
    for day in range(1, days + 1):
        date = (start + timedelta(days=day)).date()
        for clock, stock, price, _ in QUOTES:
            at = datetime.fromisoformat(f"{date} {clock}+00:00")
            desk.later((at - start).total_seconds() - desk.now)
            number += 1
            desk.send(exchange, Publish(number, Event(SUBJECT, {"StockName": stock, "Price": price})))
    found = [decode_event(bytes(each.event))["Price"] for each in desk.received(link, Notify)]
    assert found == [price for _, _, price, notified in QUOTES if notified] * days
