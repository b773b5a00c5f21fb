"""Commits record how far a table is and its misfits, under ids that later versions find again (decision 0068)."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from wanderbus.errors import StorageError
from wanderbus.pipeline.lake.delta import LakeTable, application_of, committed, misfits_in
from wanderbus.pipeline.tables import RECORDS, named
from wanderbus.segments import LogPlace

LOG = "wb-7"
APPLICATION = "wb-7/records"


def test_a_lake_of_before_is_continued_under_the_same_ids(tmp_path: Path) -> None:
    table = LakeTable(tmp_path, RECORDS)
    table.commit(table.create(LOG), [], ends={APPLICATION: LogPlace(9)})
    delta = DeltaTable(table.directory)
    assert application_of(LOG, RECORDS) == APPLICATION
    assert (delta.transaction_version(APPLICATION), committed(table.create(LOG), APPLICATION)) == (9, 9)
    assert committed(delta, "wb-8/records") is None


def test_a_table_of_another_incarnation_is_refused(tmp_path: Path) -> None:
    LakeTable(tmp_path, RECORDS).create(LOG)
    with pytest.raises(StorageError, match="has the log wb-7, not wb-8"):
        LakeTable(tmp_path, RECORDS).create("wb-8")


def test_misfits_add_up_until_the_rows_are_replaced(tmp_path: Path) -> None:
    table = LakeTable(tmp_path, named("events"))
    found = [misfits_in(table.create(LOG))]
    for misfits in (3, 0, 4):
        table.commit(table.load(), [], ends={"wb-7/events": LogPlace(9)}, misfits=misfits)
        found.append(misfits_in(table.load()))
    table.commit(table.load(), [])
    table.load().create_checkpoint()
    found.append(misfits_in(table.load()))
    for misfits in (1, 0):
        table.commit(table.load(), [], replaces=True, misfits=misfits)
        found.append(misfits_in(table.load()))
    assert found == [0, 3, 3, 7, 7, 1, 0]
