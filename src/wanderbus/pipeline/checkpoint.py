"""The directory in which Spark keeps how far a streaming query has come."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LOGS: Final = ("offsets", "commits")
"""Directories of a checkpoint that have one file for each batch, named after its number."""


def checkpoint_location(directory: Path) -> str:
    """Return the path of a checkpoint for Spark, after removing what a killed first batch left in it.

    A process that is killed while Spark writes the first batch leaves the file under its temporary name. Spark does not
    start a query from such a checkpoint, though it records nothing.
    """
    batches = directory / _LOGS[0]
    if not any(each.name.isdecimal() for each in batches.glob("*")):
        for log in _LOGS:
            for left in (directory / log).glob(".*.tmp*"):
                left.unlink()
    return str(directory.absolute())
