"""The Typer application: all commands, and how their errors are printed."""

from __future__ import annotations

import contextlib
import logging
import sys
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

from wanderbus.cli.output import EndedBySignal, OutputClosed, discard_output, print_error, print_error_json
from wanderbus.client.answer_wait import NoAnswer
from wanderbus.errors import ConfigurationError, EventError, FilterError, WanderbusError
from wanderbus.event_text import escaped

_log = logging.getLogger("wanderbus.cli")

NO_ANSWER: Final = 4
"""Exit status of a command that gave up after ``--timeout``."""

_CommandLineError: Final[type[Exception]] = typer.BadParameter.__mro__[2]
"""Base class of the errors for an unusable command line; Typer has a public name only for a subclass."""

_MISUSE: Final = {"check": 3}
"""Exit status of a wrong option where it is not 2: there it would mean that a server fails."""

_JSON_IS_A_FILE: Final = ("sim", "eval")
"""Commands whose option ``--json`` names a file for the results; their errors stay text."""


class KnownCommand(NamedTuple):
    """A command, or group of commands, that is imported when it is run."""

    module: str
    """Module below ``wanderbus.cli``."""
    attribute: str
    """Function, or application of a group, in it."""
    summary: str


COMMANDS: Final = {
    "demo": KnownCommand("demo.demo", "demo", "Show users who move, in a minute on loopback."),
    "up": KnownCommand("up", "up", "Run a server: registrar, proxy, broker and event log."),
    "proxy": KnownCommand("proxy", "proxy", "Run only a SIP registrar and proxy."),
    "relay": KnownCommand("relay", "relay", "Run a media relay for data channels."),
    "pub": KnownCommand("pub", "pub", "Publish one event, or one for each line of input."),
    "sub": KnownCommand("sub", "sub", "Subscribe, and print notifications as they arrive."),
    "unsubscribe": KnownCommand("unsubscribe", "unsubscribe", "End your subscriptions."),
    "sessions": KnownCommand("operator.listings", "sessions", "List sessions, with their users and devices."),
    "subscriptions": KnownCommand(
        "operator.listings", "subscriptions", "List subscriptions, with what is queued for each."
    ),
    "queues": KnownCommand("operator.listings", "queues", "List the queue of each session."),
    "check": KnownCommand("monitor.check", "check", "Tell whether a server or a domain is healthy."),
    "top": KnownCommand("monitor.top", "top", "Show what a server does, refreshed every few seconds."),
    "limits": KnownCommand("operator.limits", "limits", "List users and addresses that reached a limit."),
    "engine": KnownCommand("operator.engine", "engine", "Show the matching engine beside the server."),
    "filtering": KnownCommand("operator.filtering", "filtering", "Show how many events each phase has held back."),
    "advertisements": KnownCommand(
        "operator.advertisements", "advertisements", "Show the advertisements of devices at a server."
    ),
    "peek": KnownCommand("operator.queue_commands", "peek", "Show the notifications queued in a session."),
    "purge": KnownCommand("operator.queue_commands", "purge", "Discard the notifications queued in a session."),
    "kick": KnownCommand("operator.queue_commands", "kick", "Close the connections of a user's devices."),
    "discard": KnownCommand("operator.queue_commands", "discard", "Remove a session."),
    "explain": KnownCommand("explain", "explain", "Explain why an event was, or was not, delivered."),
    "topology": KnownCommand("domain.topology", "topology", "Show the servers and channel groups of a domain."),
    "trace": KnownCommand("domain.trace", "trace", "Show where an event would go."),
    "backup": KnownCommand("backup.backup", "backup", "Copy a server's data directory while it runs."),
    "restore": KnownCommand("backup.restore", "restore", "Make a server's data directory from a backup."),
    "plan": KnownCommand("pipeline.plan", "plan", "Plan which server has which subjects."),
    "report": KnownCommand("pipeline.report", "report", "Write loss, latency, queues and moves to a page."),
    "sim": KnownCommand("sim", "sim", "Simulate users who move and lose the network."),
    "bench": KnownCommand("bench.bench", "app", "Measure a server: rates, round trips, latencies and gaps."),
    "channel": KnownCommand("domain.channel", "app", "List and replay the events of an ordered channel."),
    "config": KnownCommand("config", "app", "Check files of settings, or print a sample one."),
    "domain": KnownCommand("domain.domain", "app", "Describe and run a domain of several servers."),
    "eval": KnownCommand("eval.mobility", "app", "Repeat the paper's measurements and compare."),
    "federation": KnownCommand("federation.federation", "app", "Share events with the domains of other operators."),
    "filter": KnownCommand("filter", "app", "Read, explain, match, compare and merge filters."),
    "history": KnownCommand("pipeline.history", "app", "Run filters and subscriptions over past events."),
    "log": KnownCommand("log", "app", "Check event logs on disk, and show what keeps them."),
    "pattern": KnownCommand("pattern.pattern", "app", "Read, explain and run patterns of compound events."),
    "pipeline": KnownCommand("pipeline.pipeline", "app", "Keep a lake, answer from it, and match events."),
    "schema": KnownCommand("operator.schema", "app", "Declare and show the attributes of events."),
    "session": KnownCommand("domain.session", "app", "Move sessions between servers, and into files."),
    "sip": KnownCommand("sip", "app", "Tools for SIP messages."),
    "users": KnownCommand("users", "app", "Add, change, list and remove a server's users."),
}
"""The commands, in the order of ``--help``."""


class Commands(TyperGroup):
    """All commands; each is imported when it is run, since a server's modules take a second."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        commands: Any = dict.fromkeys(COMMANDS)
        self.commands = commands  # Typer suggests one of these for a name that it does not find

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of ``--help``."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command with this name; None if there is none."""
        return command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, known.summary) for name, known in COMMANDS.items()])


def command(name: str) -> Any:
    """Import the command, or group of commands, with this name."""
    known = COMMANDS[name]
    found = getattr(import_module(f"wanderbus.cli.{known.module}"), known.attribute)
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        app.command(name)(found)
    return typer.main.get_group(app).commands[name]


def application() -> typer.Typer:
    """Return the application with all commands."""
    app = typer.Typer(
        name="wanderbus",
        cls=Commands,
        help="Content-based publish/subscribe for users who move.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
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
    if faulty := next((each for each in given if not _is_text(each)), None):
        return _failed(ConfigurationError(f"the argument {escaped(faulty)} is not UTF-8"), as_json=as_json)
    try:
        status = application()(args=arguments, standalone_mode=False)
    except WanderbusError as error:
        return _failed(error, as_json=as_json)
    except _CommandLineError as error:
        return _MISUSE.get(given[0] if given else "", _misused(error, as_json=as_json))
    except typer.Abort:
        return 1
    except KeyboardInterrupt:
        return 130
    except EndedBySignal as ended:
        return ended.status
    except (OutputClosed, BrokenPipeError):
        discard_output()
        return 0
    except OSError as error:
        discard_output()
        _log.info("the system refused", exc_info=True)
        return _failed(WanderbusError(_refusal(error)), as_json=as_json)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    return status if isinstance(status, int) else 0


def _refusal(error: OSError) -> str:
    """Return one line about an error of the system, with the file if it has one; ``--verbose`` shows where it arose."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else f"the system refused to read or write: {reason}"


def _is_text(argument: str) -> bool:
    """Return whether an argument was UTF-8: Python has a lone surrogate for each byte that was not."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


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
    return NO_ANSWER if isinstance(error, NoAnswer) else 2 if is_input else 1


def _misused(error: Any, *, as_json: bool) -> int:
    """Print an error that Typer found in the command line; return its exit status."""
    option = getattr(error, "option_name", None)  # it is an unknown option
    if isinstance(option, str) and not option.lstrip("-")[:1].isalpha():
        error.message += "; put -- before arguments that begin with a minus sign"
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
