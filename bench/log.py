"""Size of the event log under retention, beside what its readers still need, and the time of the passes.

Records are written and synced, the state is saved, and a registered reader follows at a distance. After each pass the
size of the log's directory is compared with the bytes from the reader's record on; the largest ratio counts. It depends
on the distance in segments: one segment more than what is needed may be kept, the one that the reader is in. With the
default segments of 64 MiB the figures hold for a reader that is 1.3 GiB behind.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from harness.reporting import finish, goal, median
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.log.retention_policy import Keep
from wanderbus.runtime.log_readers import LogReader, register_reader
from wanderbus.segments import FRAME_OVERHEAD_BYTES
from wanderbus.server.log_retention import LogRetention

MIB: Final = 2**20
RECORD_BYTES: Final = 1_000
RECORDS_A_SYNC: Final = 256
ROWS_A_SAVE: Final = 100
EXPIRES_S: Final = 3_600.0


class Pass(NamedTuple):
    """The log after one pass of retention: its size, the bytes that are needed, and the duration of the pass."""

    bytes: int
    needed_bytes: int
    seconds: float


def measure(directory: Path, *, log_bytes: int, segment_bytes: int, behind_bytes: int) -> list[Pass]:
    """Write ``log_bytes`` of records, with a reader ``behind_bytes`` behind; return passes."""
    files = ServerFiles.open(directory, segment_bytes_max=segment_bytes)
    retention = LogRetention(files.log, files.store, Keep(bytes=0))
    frame_bytes = RECORD_BYTES + FRAME_OVERHEAD_BYTES
    behind, payload, passes = behind_bytes // frame_bytes, bytes(RECORD_BYTES), []
    try:
        while (end := files.log.next_offset) * frame_bytes < log_bytes:
            now_us = time.time_ns() // 1_000
            files.log.append([(offset, now_us, payload) for offset in range(end, end + RECORDS_A_SYNC)])
            durable = files.log.sync()
            files.store.save({"rows": {str(row): payload for row in range(ROWS_A_SAVE)}}, durable)
            at = max(0, durable - behind)
            register_reader(files.log.directory, LogReader("bench", at, now_us, EXPIRES_S))
            began = time.monotonic()
            retention.run(now_us)
            seconds = time.monotonic() - began
            if at:
                sizes = [path.stat().st_size for path in files.log.directory.glob("*.seg")]
                passes.append(Pass(sum(sizes), (durable - at) * frame_bytes, seconds))
    finally:
        files.close()
    return passes


def main(arguments: list[str] | None = None) -> int:
    """Measure as the command line says; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="bench log", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=100, help="size of all records (default: %(default)s MiB)")
    parser.add_argument("--segment-mib", type=int, default=1, help="size of a segment (default: %(default)s MiB)")
    parser.add_argument("--behind-mib", type=int, default=20, help="distance of the reader (default: %(default)s MiB)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a goal is not met")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="wanderbus-bench-log-") as directory:
        passes = measure(
            Path(directory, "data"),
            log_bytes=options.mib * MIB,
            segment_bytes=options.segment_mib * MIB,
            behind_bytes=options.behind_mib * MIB,
        )
    removing = [now for before, now in pairwise(passes) if now.bytes < before.bytes]
    ratio = max((each.bytes / each.needed_bytes for each in passes), default=float("nan"))
    results = [
        {
            "passes": len(passes),
            "passes_that_removed": len(removing),
            "idle_pass_ms": median(each.seconds * 1e3 for each in passes if each not in removing),
            "removing_pass_ms": median(each.seconds * 1e3 for each in removing),
            "ratio_median": median(each.bytes / each.needed_bytes for each in passes),
        }
    ]
    print(results[0])
    goals = [goal("log_bytes_after_retention_ratio", ratio, "ratio", most=1.1)]
    return finish("bench log", results, goals, file=options.json, strict=options.strict)
