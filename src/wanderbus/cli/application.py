"""All commands in one Typer application, and what becomes of their errors."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Any, Final

import typer

from wanderbus.cli import (
    config,
    explain,
    filter,
    limits,
    listings,
    log,
    proxy,
    pub,
    queue_commands,
    relay,
    sim,
    sip,
    sub,
    unsubscribe,
    up,
    users,
)
from wanderbus.cli.eval import mobility
from wanderbus.cli.output import EndedBySignal, OutputClosed, complain, complain_in_json
from wanderbus.errors import ConfigurationError, EventError, FilterError, WanderbusError

_CommandLineError: Final[type[Exception]] = typer.BadParameter.__mro__[2]
"""The error for a command line that cannot be used: Typer gives a public name to a subclass alone."""

_JSON_IS_A_FILE: Final = ("sim", "eval")
"""Commands whose option ``--json`` names a file for the results, and asks nothing of the errors."""

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
app.command("peek")(queue_commands.peek)
app.command("purge")(queue_commands.purge)
app.command("kick")(queue_commands.kick)
app.command("explain")(explain.explain)
app.command("sim")(sim.sim)
app.add_typer(config.app, name="config")
app.add_typer(mobility.app, name="eval")
app.add_typer(filter.app, name="filter")
app.add_typer(log.app, name="log")
app.add_typer(sip.app, name="sip")
app.add_typer(users.app, name="users")


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status.

    An error is one line on standard error, and with the flag ``--json`` a line of JSON:
    ``{"error": {"type": ..., "message": ...}}``.
    """
    given = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in given and given[0] not in _JSON_IS_A_FILE
    _write_what_can_be_written()
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
    """Print an error of ours; return its exit status."""
    is_input = isinstance(error, ConfigurationError | EventError | FilterError)
    if as_json:
        more = {"position": error.position} if isinstance(error, FilterError) else {}
        complain_in_json(type(error).__name__, str(error), **more)
    else:
        # What was given here may be pointed at over several lines; what comes from elsewhere is one.
        message = error.pointed() if isinstance(error, FilterError) else str(error)
        complain(*(message.split("\n") if is_input else (message,)))
    return 2 if is_input else 1


def _misused(error: Any, *, as_json: bool) -> int:
    """Print an error of the command line as Typer found it; return its exit status."""
    if as_json:
        complain_in_json("UsageError", error.format_message())
    else:
        error.show()
    return int(error.exit_code)


def _write_what_can_be_written() -> None:
    """Escape what the terminal's encoding has no characters for, rather than to fail."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
