"""Listings of a broker that lies: one line of an error each, no traceback, no end without an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from wanderbus.cli.operator import listings
from wanderbus.client import listed_rows
from wanderbus.client.error_mapping import request_error
from wanderbus.client.machine.messages import RequestSettled
from wanderbus.client.operator import Operator
from wanderbus.errors import FilterError, Refused, RemoteProtocolError
from wanderbus.event import Gap
from wanderbus.protocol import RequestRefused

Answers = Callable[[Any], tuple[tuple[dict[str, Any], ...], str | None]]

SESSION = {"user": "a", "session": "b", "status": "x", "subscriptions": 1, "queued": 1, "delivered": 2}
SUBSCRIPTION = {
    **{"subscription": "wb-1", "state": "reading", "queued": 0, "oldest_s": None, "blocked_s": None, "user": "a"},
    **{"session": "b", "subject": "S", "expression": "", "language": "eci", "expires_us": None, "last_us": None},
}
SCHEMA = {"subject": "S", "version": 1, "attributes": [], "by": "sip:a@b", "at_us": 1, "offset": 1}


class Broker:
    """Takes the place of the agent's requests."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.asked = 0

    def next_request(self) -> int:
        self.asked += 1
        return self.asked

    def begin(self, request: Any) -> asyncio.Future[RequestSettled]:
        rows, after = self._answers(request)
        answer: asyncio.Future[RequestSettled] = asyncio.get_running_loop().create_future()
        answer.set_result(RequestSettled(request.request, (), rows=rows, next=after))
        return answer


def listed(what: str, answers: Answers, *arguments: object) -> list[Any]:
    async def run() -> list[Any]:
        operator = Operator(Broker(answers))  # type: ignore[arg-type]
        return [row async for row in getattr(operator, what)(*arguments)]

    return asyncio.run(run())


def deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("what", "row"),
    [
        ("sessions", {}),
        ("sessions", {**SESSION, "user": 1}),
        ("sessions", {**SESSION, "devices": 7}),
        ("sessions", {**SESSION, "devices": [{}]}),
        ("sessions", {**SESSION, "dropped": {"x": "y"}}),
        ("sessions", {**SESSION, "unread_subscriptions": [{}]}),
        ("sessions", {**SESSION, "dropped": deep(900)}),
        ("subscriptions", {**SUBSCRIPTION, "expires_us": "soon"}),
        ("subscriptions", {**SUBSCRIPTION, "restrictions": [{}]}),
        ("queues", SESSION),
        ("limits", {"limit": "x"}),
        ("schemas", {**SCHEMA, "version": None}),
        ("schemas", {**SCHEMA, "attributes": [{"name": "a", "type": "Number"}]}),
    ],
)
def test_rows_that_no_command_could_print_are_one_error(what: str, row: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError, match=f"listing of {what} cannot be read"):
        listed(what, lambda request: ((row,), None))


def test_fields_of_other_versions_are_ignored_however_deep() -> None:
    (row,) = listed("sessions", lambda request: (({**SESSION, "more": deep(900)},), None))
    assert (row.user, row.delivered, row.devices) == ("a", 2, ())


@pytest.mark.parametrize("what", ["sessions", "subscriptions", "queues", "limits", "bounds", "servers", "schemas"])
def test_a_listing_that_goes_on_where_it_was_ends(what: str) -> None:
    with pytest.raises(RemoteProtocolError, match="does not end"):
        listed(what, lambda request: ((), "here"))


def test_a_listing_that_always_goes_on_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed_rows, "PAGES_MAX", 50)
    with pytest.raises(RemoteProtocolError, match="does not end"):
        listed("sessions", lambda request: ((SESSION,), str(request.request)))


@pytest.mark.parametrize("after", ["-1", "x", "", "9" * 5_000, "\u0663"])
def test_a_queue_that_goes_on_from_no_number_ends(after: str) -> None:
    with pytest.raises(RemoteProtocolError, match="a cursor that is not a number"):
        listed("peek", lambda request: ((), after), "sip:a@b")


def test_a_queue_that_goes_on_where_it_was_ends() -> None:
    with pytest.raises(RemoteProtocolError, match="does not end"):
        listed("peek", lambda request: ((), "7"), "sip:a@b")


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"epoch": 1, "first": 1, "last": 1, "lost": [["wb-1"]]},
        {"epoch": 1, "first": 1, "last": 1, "event": {"subject": "S", "attributes": {"N": None}}, "id": ["wb", 1]},
        {"epoch": 1, "first": 1, "last": 1, "event": 5, "id": ["wb", 1]},
        {"epoch": -1, "first": 1, "last": 1},
    ],
)
def test_listed_entries_are_checked(row: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError, match="the broker"):
        listed("peek", lambda request: ((row,), None), "sip:a@b")


def test_gaps_still_come() -> None:
    row = {"epoch": 1, "first": 1, "last": 3, "lost": [["wb-1", "purged", 3]]}
    (gap,) = listed("peek", lambda request: ((row,), None), "sip:a@b")
    assert isinstance(gap, Gap)
    assert gap.count == 3


def test_a_purge_without_end_ends() -> None:
    broker: Any = Broker(lambda request: (({"purged": 1},), "1"))

    async def purge() -> int:
        return await Operator(broker).purge("sip:a@b")

    with pytest.raises(RemoteProtocolError, match="does not end"):
        asyncio.run(purge())


@pytest.mark.parametrize("rows", [(), (SCHEMA, SCHEMA)])
def test_a_declaration_is_answered_with_one_schema(rows: tuple[dict[str, Any], ...]) -> None:
    broker: Any = Broker(lambda request: (rows, None))

    async def declare() -> None:
        await Operator(broker).declare_schema("S", [])

    with pytest.raises(RemoteProtocolError, match=f"{len(rows)} schemas instead of one"):
        asyncio.run(declare())


@pytest.mark.parametrize("at_us", [2**62, -(2**62), 2**64 - 1])
def test_a_time_beyond_the_calendar_is_shown_as_its_number(at_us: int) -> None:
    assert str(at_us) in listings._instant(at_us)


@pytest.mark.parametrize("position", [-1, 6, 2**40])
def test_a_fault_pointed_at_outside_of_the_expression_is_not_pointed_at(position: int) -> None:
    error = request_error(RequestRefused(1, "no", position), "N > 1")
    assert isinstance(error, Refused)
    inside = request_error(RequestRefused(1, "no", 5), "N > 1")
    assert isinstance(inside, FilterError)
