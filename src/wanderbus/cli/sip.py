"""``wanderbus sip``: commands that parse SIP messages and draw SIP traces."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from wanderbus.cli.output import print_json
from wanderbus.cli.sip_ladder import show_ladder
from wanderbus.errors import ConfigurationError
from wanderbus.limits import SIP_MESSAGE_BYTES_MAX
from wanderbus.sip.message.dissection import dissect
from wanderbus.sip.message.inspection import ElementRole, inspect

app = typer.Typer(help="Tools for SIP messages.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def group() -> None:
    """Tools for SIP messages."""


@app.command("parse")
def parse(
    file: Annotated[Path, typer.Argument(help="File with one message, byte for byte; - is standard input.")],
    as_: Annotated[
        ElementRole | None,
        typer.Option(
            "--as", help="Role of the element that checks it; unless given, registrar for a REGISTER, else uas."
        ),
    ] = None,
) -> None:
    """Parse one SIP message; print its content and the verdict on it as JSON.

    "status" is the SIP status to respond with; null if the message is valid or has to be discarded. Exit status 1 if
    the message is not valid.

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
    print_json(judged | dissect(data))
    if not verdict.valid:
        raise typer.Exit(1)


app.command("ladder")(show_ladder)


def _read(file: Path) -> bytes:
    """Return the bytes of the file, at most one more than the size limit of a message."""
    try:
        if str(file) == "-":
            return sys.stdin.buffer.read(SIP_MESSAGE_BYTES_MAX + 1)
        with file.open("rb") as opened:
            return opened.read(SIP_MESSAGE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}") from None
