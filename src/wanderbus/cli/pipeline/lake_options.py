"""Options for lakes and their logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wanderbus.errors import StorageError
from wanderbus.runtime.files.domain_file import FILE_NAME, data_directory, read_domain
from wanderbus.runtime.segment_files import end_of_log, log_directory

if TYPE_CHECKING:
    from wanderbus.pipeline.tables import TableSpecification

DataDirectory = Annotated[
    Path, typer.Argument(metavar="DATA_DIR", help="Data directory of a server, or its subdirectory log.")
]
DataDirectories = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA_DIR",
        help="Data directory of a server, those of all servers of a domain, or the directory of 'domain up'.",
    ),
]
Lake = Annotated[Path, typer.Option("--lake", help="Directory of the lake.", show_default=False)]
Tables = Annotated[
    list[str] | None, typer.Argument(metavar="TABLE", help="Tables; unless given, all.", show_default=False)
]
Lineage = Annotated[
    Path | None,
    typer.Option("--lineage", help="Append the OpenLineage events to this file too.", show_default=False),
]


def existing_log(directory: Path) -> Path:
    """Return the log of a data directory; ``StorageError`` if there is none."""
    path = log_directory(directory)
    if not path.is_dir():
        raise StorageError(f"{path} is not a directory; give the data directory of a server")
    end_of_log(path)
    return path


def existing_logs(directories: list[Path]) -> list[Path]:
    """Return the logs of data directories, those of all its servers for the directory of a domain.

    Raises ``StorageError`` for the first one without a log.
    """
    return [existing_log(each) for directory in directories for each in _data_directories(directory)]


def _data_directories(directory: Path) -> list[Path]:
    file = directory / FILE_NAME
    if not file.is_file():
        return [directory]
    return [data_directory(directory, server) for server in read_domain(file).settings.servers]


def chosen_tables(lake: Path, names: list[str] | None) -> list[TableSpecification]:
    """Return the tables of these names, or all that the lake has; ``StorageError`` if there is no lake."""
    from wanderbus.pipeline.lake.reading import existing_tables
    from wanderbus.pipeline.tables import named

    tables = existing_tables(lake)
    return [named(name) for name in names] if names else tables
