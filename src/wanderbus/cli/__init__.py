"""The ``wanderbus`` command: one file per command group.

Exit status: 0 success, 1 failure, 2 unusable command line or input file, 3 a lake that misses rows of records that its
tables rejected, 4 no answer of the server within ``--timeout``, 128 plus the number of the signal that ended the
command. Every failure is one line on standard error that says what to do.
"""

from __future__ import annotations

import os
import sys

_report = sys.excepthook
_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_closed_streams() -> None:
    """Open the null device in place of each standard stream that is closed.

    Otherwise a socket or a file of the program would get its descriptor, and what is printed would go there.
    """
    for descriptor, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor, which is this one
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))


def _without_interrupts(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Report an exception that ends the program, unless somebody interrupted it."""
    if not issubclass(kind, KeyboardInterrupt):
        _report(kind, error, traceback)


sys.excepthook = _without_interrupts  # first, because loading takes a moment

from typing import TYPE_CHECKING, NoReturn  # noqa: E402

if TYPE_CHECKING:
    from types import TracebackType

    import typer

    app: typer.Typer

_MISSING = "wanderbus: the command line needs further packages: pip install 'wanderbus[cli]'"


def main() -> NoReturn:
    """Run the command line and exit with its status."""
    open_closed_streams()
    try:
        from wanderbus.cli.application import run

        status = run()
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print(_MISSING, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(status)


def __getattr__(name: str) -> object:
    if name == "app":
        from wanderbus.cli.application import application

        return application()
    raise AttributeError(f"module 'wanderbus.cli' has no attribute {name!r}")
