"""Command line and parent of a process of this computer."""

from __future__ import annotations

from pathlib import Path


def arguments_of(pid: int) -> tuple[str, ...]:
    """Return the command line of a process; empty if there is none, or where the system does not tell (not Linux)."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(line.decode(errors="replace").rstrip("\0").split("\0"))


def parent_of(pid: int) -> int:
    """Return the id of the parent of a process; 0 if there is none, or where the system does not tell."""
    try:
        # The name of the program, in brackets, may have any character.
        _, _, behind = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return 0
    return int(behind.split()[1])
