"""``wanderbus unsubscribe``: end of subscriptions by id, by the name from ``sub --keep``, or of all at once."""

from __future__ import annotations

from typing import Annotated

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, visiting_as_user
from wanderbus.cli.output import print_json, print_line, run_async
from wanderbus.cli.sub import SESSION
from wanderbus.errors import ConfigurationError, Refused


@visiting_as_user
def unsubscribe(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUBSCRIPTION", help="Ids or names; 'subscriptions' lists them.", show_default=False),
    ] = None,
    *,
    connection: ConnectionOptions,
    all_: Annotated[bool, typer.Option("--all", help="All of yours, including those of programs.")] = False,
    json: AsJson = False,
) -> None:
    """End your subscriptions; notifications already queued for them are still delivered.

    Example: wanderbus unsubscribe delays wb1234-mibx2f9c-17 --user sip:alice@localhost
    """
    if bool(what) == all_:
        raise ConfigurationError("give the subscriptions to end, or --all")
    run_async(_unsubscribe(connection, what or [], json))


async def _unsubscribe(connection: ConnectionOptions, wanted: list[str], json: bool) -> None:
    async with connection.visitor() as agent:
        own = {row.subscription: row.session async for row in agent.operator.subscriptions(connection.user_uri)}
        for each in wanted:
            if each not in own and f"{SESSION}.{each}" not in own.values():
                raise Refused(f"you have no subscription {each!r}; 'wanderbus subscriptions' lists yours")
        for identity, session in own.items():
            if not wanted or identity in wanted or session.removeprefix(f"{SESSION}.") in wanted:
                await agent.unsubscribe(identity)
                if json:
                    print_json({"id": identity, "session": session, "status": "ended"})
                else:
                    print_line(f"{identity} ended")
