"""``wanderbus log``: check of an event log on disk."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from wanderbus.cli.output import print_error, print_json, print_line
from wanderbus.runtime.log.log_check import LogReport, check_log

app = typer.Typer(help="Check event logs on disk.", no_args_is_help=True, rich_markup_mode=None)

PROGRESS_EACH_S: Final = 1.8


@app.callback()
def log() -> None:
    """Check event logs on disk."""


@app.command("check")
def check(
    directory: Annotated[Path, typer.Argument(help="Data directory of a server, or its subdirectory log.")],
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Read every record of an event log and report damage.

    A starting server only checks the ends of the segments; this command reads all bytes. It changes nothing and may
    run while a server writes the log. Exit status 1 if something is damaged.

    Example: wanderbus log check wanderbus-data
    """
    report = check_log(directory / "log" if (directory / "log").is_dir() else directory, _Progress())
    if json:
        print_json(report)
    else:
        print_line(
            f"{report.directory}: {report.segments} segments, {report.records} records ({report.first} to "
            f"{report.next - 1}), {report.bytes} bytes"
        )
        if report.unfinished_bytes:
            print_line(
                f"{report.unfinished_bytes} bytes at the end are an incomplete record, which was never acknowledged"
            )
        for damage in report.damage:
            print_error(damage)
        if not report.damage:
            print_line("no damage found")
    if report.damage:
        raise typer.Exit(1)


class _Progress:
    """Prints the progress of the check on standard error, at most every :data:`PROGRESS_EACH_S` seconds."""

    def __init__(self) -> None:
        self._shown = time.monotonic()

    def __call__(self, report: LogReport) -> None:
        if time.monotonic() - self._shown >= PROGRESS_EACH_S:
            self._shown = time.monotonic()
            print(f"{report.segments} segments, {report.records} records", file=sys.stderr, flush=True)
