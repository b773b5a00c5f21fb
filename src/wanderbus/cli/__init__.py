"""The ``wanderbus`` command: one file per command group.

Exit status: 0 success, 1 failure, 2 unusable command line or input file, 128 plus the number of the signal that ended
the command. Every failure is one line on standard error that says what to do.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import typer

    app: typer.Typer

_MISSING = "wanderbus: the command line needs further packages: pip install 'wanderbus[cli]'"


def main() -> NoReturn:
    """Run the command line and exit with its status."""
    try:
        from wanderbus.cli.application import run

        status = run()
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(_MISSING, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # loading takes a moment
        sys.exit(130)
    sys.exit(status)


def __getattr__(name: str) -> object:
    if name == "app":
        from wanderbus.cli.application import application

        return application()
    raise AttributeError(f"module 'wanderbus.cli' has no attribute {name!r}")
