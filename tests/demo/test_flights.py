"""The input: rows of the real file become typed attributes, and missing values are left out."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from demo import ARRIVAL, DEPARTURE, flights
from wanderbus.event import Event, check_event
from wanderbus.testbed import CannotRunError


def test_first_row_of_the_installed_file_is_typed() -> None:
    (first,) = flights.read_slice(0, 1)
    assert first == {
        "Row": 0,
        "Carrier": "UA",
        "Tail": "N14228",
        "Origin": "EWR",
        "Dest": "IAH",
        "Year": 2013,
        "Month": 1,
        "Day": 1,
        "Flight": 1545,
        "SchedDep": 515,
        "DepTime": 517,
        "DepDelay": 2,
        "SchedArr": 819,
        "ArrTime": 830,
        "ArrDelay": 11,
        "AirTime": 227,
        "Distance": 1400,
        "SchedDepAt": datetime(2013, 1, 1, 10, 15, tzinfo=UTC),
    }


def test_a_cancelled_flight_has_no_delays_rather_than_zero() -> None:
    cancelled = [row for row in flights.read_slice(830, 20) if "DepTime" not in row]
    assert cancelled
    for row in cancelled:
        assert row.keys().isdisjoint({"DepDelay", "ArrDelay", "ArrTime", "AirTime"})
        assert row["SchedDep"] > 0


def test_a_slice_is_contiguous_and_in_the_order_of_the_file() -> None:
    assert [row["Row"] for row in flights.read_slice(700, 300)] == list(range(700, 1000))


def test_every_event_of_a_slice_may_be_published() -> None:
    for subject, attributes in flights.events(800, 200):
        check_event(Event(subject, attributes))


def test_each_flight_departs_before_it_arrives_unless_it_is_cancelled() -> None:
    events = list(flights.events(700, 300))
    rows = {row["Row"]: row for row in flights.read_slice(700, 300)}
    departed = [attributes["Row"] for subject, attributes in events if subject == DEPARTURE]
    arrived = [attributes["Row"] for subject, attributes in events if subject == ARRIVAL]
    assert departed == list(rows)
    assert arrived == [row for row, known in rows.items() if "ArrTime" in known]
    assert len(arrived) < len(departed)
    places = {(subject, attributes["Row"]): place for place, (subject, attributes) in enumerate(events)}
    assert all(places[DEPARTURE, row] < places[ARRIVAL, row] for row in arrived)


def test_a_departure_does_not_tell_the_arrival() -> None:
    events = list(flights.events(0, 10))
    for subject, attributes in events:
        assert flights.AT_ARRIVAL.isdisjoint(attributes) == (subject == DEPARTURE)


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights, "DISTRIBUTION", "no-such-package-here")
    with pytest.raises(CannotRunError, match="pip install"):
        flights.data_file()


def test_a_plain_csv_is_read_too(tmp_path: Path) -> None:
    names = (
        "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,"
        "tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
    )
    values = "2013,9,30,NA,840,NA,NA,1020,NA,MQ,3531,,LGA,RDU,NA,431,8,40,2013-09-30T12:00:00Z"
    path = tmp_path / "flights.csv"
    path.write_text(f"{names}\n{values}\n")
    (row,) = flights.read_slice(0, 5, path)
    assert row["Row"] == 0
    assert "Tail" not in row
    assert row["SchedDepAt"] == datetime(2013, 9, 30, 12, 40, tzinfo=UTC)
