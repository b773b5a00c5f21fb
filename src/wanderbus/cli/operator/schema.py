"""``wanderbus schema``: declared attributes of the events of each subject, in versions (SPEC T-03)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Final

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions, perhaps_visiting, visiting
from wanderbus.cli.operator import listings
from wanderbus.cli.operator.listings import Columns, aligned
from wanderbus.cli.output import print_json, print_line, run_async
from wanderbus.cli.pipeline.infer import infer
from wanderbus.client.operator import Operator
from wanderbus.errors import ConfigurationError, WanderbusError
from wanderbus.event import TYPE_NAMES, DeclaredAttribute
from wanderbus.event_text import escaped
from wanderbus.subject_schemas import SubjectSchema
from wanderbus.subscription import instant_shown

app = typer.Typer(help="Declare and show the attributes of the events of each subject.", no_args_is_help=True)

_TYPES: Final = {name.lower(): name for name in TYPE_NAMES}
_ATTRIBUTE: Final = re.compile(rf"(.+?):({'|'.join(TYPE_NAMES)})(?:=(.+))?", re.IGNORECASE | re.DOTALL)


@app.command("set")
@visiting
def set_schema(
    subject: Annotated[str, typer.Argument(help="Subject of the events.", show_default=False)],
    attributes: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME:TYPE[=UNIT]",
            help="All attributes; types are Boolean, Date, Double, Integer and String.",
            show_default=False,
        ),
    ],
    *,
    connection: ConnectionOptions,
    meaning: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TEXT", help="Meaning of an attribute, for people; may be repeated."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Declare all attributes of a subject's events.

    They become a new version of the schema if they differ from the newest one. A version may add attributes, widen
    Integer to Double, and add units. Units and meanings that are left out stay. Events that do not fit are still
    accepted: the schema is for the columns of the lake. Requires the role of administrator.

    Example: wanderbus schema set Departure Dest:String DepDelay:Double=min --user sip:adam@localhost
    """
    declared = _with_meanings([_attribute(text) for text in attributes], meaning or [])
    run_async(_set(connection, subject, declared, json))


@app.command()
@visiting
def show(
    subject: Annotated[str | None, typer.Argument(help="Subject; unless given, all.", show_default=False)] = None,
    *,
    connection: ConnectionOptions,
    version: Annotated[int | None, typer.Option(min=1, help="This version of the subject's schema.")] = None,
    json: AsJson = False,
) -> None:
    """Show the declared attributes of a subject, or of all subjects.

    Requires the role of operator.

    Example: wanderbus schema show Departure --version 1 --user sip:olga@localhost
    """
    if version is not None and subject is None:
        raise ConfigurationError("--version needs a subject; give its name before the option")

    async def rows(operator: Operator) -> AsyncIterator[SubjectSchema]:
        found = 0
        async for schema in operator.schemas(subject, every_version=version is not None):
            found = schema.version
            if version in (None, found):
                yield schema
        if subject is not None and found < (version or 1):
            raise WanderbusError(_unknown(subject, found))

    listings.show(connection, rows, _tables, None, json)


@app.command("list")
@visiting
def list_schemas(
    *,
    connection: ConnectionOptions,
    versions: Annotated[bool, typer.Option("--versions", help="Every version, not only the newest.")] = False,
    json: AsJson = False,
) -> None:
    """List the subjects that have a schema.

    Requires the role of operator.

    Example: wanderbus schema list --user sip:olga@localhost
    """
    listings.show(connection, lambda operator: operator.schemas(every_version=versions), _list, None, json)


app.command("infer")(perhaps_visiting(infer))


async def _set(connection: ConnectionOptions, subject: str, attributes: list[DeclaredAttribute], json: bool) -> None:
    async with connection.visitor() as agent:
        schema = await agent.operator.declare_schema(subject, attributes)
    if json:
        print_json(schema)
    else:
        print_line(f"{schema.subject} version {schema.version}")


def _attribute(text: str) -> DeclaredAttribute:
    """Return the attribute in ``NAME:TYPE[=UNIT]``; the first type ends the name."""
    if not (found := _ATTRIBUTE.fullmatch(text)):
        raise ConfigurationError(f"invalid attribute {text!r} (expected NAME:TYPE or NAME:TYPE=UNIT; {_KNOWN_TYPES})")
    name, type_, unit = found.groups()
    return DeclaredAttribute(name, _TYPES[type_.lower()], unit)


def _with_meanings(attributes: list[DeclaredAttribute], meanings: list[str]) -> list[DeclaredAttribute]:
    found: dict[str, str] = {}
    for text in meanings:
        name, separator, meaning = text.partition("=")
        if not separator or name not in {each.name for each in attributes}:
            raise ConfigurationError(f"invalid --meaning {text!r} (expected NAME=TEXT with the name of an attribute)")
        found[name] = meaning
    return [DeclaredAttribute(each.name, each.type, each.unit, found.get(each.name)) for each in attributes]


def _unknown(subject: str, newest: int) -> str:
    if newest:
        return f"the newest version of the schema of {subject!r} is {newest}; 'wanderbus schema list' lists them"
    return f"the broker has no schema of {subject!r}; 'wanderbus schema list' lists those that it has"


def _list(schemas: list[SubjectSchema]) -> str:
    if not schemas:
        return "No subject has a schema."
    by_subject = sorted(schemas, key=_place)
    return "\n".join(aligned(by_subject, _SUBJECTS))


def _tables(schemas: list[SubjectSchema]) -> str:
    if not schemas:
        return "No subject has a schema."
    parts = []
    for schema in sorted(schemas, key=_place):
        since = instant_shown(schema.at_us)
        heading = f"{escaped(schema.subject)} version {schema.version}, since {since} by {_by(schema)}"
        parts.append("\n".join([heading, *(f"  {line}" for line in aligned(schema.attributes, _ATTRIBUTES))]))
    return "\n\n".join(parts)


def _place(schema: SubjectSchema) -> tuple[str, int]:
    return schema.subject, schema.version


def _by(schema: SubjectSchema) -> str:
    return escaped(schema.by.removeprefix("sip:"))


_KNOWN_TYPES: Final = f"types are {', '.join(TYPE_NAMES)}"

_SUBJECTS: Final[Columns] = {
    "subject": lambda row: row.subject,
    "version": lambda row: row.version,
    "attributes": lambda row: len(row.attributes),
    "since": lambda row: instant_shown(row.at_us),
    "by": lambda row: row.by.removeprefix("sip:"),
}

_ATTRIBUTES: Final[Columns] = {
    "name": lambda row: row.name,
    "type": lambda row: row.type,
    "unit": lambda row: row.unit,
    "meaning": lambda row: row.meaning,
}
