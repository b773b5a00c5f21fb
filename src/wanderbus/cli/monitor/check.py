"""``wanderbus check``: whether servers are healthy, for people and for programs that watch them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, perhaps_visiting
from wanderbus.cli.domain.servers_asked import DomainFile
from wanderbus.cli.monitor.findings import (
    Finding,
    Level,
    Thresholds,
    findings_of,
    quarantine_findings,
    worst,
)
from wanderbus.cli.monitor.snapshot import Snapshot, snapshots
from wanderbus.cli.output import counted, print_json, print_line, run_async
from wanderbus.cli.pipeline.spark_options import needing_packages
from wanderbus.errors import ConfigurationError, WanderbusError

_DEFAULTS = Thresholds()
_MIB = 2**20
_DAY_S = 86_400


def _threshold(name: str, help: str, metavar: str | None = None) -> Any:
    return typer.Option(name, min=0, metavar=metavar, help=help)


Lake = Annotated[Path | None, typer.Option(help="Directory of a lake whose quarantine is to be looked at, too.")]
DiskFree = Annotated[
    int, _threshold("--disk-free-mib", "Warn below so much free space on the disk of the log.", metavar="MIB")
]
DiskFreeCritical = Annotated[
    int, _threshold("--disk-free-critical-mib", "Critical below so much of it.", metavar="MIB")
]
QueueShare = Annotated[float, _threshold("--queue-share", "Warn if a queue reaches this share of one of its bounds.")]
Unread = Annotated[
    float,
    _threshold("--unread-s", "Warn if nobody has read a notification for this time.", metavar="SECONDS"),
]
Blocked = Annotated[
    float,
    _threshold("--blocked-s", "Warn if a reader has acknowledged nothing for this time.", metavar="SECONDS"),
]
Recent = Annotated[
    float, _threshold("--recent-s", "Warn of limits that were applied within this time.", metavar="SECONDS")
]
EngineBehind = Annotated[
    int, _threshold("--engine-behind", "Warn if the matching engine is more records behind.", metavar="RECORDS")
]
ReaderBehind = Annotated[
    int, _threshold("--reader-behind", "Warn if a reader of the log is more records behind.", metavar="RECORDS")
]
CertificateDays = Annotated[
    float, _threshold("--certificate-days", "Warn if the certificate expires sooner (TLS only).", metavar="DAYS")
]


@perhaps_visiting
def check(
    *,
    connection: ConnectionOptions,
    event_domain: DomainFile = None,
    lake: Lake = None,
    disk_free_mib: DiskFree = _DEFAULTS.disk_free_bytes // _MIB,
    disk_free_critical_mib: DiskFreeCritical = _DEFAULTS.disk_free_bytes_critical // _MIB,
    queue_share: QueueShare = _DEFAULTS.queue_share,
    unread_s: Unread = _DEFAULTS.unread_s,
    blocked_s: Blocked = _DEFAULTS.blocked_s,
    recent_s: Recent = _DEFAULTS.recent_s,
    engine_behind: EngineBehind = _DEFAULTS.engine_behind,
    reader_behind: ReaderBehind = _DEFAULTS.reader_behind,
    certificate_days: CertificateDays = _DEFAULTS.certificate_s / _DAY_S,
    json: AsJson = False,
) -> None:
    """Tell whether a server is healthy, or all servers of a domain: a line for each finding, and what to do.

    Asks the server beside it or the one of --server, or with a domain's file all servers of the domain; needs the role
    of operator. The first line is the result. The exit status is that of plugins of Nagios: 0 if all is well, 1 for a
    warning, 2 if something fails, 3 if it cannot be found out, also because of a wrong option. It ends within twice
    --timeout.

    Example: wanderbus check

    Example: wanderbus check --server 192.0.2.1 --user sip:olga@example.org --unread-s 3600 --json
    """
    thresholds = Thresholds(
        disk_free_bytes=disk_free_mib * _MIB,
        disk_free_bytes_critical=disk_free_critical_mib * _MIB,
        queue_share=queue_share,
        unread_s=unread_s,
        blocked_s=blocked_s,
        recent_s=recent_s,
        engine_behind=engine_behind,
        reader_behind=reader_behind,
        certificate_s=certificate_days * _DAY_S,
    )
    seen: Sequence[Snapshot] = ()
    found: list[Finding] = []
    try:
        seen = run_async(snapshots(connection, event_domain))
        found += findings_of(seen, thresholds)
        found += _of_lake(lake)
    except WanderbusError as error:
        found.append(Finding(Level.UNKNOWN, "error", "wanderbus check", str(error), "see 'wanderbus check --help'"))
    level = worst(found)
    if json:
        print_json({"status": level.name.lower(), "servers": [each.server for each in seen], "findings": _rows(found)})
    else:
        for line in _lines(level, seen, found):
            print_line(line)
    raise typer.Exit(int(level))


def _of_lake(lake: Path | None) -> Iterator[Finding]:
    if lake is None:
        return
    with needing_packages("the pipeline"):
        from wanderbus.pipeline.lake.quarantine import quarantined_rows
    if not lake.is_dir():
        raise ConfigurationError(f"there is no lake {lake}")
    yield from quarantine_findings(str(lake), quarantined_rows(lake))


def _rows(found: Sequence[Finding]) -> list[dict[str, str]]:
    return [
        {
            "level": each.level.name.lower(),
            "kind": each.kind,
            "server": each.server,
            "text": each.text,
            "remedy": each.remedy,
        }
        for each in found
    ]


def _lines(level: Level, seen: Sequence[Snapshot], found: Sequence[Finding]) -> Iterator[str]:
    what = counted(len(found), "finding") if found else "all is well"
    yield f"{level.name}: {what}, {counted(len(seen), 'server')} asked"
    for each in found:
        yield f"{each.level.name.lower()}: {each.server}: {each.text}; {each.remedy}"
