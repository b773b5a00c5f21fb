"""``wanderbus unsubscribe``: subscriptions end by id, by the name that ``sub --keep`` gave them, or all at once."""

from __future__ import annotations

from typing import Annotated

import typer

from wanderbus.cli.connection_options import AsJson, Connection, visiting
from wanderbus.cli.output import run_async, say, say_json
from wanderbus.cli.sub import SESSION
from wanderbus.errors import ConfigurationError, Refused


@visiting
def unsubscribe(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUBSCRIPTION", help="Id or name each; 'subscriptions' lists them.", show_default=False),
    ] = None,
    *,
    connection: Connection,
    all_: Annotated[bool, typer.Option("--all", help="All of yours, those of programs too.")] = False,
    json: AsJson = False,
) -> None:
    """End subscriptions of yours; what waits for them is still delivered.

    Example: wanderbus unsubscribe delays wb1234-17 --user sip:alice@localhost
    """
    if bool(what) == all_:
        raise ConfigurationError("name the subscriptions to end, or say --all")
    run_async(_unsubscribe(connection, what or [], json))


async def _unsubscribe(connection: Connection, wanted: list[str], json: bool) -> None:
    async with connection.operations() as operations:
        own = {row["subscription"]: row["session"] async for row in operations.subscriptions(connection.user_uri)}
        for each in wanted:
            if each not in own and f"{SESSION}.{each}" not in own.values():
                raise Refused(f"there is no subscription {each!r} of yours; 'wanderbus subscriptions' lists them")
        for identity, session in own.items():
            if not wanted or identity in wanted or session.removeprefix(f"{SESSION}.") in wanted:
                await operations.unsubscribe(identity)
                if json:
                    say_json({"subscription": identity, "session": session, "status": "ended"})
                else:
                    say(f"{identity} ended")
