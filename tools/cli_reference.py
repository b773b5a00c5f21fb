"""Write docs/cli.md from the real --help of every command; with --check only report whether it is up to date."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Before typer is imported: plain text of one width, whatever the terminal.
os.environ.update(TYPER_USE_RICH="0", COLUMNS="100", TERMINAL_WIDTH="100", NO_COLOR="1", TERM="dumb")

import typer.main
from typer.testing import CliRunner

from wanderbus.cli import app

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"
HEADING = """# The command line

Written by `./do fmt` from the `--help` of every command; a test compares the two.

| exit status | meaning |
|---|---|
| 0 | success |
| 1 | failure; one line on standard error says what to do |
| 2 | unusable command line, file of settings or input |
| 3 | a lake misses rows of records that its tables rejected, or a filter left events undecided |
| 4 | the server has not answered within `--timeout` (`pub`, `sub`) |
| 128 + N | ended by the signal N, as 130 by Ctrl-C |

`wanderbus check` has the exit status of plugins of Nagios instead: 0 well, 1 warning, 2 critical, 3 unknown.
"""


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every command that --help shows, a group before its members."""
    yield path
    for name in sorted(getattr(command, "commands", {})):
        inner = command.get_command(None, name)  # a group may import its commands now
        if not inner.hidden:
            yield from commands(inner, (*path, name))


def reference() -> str:
    """Return the content for docs/cli.md."""
    runner = CliRunner()
    parts = [HEADING]
    for path in commands(typer.main.get_command(app)):
        shown = runner.invoke(app, [*path, "--help"], prog_name="wanderbus", terminal_width=100)
        if shown.exit_code != 0:
            raise SystemExit(f"wanderbus {' '.join(path)} --help failed: {shown.output}")
        help_text = "\n".join(line.rstrip() for line in shown.output.strip().splitlines())
        parts.append(f"## {' '.join(('wanderbus', *path))}\n\n```\n{help_text}\n```\n")
    return "\n".join(parts)


def main() -> int:
    expected = reference()
    if "--check" not in sys.argv[1:]:
        REFERENCE.write_text(expected, encoding="utf-8")
        return 0
    if REFERENCE.exists() and REFERENCE.read_text(encoding="utf-8") == expected:
        return 0
    print("docs/cli.md is not what --help says now: run ./do fmt", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
