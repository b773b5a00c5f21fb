"""End of a command on a lake that rejected records of known kinds: its figures miss rows, so it does not succeed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import typer

from wanderbus.cli.output import print_error

STATUS: Final = 3
"""Exit status of a command that has worked, and whose result misses rows."""


def require_none_rejected(lake: Path | None, rejected: Mapping[str, int] | None = None) -> None:
    """Name the records that tables of a lake rejected and exit with :data:`STATUS`; return if there are none.

    ``rejected`` are their numbers by table; without them they are read from the lake.
    """
    if warn_of_rejected(lake, rejected):
        raise typer.Exit(STATUS)


def warn_of_rejected(lake: Path | None, rejected: Mapping[str, int] | None = None) -> bool:
    """Name the records that tables of a lake rejected, on standard error; return whether there are any.

    Without ``lake`` they are those of a temporary one.
    """
    if rejected is None:
        assert lake is not None
        from wanderbus.pipeline.lake.quarantine import rejected_records

        rejected = rejected_records(lake)
    if rejected:
        counts = ", ".join(f"{count} of {name}" for name, count in rejected.items())
        line = f"{lake or 'the lake of the log'} misses rows of records that its tables rejected: {counts}"
        if lake is not None:
            line += (
                "; the reasons are in its table quarantine, and after an update 'wanderbus pipeline backfill "
                f"{min(rejected)} --lake {lake} --force' makes a table again"
            )
        print_error(line)
    return bool(rejected)
