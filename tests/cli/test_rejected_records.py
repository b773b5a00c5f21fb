"""No command is content with a lake that misses rows of records which its tables rejected (SPEC T-03, T-08)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.log_files import write_records
from tests.published import published
from wanderbus.cli.application import run
from wanderbus.cli.pipeline import backfill, reconcile, report
from wanderbus.cli.pipeline import run as run_command
from wanderbus.event import Event
from wanderbus.pipeline.lake.delta import LakeTable
from wanderbus.pipeline.lake.table_files import TableFiles, arrow_schema, new_attempt
from wanderbus.pipeline.tables import QUARANTINE, named
from wanderbus.records import Notified

pytestmark = pytest.mark.spark
START_US = 1_700_000_000_000_000
BOB = "sip:bob@localhost"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The data directory of a server whose log has 6 events, each with a notification."""
    records = [
        published(
            Event("Departure", {"Delay": 31.5}),
            number=number,
            at_us=START_US + number,
            notified=(Notified(BOB, "default", number, ("s1",)),),
        )
        for number in range(6)
    ]
    return write_records(tmp_path / "data" / "log", records).parent


def reject_notifications(lake: Path) -> None:
    """Move the notifications of a lake to the quarantine, as a version did that could not read their batch."""
    notifications, quarantine = LakeTable(lake, named("notifications")), LakeTable(lake, QUARANTINE)
    delta = notifications.load()
    files = TableFiles(QUARANTINE, quarantine.directory, new_attempt())
    row = {"table": "notifications", "path": "log", "byte": 8, "reason": "cannot be decoded", "record": b""}
    rows = [{**row, "offset": offset} for offset in range(6)]
    files.write(pa.RecordBatch.from_pylist(rows, arrow_schema(QUARANTINE)))
    quarantine.commit(quarantine.load(), files.close(), ends={})
    notifications.commit(delta, [], removed=notifications.files(delta), ends={})


def test_rejected_records_are_named_until_the_table_has_them(
    use_session: Callable[..., None], data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use_session(backfill, reconcile, report, run_command)
    lake, log = data_dir / "lake", str(data_dir)
    page = data_dir / "report.html"
    advice = f"'wanderbus pipeline backfill notifications --lake {lake} --force' makes a table again"

    def wanderbus(*words: str, status: int = 3) -> str:
        assert run([*words, "--lake", str(lake)]) == status, words
        output = capsys.readouterr()
        is_named = "misses rows of records that its tables rejected: 6 of notifications;" in output.err
        assert is_named is (status == 3), output.err
        assert (advice in output.err) is is_named
        return output.out

    wanderbus("pipeline", "run", log, "--once", status=0)
    reject_notifications(lake)
    assert json.loads(wanderbus("pipeline", "run", log, "--once", "--json")) == {
        "added": {},
        "rejected": {"notifications": 6},
    }
    assert wanderbus("pipeline", "reconcile", log) == "1 segments, 6 records, 0 segments differ\n"
    found = json.loads(wanderbus("pipeline", "status", log, "--json"))
    assert {each["name"]: each["quarantined"] for each in found["tables"]}["notifications"] == 6
    assert "6 records rejected" in wanderbus("report", "--out", str(page))
    assert "class='verdict bad'>6 records rejected by the table notifications" in page.read_text()

    assert wanderbus("pipeline", "backfill", "notifications", "--force", status=0).endswith(
        "6 rows instead of 0, swapped\n"
    )
    wanderbus("pipeline", "status", log, status=0)
    wanderbus("pipeline", "run", log, "--once", status=0)
