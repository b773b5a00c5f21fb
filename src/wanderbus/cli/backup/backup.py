"""``wanderbus backup``: a consistent copy of a server's data directory, also while the server runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import counted, log_to_stderr, print_json, print_line
from wanderbus.server.backup.manifest import Manifest
from wanderbus.server.backup.take import take_backup

DataDir = Annotated[Path, typer.Option(help="Data directory of the server.")]


def backup(
    directory: Annotated[
        Path, typer.Argument(help="Directory of the new backup; it must not exist, or be empty.", show_default=False)
    ],
    data_dir: DataDir = Path("wanderbus-data"),
    json: AsJson = False,
) -> None:
    """Copy a server's data directory, consistently, while the server runs or not.

    The backup has every event, subscription and queue that was acknowledged before the command began, and the keys of
    the server. It is private, every record in it is checked, and it is complete or absent. Settings, users,
    certificates and the file of a domain are yours to keep. 'wanderbus restore' makes a data directory of it.

    Exit status 1 if the data directory is damaged, or the backup cannot be written.

    Example: wanderbus backup backups/monday

    Example: wanderbus backup /backup/s1-monday --data-dir mydomain/data/s1 --json
    """
    log_to_stderr(verbose=False)
    made = take_backup(data_dir, directory, time.time_ns() // 1_000)
    if json:
        print_json({"backup": str(directory), **summary(made)})
    else:
        print_line(f"{directory}: {counted(made.next - made.first, 'record')} of {made.server}, {made.bytes} bytes")


def summary(manifest: Manifest) -> dict[str, object]:
    """Return the description of a backup without its files."""
    found = msgspec.structs.asdict(manifest)
    del found["files"], found["last_checksum"], found["format"]
    return {**found, "bytes": manifest.bytes}
