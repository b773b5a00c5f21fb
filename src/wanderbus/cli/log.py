"""``wanderbus log``: what an event log on disk holds, and whether all of it can be read."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from wanderbus.cli.output import complain, say, say_json
from wanderbus.runtime.log.log_check import LogReport, check_log

app = typer.Typer(help="Look at event logs on disk.", no_args_is_help=True, rich_markup_mode=None)

PROGRESS_EACH_S: Final = 1.8


@app.callback()
def log() -> None:
    """Look at event logs on disk."""


@app.command("check")
def check(
    directory: Annotated[Path, typer.Argument(help="A server's data directory, or the log in it.")],
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Read every record of an event log and say what is damaged.

    A server looks at the ends of the segments alone when it starts; this reads all bytes. It changes nothing and may
    be run while a server writes the log. Exit status 1 if something is damaged.

    Example: wanderbus log check wanderbus-data
    """
    report = check_log(directory / "log" if (directory / "log").is_dir() else directory, _Progress())
    if json:
        say_json(report)
    else:
        say(
            f"{report.directory}: {report.segments} segments, {report.records} records ({report.first} to "
            f"{report.next - 1}), {report.bytes} bytes"
        )
        if report.unfinished_bytes:
            say(f"{report.unfinished_bytes} bytes at the end are no whole record; they were never acknowledged")
        for damage in report.damage:
            complain(damage)
        if not report.damage:
            say("no damage found")
    if report.damage:
        raise typer.Exit(1)


class _Progress:
    """Says on standard error how far the reading is, now and then."""

    def __init__(self) -> None:
        self._shown = time.monotonic()

    def __call__(self, report: LogReport) -> None:
        if time.monotonic() - self._shown >= PROGRESS_EACH_S:
            self._shown = time.monotonic()
            print(f"{report.segments} segments, {report.records} records", file=sys.stderr, flush=True)
