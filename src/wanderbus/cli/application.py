"""All commands in one Typer application, and what becomes of their errors."""

from __future__ import annotations

import typer

from wanderbus.cli import (
    configuring,
    evaluating,
    events,
    explaining,
    filtering,
    intervening,
    listing,
    log,
    proxying,
    relaying,
    serving,
    simulating,
    sip,
)
from wanderbus.cli.output import complain
from wanderbus.errors import ConfigurationError, EventError, FilterError, WanderbusError

app = typer.Typer(
    name="wanderbus",
    help="Content-based publish/subscribe for users who move.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("up")(serving.up)
app.command("proxy")(proxying.proxy)
app.command("relay")(relaying.relay)
app.command("pub")(events.pub)
app.command("sub")(events.sub)
app.command("sessions")(listing.sessions)
app.command("subscriptions")(listing.subscriptions)
app.command("queues")(listing.queues)
app.command("peek")(intervening.peek)
app.command("purge")(intervening.purge)
app.command("kick")(intervening.kick)
app.command("explain")(explaining.explain)
app.command("sim")(simulating.sim)
app.add_typer(configuring.app, name="config")
app.add_typer(evaluating.app, name="eval")
app.add_typer(filtering.app, name="filter")
app.add_typer(log.app, name="log")
app.add_typer(sip.app, name="sip")


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status. Every foreseen error ends as one line on standard error."""
    try:
        app(args=arguments)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 0
    except FilterError as error:
        complain(error.pointed())
        return 2
    except (ConfigurationError, EventError) as error:
        complain(str(error))
        return 2
    except WanderbusError as error:
        complain(str(error))
        return 1
    return 0
