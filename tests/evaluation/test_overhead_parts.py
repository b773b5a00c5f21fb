"""A consumer's record of its received events."""

from __future__ import annotations

import asyncio

import pytest

from wanderbus.evaluation.overhead import parts
from wanderbus.evaluation.overhead.parts import Ledger, Report, SampleReport
from wanderbus.event import Event


def event(number: int, published_us: int) -> Event:
    return Event("overhead", {"Number": number, "Published": published_us}, 0)


def test_sum_and_average_cover_all_events_and_each_latency_is_reported_once() -> None:
    async def play() -> list[SampleReport]:
        ledger = Ledger()
        ledger.take(event(0, 1_000), 4_000)
        ledger.take(event(1, 2_000), 3_000)
        first = await ledger.report(Report(1))
        ledger.take(event(2, 0), 2_000)
        return [first, await ledger.report(Report(2))]

    assert asyncio.run(play()) == [
        SampleReport(2, 0.004, 2.0, [3_000, 1_000]),
        SampleReport(3, 0.006, 2.0, [2_000]),
    ]


def test_a_warm_up_does_not_count() -> None:
    async def play() -> SampleReport:
        ledger = Ledger()
        ledger.take(event(-1, 0), 9_000)
        return await ledger.report(Report(-1))

    assert asyncio.run(play()) == SampleReport(0, 0.0, 0.0, [])


def test_a_report_waits_for_what_is_still_on_its_way() -> None:
    async def play() -> SampleReport:
        ledger = Ledger()
        reporting = asyncio.create_task(ledger.report(Report(1)))
        for number in range(2):
            await asyncio.sleep(0)
            assert not reporting.done()
            ledger.take(event(number, 0), 1_000)
        return await reporting

    assert asyncio.run(play()).events == 2


def test_lost_events_are_awaited_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LATE_S_MAX", 0.0)

    async def play() -> SampleReport:
        ledger = Ledger()
        ledger.take(event(0, 0), 1_000)
        return await ledger.report(Report(1))

    assert asyncio.run(asyncio.wait_for(play(), 5)).events == 1
