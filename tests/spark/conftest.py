"""Logs to read (DESIGN 8)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.log_files import write_records
from tests.published import published
from wanderbus.event import Event
from wanderbus.records import Notified, Published, Record

START_US = 1_700_000_000_000_000


@pytest.fixture
def write_log(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes records as a log, some per segment, and publishes the mark."""

    def write(
        records: Sequence[Record], *, per_segment: int = 1_000_000, durable: int | None = None, name: str = "log"
    ) -> Path:
        return write_records(tmp_path / name, records, per_segment=per_segment, durable=durable)

    return write


@pytest.fixture
def make_published() -> Callable[..., Published]:
    """Return a function that makes the record of the event of one row of the input."""

    def make(row: int, users: Sequence[str] = (), subject: str = "Departure") -> Published:
        return published(
            Event(subject, {"Row": row, "Dest": "IAH"}, published_us=START_US + row * 1_000 - 500),
            at_us=START_US + row * 1_000,
            user="sip:airline@localhost",
            device="urn:uuid:1",
            epoch=1,
            number=row,
            notified=tuple(Notified(user, "default", row, ("north-1",)) for user in users),
        )

    return make
