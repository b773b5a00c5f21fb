"""The operators of several domains: links that have settled, a cut, and what a gateway lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from demo import domains_operator
from demo.airlines import AIRLINES, CARRIERS, CUT_OFF, ORIGINS, PUBLISHERS, TRAVELLERS, airline_of, carriers_of
from demo.domains_operator import CutLink, DomainsOperator, faults, is_settled
from wanderbus.testbed import CannotRunError

GOOD = {"domain": "b", "is_linked": True, "is_settled": True, "filters": 3, "awaited": [], "lost": 0, "refused": 0}
ROW = {**GOOD, "not_received": 0}


class Crew:
    """A crew whose commands print the next row, and whose other processes follow no orders."""

    def __init__(self, rows: Sequence[dict[str, Any]] = ()) -> None:
        self.rows = list(rows)
        self.orders: list[dict[str, Any]] = []

    async def start(self, _: str, argv: Sequence[str], on_line: Callable[[str], None]) -> Any:
        if "status" in argv:
            on_line(json.dumps(self.rows.pop(0) if len(self.rows) > 1 else self.rows[0]))
        else:
            on_line('{"ready": true}')

        def send(order: dict[str, Any]) -> None:
            self.orders.append(order)
            on_line(json.dumps({"cut": order["do"] == "cut", "dropped": 5}))

        async def wait(_: float) -> int:
            return 0

        async def until(ready: asyncio.Event, _: float) -> None:
            assert ready.is_set()

        return SimpleNamespace(wait=wait, until=until, send=send, kill_now=lambda: None, last_words=lambda: "")


def context(crew: Crew, news: list[str]) -> Any:
    network = SimpleNamespace(command=lambda host, argv: [host, *argv], address=lambda host: f"10.0.0.{len(host)}")
    return SimpleNamespace(crew=crew, network=network, news=news.append)


def operator(crew: Crew) -> DomainsOperator:
    servers: Any = {AIRLINES[0].gateway: SimpleNamespace(data="data")}
    return DomainsOperator(context(crew, []), AIRLINES[:1], servers)


@pytest.mark.parametrize(
    "change", [{"is_linked": False}, {"is_settled": False}, {"filters": 0}, {"awaited": ["s2"]}], ids=str
)
def test_links_have_settled_once_all_filters_count(change: dict[str, Any]) -> None:
    assert is_settled([ROW])
    assert not is_settled([ROW, {**ROW, **change}])
    assert not is_settled([])


def test_the_run_waits_until_two_looks_in_turn_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains_operator, "LOOK_EACH_S", 0.0)
    crew = Crew(
        [{**ROW, "is_linked": False}, {**ROW, "filters": 1}, {**ROW, "filters": 2}, ROW, ROW, {**ROW, "filters": 9}]
    )
    asyncio.run(operator(crew).settled())
    assert crew.rows == [{**ROW, "filters": 9}]


def test_links_that_never_settle_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains_operator, "LOOK_EACH_S", 0.0)
    monkeypatch.setattr(domains_operator, "SETTLED_S_MAX", 0.05)
    with pytest.raises(CannotRunError, match=r"the links of delta\.example have not settled"):
        asyncio.run(operator(Crew([{**ROW, "is_linked": False}])).settled())


def test_events_that_a_gateway_lost_or_refused_are_faults() -> None:
    rows = [ROW, {**ROW, "domain": "c", "lost": 2, "not_received": 1}]
    assert faults({"a": rows}) == ["a has 2 events of c as lost", "a has 1 events of c as not received"]


def test_a_cut_ends_and_is_noted_also_if_the_run_is_interrupted() -> None:
    crew, news = Crew(), list[str]()
    link = CutLink(context(crew, news), CUT_OFF, AIRLINES[:2])

    async def story() -> None:
        await link.start()
        await link.cut(0.0)
        cutting = asyncio.create_task(link.cut(60.0))
        await asyncio.sleep(0)
        cutting.cancel()
        await asyncio.gather(cutting, return_exceptions=True)

    asyncio.run(story())
    assert [order["do"] for order in crew.orders] == ["cut", "mend"] * 2
    assert [cut["who"] for cut in link.cuts] == [CUT_OFF.domain] * 2
    assert "5 datagrams were dropped" in news[1]


def test_both_sides_of_the_link_reach_each_other_through_it() -> None:
    link = CutLink(context(Crew(), []), CUT_OFF, AIRLINES[:2])
    own, host = CUT_OFF.domain, f"10.0.0.{len(CUT_OFF.gateway)}"
    assert link.reached() == {
        (AIRLINES[0].domain, own): f"{host}:5901",
        (AIRLINES[1].domain, own): f"{host}:5901",
        (own, AIRLINES[0].domain): f"{host}:5902",
        (own, AIRLINES[1].domain): f"{host}:5903",
    }


def test_each_carrier_has_one_airline_and_each_airline_a_publisher_and_travellers() -> None:
    assert sorted(carrier for airline in AIRLINES for carrier in carriers_of(airline)) == sorted(CARRIERS)
    assert set(ORIGINS) == set(CARRIERS)
    assert [airline_of(user) for user in PUBLISHERS] == list(AIRLINES)
    assert {airline_of(user) for user in TRAVELLERS} == set(AIRLINES)
    assert len({user.name for user in (*PUBLISHERS, *TRAVELLERS)}) == len(PUBLISHERS) + len(TRAVELLERS)
    assert max(airline.domain for airline in AIRLINES) == CUT_OFF.domain
