"""The benchmark of a reader among subscriptions that have no reader, small, with real agents (SPEC G-25)."""

from __future__ import annotations

import pytest

from bench import broker_unread
from wanderbus.broker.interest.matcher import COMPILED_FROM_EVENTS
from wanderbus.parameters.broker import BrokerConfig

pytestmark = pytest.mark.integration


def test_every_kind_is_read_to_the_end_and_has_its_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, less in (("UNREAD", 3), ("WARMING", 10), ("SETTLE_S", 0.0)):
        monkeypatch.setattr(broker_unread, name, less)
    figures = broker_unread.beside_unread(200, 2)
    assert figures.pop("events") == 200
    rates = {f"{kind}_per_s" for kind in broker_unread.KINDS}
    assert set(figures) == rates | {"other_events_ratio", "same_events_ratio"}
    assert min(figures.values()) > 0


def test_windows_are_full_and_the_kernel_is_asked_for_when_it_begins() -> None:
    assert broker_unread.WARMING > COMPILED_FROM_EVENTS
    assert BrokerConfig().unacknowledged_max < broker_unread.FILLING
