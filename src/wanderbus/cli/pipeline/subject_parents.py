"""Parents of subjects for a command on the past: those of the domain of its logs, or of its lake (SPEC J-13)."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from wanderbus.runtime.files.domain_file import FILE_NAME, data_directory, read_domain

EventDomain = Annotated[
    Path | None,
    typer.Option(
        "--event-domain",
        help="File of the domain, for the parents of its subjects; unless given, that of 'domain up', or what the lake "
        "has of it.",
        show_default=False,
    ),
]


def parents_given(event_domain: Path | None, logs: Sequence[Path]) -> Mapping[str, str] | None:
    """Return the parents in the file of the domain, given or beside the data of its servers; None without one."""
    file = event_domain or next((found for log in logs if (found := _domain_beside(log)) is not None), None)
    return None if file is None else read_domain(file).settings.parents


def parents_for(event_domain: Path | None, lakes: Sequence[Path], log: Path | None) -> Mapping[str, str]:
    """Return the parents that hold for the events of some lakes or a log; none if no domain is known.

    A child that has other parents in several domains has that of the first lake.
    """
    from wanderbus.pipeline.lake.lake_parents import parents_in

    given = parents_given(event_domain, () if log is None else (log,))
    return given if given is not None else dict(ChainMap(*(dict(parents_in(lake)) for lake in lakes)))


def _domain_beside(log: Path) -> Path | None:
    """Return the file of the domain whose server has this log, if ``domain up`` has made its directory."""
    data = log.absolute().parent
    directory = data.parents[1] if len(data.parents) > 1 else data
    file = directory / FILE_NAME
    return file if data_directory(directory, data.name) == data and file.is_file() else None
