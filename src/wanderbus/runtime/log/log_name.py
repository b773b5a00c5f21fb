"""Name of a log and the domain of its server, in files beside its segments.

The name is that of the server, and the incarnation that the first record of the log has. Ids of events have the epoch
in which they were accepted, which changes with each start. So a log of which the beginning was removed cannot be
distinguished from another one by its records alone. No record has the domain.
"""

from __future__ import annotations

import os
from pathlib import Path

from wanderbus.runtime.files.file_modes import open_own
from wanderbus.runtime.segment_files import LOG_DOMAIN, LOG_NAME, read_log_domain, read_log_name


def write_log_name(directory: Path, server: str, incarnation: int, domain: str) -> None:
    """Write the name and the domain, unless they are there already; ``OSError`` if a file cannot be written."""
    name = f"{server}-{incarnation}"
    if read_log_name(directory) != name:
        _write(directory / LOG_NAME, name)
    if read_log_domain(directory) != domain:
        _write(directory / LOG_DOMAIN, domain)


def _write(path: Path, text: str) -> None:
    descriptor = open_own(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, f"{text}\n".encode())
    finally:
        os.close(descriptor)
