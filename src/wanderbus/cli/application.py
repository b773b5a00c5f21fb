"""The Typer application: all commands, and how their errors are printed."""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from wanderbus.cli.output import EndedBySignal, OutputClosed, print_error, print_error_json
from wanderbus.errors import ConfigurationError, EventError, FilterError, WanderbusError

_CommandLineError: Final[type[Exception]] = typer.BadParameter.__mro__[2]
"""Base class of the errors for an unusable command line; Typer has a public name only for a subclass."""

_JSON_IS_A_FILE: Final = ("sim", "eval")
"""Commands whose option ``--json`` names a file for the results; their errors stay text."""

_COMMANDS: Final = {
    "up": "up:up",
    "proxy": "proxy:proxy",
    "relay": "relay:relay",
    "pub": "pub:pub",
    "sub": "sub:sub",
    "unsubscribe": "unsubscribe:unsubscribe",
    "sessions": "operator.listings:sessions",
    "subscriptions": "operator.listings:subscriptions",
    "queues": "operator.listings:queues",
    "limits": "operator.limits:limits",
    "engine": "operator.engine:engine",
    "filtering": "operator.filtering:filtering",
    "advertisements": "operator.advertisements:advertisements",
    "peek": "operator.queue_commands:peek",
    "purge": "operator.queue_commands:purge",
    "kick": "operator.queue_commands:kick",
    "discard": "operator.queue_commands:discard",
    "explain": "explain:explain",
    "topology": "domain.topology:topology",
    "trace": "domain.trace:trace",
    "plan": "pipeline.plan:plan",
    "report": "pipeline.report:report",
    "sim": "sim:sim",
    "channel": "domain.channel:app",
    "config": "config:app",
    "domain": "domain.domain:app",
    "eval": "eval.mobility:app",
    "filter": "filter:app",
    "history": "pipeline.history:app",
    "log": "log:app",
    "pattern": "pattern.pattern:app",
    "pipeline": "pipeline.pipeline:app",
    "schema": "operator.schema:app",
    "sip": "sip:app",
    "users": "users:app",
}
"""Module and name of each command's function, or of the application of a group, in the order of ``--help``."""


def application(only: str | None = None) -> typer.Typer:
    """Return the application, with all commands or one: it imports their modules, and a server's take a second."""
    app = typer.Typer(
        name="wanderbus",
        help="Content-based publish/subscribe for users who move.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in [only] if only is not None and only in _COMMANDS else _COMMANDS:
        module, _, attribute = _COMMANDS[name].partition(":")
        command = getattr(import_module(f"wanderbus.cli.{module}"), attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"wanderbus {version('wanderbus')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Content-based publish/subscribe for users who move."""


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status.

    An error is one line on standard error, and with the flag ``--json`` a line of JSON:
    ``{"error": {"type": ..., "message": ...}}``.
    """
    given = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in given and given[0] not in _JSON_IS_A_FILE
    _escape_unencodable_output()
    try:
        status = application(given[0] if given else None)(args=arguments, standalone_mode=False)
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
