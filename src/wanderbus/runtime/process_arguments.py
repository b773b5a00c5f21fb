"""Command line of a process of this computer."""

from __future__ import annotations

from pathlib import Path


def arguments_of(pid: int) -> tuple[str, ...]:
    """Return the command line of a process; empty if there is none, or where the system does not tell (not Linux)."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(line.decode(errors="replace").rstrip("\0").split("\0"))
