"""Name of a log, in a file beside its segments: its server, and the incarnation that its first record has.

Ids of events have the epoch in which they were accepted, which changes with each start. So a log of which the beginning
was removed cannot be distinguished from another one by its records alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from wanderbus.runtime.files.file_modes import open_own
from wanderbus.runtime.segment_files import LOG_NAME, read_log_name


def write_log_name(directory: Path, server: str, incarnation: int) -> None:
    """Write the name, unless it is there already; ``OSError`` if the file cannot be written."""
    name = f"{server}-{incarnation}"
    if read_log_name(directory) != name:
        descriptor = open_own(directory / LOG_NAME, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, f"{name}\n".encode())
        finally:
            os.close(descriptor)
