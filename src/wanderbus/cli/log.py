"""``wanderbus log``: check and status of an event log on disk."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import typer

from wanderbus.cli.output import print_error, print_json, print_line
from wanderbus.runtime.log.log_check import LogReport, check_log
from wanderbus.runtime.segment_files import log_directory
from wanderbus.server.log_status import LogStatus, log_status

app = typer.Typer(
    help="Check event logs on disk, and show what keeps them.", no_args_is_help=True, rich_markup_mode=None
)

PROGRESS_EACH_S: Final = 1.8


@app.callback()
def log() -> None:
    """Check event logs on disk, and show what keeps them."""


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
    report = check_log(log_directory(directory), _Progress())
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


@app.command("status")
def status(
    directory: Annotated[Path, typer.Argument(help="Data directory of a server.")],
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show the size of an event log and what keeps its oldest records.

    Readers are programs that need the records, such as jobs of the pipeline. The command changes nothing and may run
    while a server writes the log.

    Example: wanderbus log status wanderbus-data
    """
    found = log_status(directory, time.time_ns() // 1_000)
    if json:
        print_json(found)
        return
    for line in _status_lines(found):
        print_line(line)
    for warning in found.warnings:
        print_error(warning)


def _status_lines(found: LogStatus) -> Iterator[str]:
    yield (
        f"{found.directory}: {found.segments} segments, {found.bytes} bytes, records {found.oldest} to "
        f"{found.durable - 1}"
    )
    if found.keep_s is None and found.keep_bytes is None:
        yield "every record is kept: neither log_keep_s nor log_keep_bytes is set"
    else:
        yield f"kept at least: {found.keep_s or 0:g} s, {found.keep_bytes or 0} bytes"
    for name, offset in found.state.items():
        yield f"{name}: " + ("cannot be read" if offset is None else f"at record {offset}")
    for reader in found.readers:
        expired = ", expired" if reader.expired else ""
        yield (
            f"reader {reader.name}: at record {reader.offset}, {reader.lag} behind, registered {reader.age_s:.0f} s "
            f"ago, valid for {reader.expires_s:g} s{expired}"
        )
    held = ", ".join(found.held_by) or "nothing; it goes with the next pass of the server"
    yield f"the oldest segment is kept by: {held}"


class _Progress:
    """Prints the progress of the check on standard error, at most every :data:`PROGRESS_EACH_S` seconds."""

    def __init__(self) -> None:
        self._shown = time.monotonic()

    def __call__(self, report: LogReport) -> None:
        if time.monotonic() - self._shown >= PROGRESS_EACH_S:
            self._shown = time.monotonic()
            print(f"{report.segments} segments, {report.records} records", file=sys.stderr, flush=True)
