"""Archive of the classes that Spark loads: with it, Java starts a session in half the time.

``python -m wanderbus.pipeline.make_class_archive`` makes it, and sessions on this machine use it where it is. Java
itself checks that an archive was made by the same Java for the same class path, and does without it otherwise.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

ARCHIVE: Final = Path(sys.prefix) / "share" / "wanderbus" / "spark-classes.jsa"
"""Path of the archive, in the environment of Python, as Spark is. The file takes about 180 MB."""

FAST_START: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of Java that suit short jobs on small machines: they start sooner, and long ones compute more slowly."""


def fast_start_options(archive: Path = ARCHIVE) -> str:
    """Return :data:`FAST_START`, and the options that use an archive where there is one."""
    return f"{FAST_START} {archive_options(archive)}".rstrip()


def archive_options(archive: Path = ARCHIVE) -> str:
    """Return the options of Java that use an archive; none without the archive."""
    # Java says on standard output why it does without an archive, which is no news to a user.
    return f'"-XX:SharedArchiveFile={archive}" -Xlog:cds*=off,class+path=off' if archive.exists() else ""
