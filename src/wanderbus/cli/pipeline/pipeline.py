"""``wanderbus pipeline``: programs beside a server that fill the lake, answer from it, and match events."""

from __future__ import annotations

import typer

from wanderbus.cli.pipeline import backfill, compact, engine, environment, gold, reconcile, run, serve, status, vacuum

app = typer.Typer(help="Keep a lake, answer from it, and match events.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def pipeline() -> None:
    """Keep a lake, answer from it, and match events."""


app.command("run")(run.run)
app.command("status")(status.status)
app.command("backfill")(backfill.backfill)
app.command("gold")(gold.gold)
app.command("reconcile")(reconcile.reconcile)
app.command("compact")(compact.compact)
app.command("vacuum")(vacuum.vacuum)
app.command("environment")(environment.environment)
app.command("serve")(serve.serve)
app.command("engine")(engine.engine)
