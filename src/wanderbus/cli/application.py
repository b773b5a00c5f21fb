"""The Typer application: all commands, and how their errors are printed."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Any, Final

import typer

from wanderbus.cli import (
    config,
    explain,
    filter,
    log,
    proxy,
    pub,
    relay,
    sim,
    sip,
    sub,
    unsubscribe,
    up,
    users,
)
from wanderbus.cli.domain import channel, domain, topology, trace
from wanderbus.cli.eval import mobility
from wanderbus.cli.operator import advertisements, engine, filtering, limits, listings, queue_commands, schema
from wanderbus.cli.output import EndedBySignal, OutputClosed, print_error, print_error_json
from wanderbus.cli.pattern import pattern
from wanderbus.cli.pipeline import history, pipeline, plan, report
from wanderbus.errors import ConfigurationError, EventError, FilterError, WanderbusError

_CommandLineError: Final[type[Exception]] = typer.BadParameter.__mro__[2]
"""Base class of the errors for an unusable command line; Typer has a public name only for a subclass."""

_JSON_IS_A_FILE: Final = ("sim", "eval")
"""Commands whose option ``--json`` names a file for the results; their errors stay text."""

app = typer.Typer(
    name="wanderbus",
    help="Content-based publish/subscribe for users who move.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"wanderbus {version('wanderbus')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Content-based publish/subscribe for users who move."""


app.command("up")(up.up)
app.command("proxy")(proxy.proxy)
app.command("relay")(relay.relay)
app.command("pub")(pub.pub)
app.command("sub")(sub.sub)
app.command("unsubscribe")(unsubscribe.unsubscribe)
app.command("sessions")(listings.sessions)
app.command("subscriptions")(listings.subscriptions)
app.command("queues")(listings.queues)
app.command("limits")(limits.limits)
app.command("engine")(engine.engine)
app.command("filtering")(filtering.filtering)
app.command("advertisements")(advertisements.advertisements)
app.command("peek")(queue_commands.peek)
app.command("purge")(queue_commands.purge)
app.command("kick")(queue_commands.kick)
app.command("explain")(explain.explain)
app.command("topology")(topology.topology)
app.command("trace")(trace.trace)
app.command("plan")(plan.plan)
app.command("report")(report.report)
app.command("sim")(sim.sim)
app.add_typer(channel.app, name="channel")
app.add_typer(config.app, name="config")
app.add_typer(domain.app, name="domain")
app.add_typer(mobility.app, name="eval")
app.add_typer(filter.app, name="filter")
app.add_typer(history.app, name="history")
app.add_typer(log.app, name="log")
app.add_typer(pattern.app, name="pattern")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(schema.app, name="schema")
app.add_typer(sip.app, name="sip")
app.add_typer(users.app, name="users")


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status.

    An error is one line on standard error, and with the flag ``--json`` a line of JSON:
    ``{"error": {"type": ..., "message": ...}}``.
    """
    given = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in given and given[0] not in _JSON_IS_A_FILE
    _escape_unencodable_output()
    try:
        status = app(args=arguments, standalone_mode=False)
    except WanderbusError as error:
        return _failed(error, as_json=as_json)
    except _CommandLineError as error:
        return _misused(error, as_json=as_json)
    except typer.Abort:
        return 1
    except KeyboardInterrupt:
        return 130
    except EndedBySignal as ended:
        return ended.status
    except OutputClosed:
        return 0
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    return status if isinstance(status, int) else 0


def _failed(error: WanderbusError, *, as_json: bool) -> int:
    """Print an error of this package; return its exit status."""
    is_input = isinstance(error, ConfigurationError | EventError | FilterError)
    if as_json:
        more = {"position": error.position} if isinstance(error, FilterError) else {}
        print_error_json(type(error).__name__, str(error), **more)
    else:
        # An error in the user's own input may take several lines, with a caret; any other error is one line.
        message = error.pointed() if isinstance(error, FilterError) else str(error)
        print_error(*(message.split("\n") if is_input else (message,)))
    return 2 if is_input else 1


def _misused(error: Any, *, as_json: bool) -> int:
    """Print an error that Typer found in the command line; return its exit status."""
    if as_json:
        print_error_json("UsageError", error.format_message())
    else:
        error.show()
    return int(error.exit_code)


def _escape_unencodable_output() -> None:
    """Escape characters that the terminal's encoding lacks, so that printing them does not fail."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
