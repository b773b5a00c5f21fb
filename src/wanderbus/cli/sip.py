"""``wanderbus sip``: tools for SIP messages."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from wanderbus.cli.output import say_json
from wanderbus.cli.sip_ladder import show_ladder
from wanderbus.errors import ConfigurationError
from wanderbus.limits import SIP_MESSAGE_BYTES_MAX
from wanderbus.sip.message.dissection import dissect
from wanderbus.sip.message.inspection import Role, inspect

app = typer.Typer(help="Tools for SIP messages.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Tools for SIP messages."""


@app.command("parse")
def parse(
    file: Annotated[Path, typer.Argument(help="One message as it was on the wire; - reads standard input.")],
    as_: Annotated[
        Role | None,
        typer.Option("--as", help="Who is asked; unless given, registrar for a REGISTER and uas for all else."),
    ] = None,
) -> None:
    """Read one SIP message and print as JSON what it says and what an element has to make of it.

    "status" is the answer to give, null to drop the message or when all is well. Exit status: 0 valid, 1 not.

    Example: wanderbus sip parse invite.sip --as proxy
    """
    data = _read(file)
    verdict = inspect(data, as_)
    judged = {
        "valid": verdict.valid,
        "reason": verdict.reason,
        "status": verdict.status,
        "as": verdict.role,
        "warnings": verdict.warnings,
    }
    say_json(judged | dissect(data))
    if not verdict.valid:
        raise typer.Exit(1)


app.command("ladder")(show_ladder)


def _read(file: Path) -> bytes:
    """Return the bytes, one more than a message may have at most."""
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(SIP_MESSAGE_BYTES_MAX + 1)
        with file.open("rb") as opened:
            return opened.read(SIP_MESSAGE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None
