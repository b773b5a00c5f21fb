"""Files of a log that another process may write: its durable mark, and unusable ones (SPEC T-01)."""

from __future__ import annotations

from pathlib import Path

import pytest

from wanderbus.errors import LogCorrupt, StorageError
from wanderbus.runtime.segment_files import durable_end, segment_paths
from wanderbus.segments import HIGH_WATER, pack_mark, segment_name


def test_the_mark_is_zero_until_published_and_an_unreadable_one_is_reported(tmp_path: Path) -> None:
    assert durable_end(tmp_path) == 0
    (tmp_path / HIGH_WATER).write_bytes(b"")
    assert durable_end(tmp_path) == 0
    (tmp_path / HIGH_WATER).write_bytes(b"x" * 12)
    with pytest.raises(LogCorrupt, match="has no durable mark"):
        durable_end(tmp_path)
    (tmp_path / HIGH_WATER).write_bytes(pack_mark(7))
    assert durable_end(tmp_path) == 7


def test_a_mark_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / HIGH_WATER).mkdir()
    with pytest.raises(StorageError, match=f"{HIGH_WATER} cannot be read: Is a directory; restore it from a copy"):
        durable_end(tmp_path)


def test_only_segments_count_and_in_order_of_their_offsets(tmp_path: Path) -> None:
    for name in (segment_name(1000), segment_name(9), "7.seg", "aside.seg", f"{segment_name(9)}.torn"):
        (tmp_path / name).touch()
    assert [path.name for path in segment_paths(tmp_path)] == [segment_name(9), segment_name(1000)]
