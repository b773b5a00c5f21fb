"""``wanderbus pipeline``: programs beside a server that fill the lake and answer from it."""

from __future__ import annotations

import typer

from wanderbus.cli.pipeline import serve

app = typer.Typer(help="Fill the lake, and answer from it.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def pipeline() -> None:
    """Fill the lake, and answer from it."""


app.command("serve")(serve.serve)
