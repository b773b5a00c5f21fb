"""``wanderbus restore``: a data directory from a backup, after saying what that will cost."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer

from wanderbus.cli.backup.backup import DataDir, summary
from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import counted, log_to_stderr, print_json, print_line
from wanderbus.errors import ConfigurationError
from wanderbus.server.backup.cost import RestoreCost
from wanderbus.server.backup.manifest import Manifest
from wanderbus.server.backup.restore import Restoration

_SHOWN_MAX: Final = 20
"""Longest list of subjects, and of sessions, in text."""


def restore(
    backup: Annotated[Path, typer.Argument(help="Directory that 'wanderbus backup' wrote.", show_default=False)],
    data_dir: DataDir = Path("wanderbus-data"),
    replace: Annotated[
        bool, typer.Option("--replace", help="Move the present data aside, to DATA-DIR.replaced-N.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what it would cost.")] = False,
    json: AsJson = False,
) -> None:
    """Make a server's data directory from a backup; first show what that costs.

    If the data directory has data, they are compared: the events that the backup lacks, by subject, and the sessions
    that were notified of them. Their agents discard nothing that comes later: each reads a gap, or a refusal that says
    so. Needs a stopped server, and --replace if there are data, which are moved aside and not deleted.

    Exit status 1 if the backup is damaged or a server uses the directory, 2 if there are data and neither --replace nor
    --dry-run is given.

    Example: wanderbus restore backups/monday --dry-run

    Example: wanderbus restore backups/monday --data-dir wanderbus-data --replace
    """
    log_to_stderr(verbose=False)
    restoration = Restoration(backup, data_dir)
    cost = restoration.cost()
    if json:
        print_json({"backup": str(backup), **summary(restoration.manifest), "cost": cost})
    else:
        for line in _lines(restoration.manifest, cost):
            print_line(line)
    if dry_run:
        return
    if restoration.is_occupied and not replace:
        raise ConfigurationError(f"{data_dir} has data and is not replaced; --replace moves them aside")
    aside = restoration.restore()
    if json:
        print_json({"restored": str(data_dir), "replaced": None if aside is None else str(aside)})
    else:
        moved = "" if aside is None else f"; the former data are in {aside}"
        print_line(f"restored {data_dir}{moved}")


def _lines(manifest: Manifest, cost: RestoreCost | None) -> Iterator[str]:
    yield (
        f"backup of {manifest.server} from {_time(manifest.taken_us)}: records {manifest.first} to "
        f"{manifest.next - 1}, the last from {_time(manifest.last_us)}"
    )
    if cost is None:
        yield f"no present data to compare with: what was acknowledged after {_time(manifest.taken_us)} is lost"
        return
    if cost.is_other_history:
        yield "the present log is not a continuation of the backup: all its records are counted below"
    if cost.unknown:
        yield f"not everything can be counted: {cost.unknown}"
    if not cost.records:
        yield "the present log has no record that the backup lacks"
        return
    yield (
        f"lost: {counted(cost.records, 'record')} up to {_time(cost.until_us)}, with {counted(cost.accepted, 'event')} "
        f"acknowledged to publishers here, {cost.arrived} from other servers, "
        f"{counted(cost.subscriptions, 'subscription')} and {counted(cost.schemas, 'schema')}"
    )
    for subject, count in islice(cost.subjects.items(), _SHOWN_MAX):
        yield f"  subject {subject}: {counted(count, 'event')}"
    for each in cost.sessions[:_SHOWN_MAX]:
        yield (
            f"  session {each.session} of {each.user}: {counted(each.notifications, 'notification')}, {each.taken} "
            f"taken by its agents, {each.notifications - each.taken} not"
        )
    if more := max(0, len(cost.subjects) - _SHOWN_MAX) + max(0, len(cost.sessions) - _SHOWN_MAX):
        yield f"  and {more} more subjects and sessions; --json shows all"
    for reader in cost.readers:
        yield f"  reader {reader}: has read records that the backup lacks, and will refuse the restored log"


def _time(at_us: int | None) -> str:
    if at_us is None:
        return "never"
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
