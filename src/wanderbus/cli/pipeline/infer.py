"""``wanderbus schema infer``: a schema proposed from the events of a lake (SPEC T-03)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wanderbus.cli.connection_options import AsJson, ConnectionOptions
from wanderbus.cli.operator.listings import Columns, aligned
from wanderbus.cli.output import print_json, print_line, run_async
from wanderbus.cli.pipeline.lake_options import Lake
from wanderbus.cli.pipeline.progress_lines import PROGRESS_EACH_S, ProgressLines
from wanderbus.cli.pipeline.spark_options import needing_packages
from wanderbus.errors import StorageError
from wanderbus.event import DeclaredAttribute
from wanderbus.event_text import escaped
from wanderbus.schema_proposals import Proposal, proposal
from wanderbus.subject_schemas import SubjectSchema

if TYPE_CHECKING:
    from wanderbus.pipeline.lake.observed_types import Observed


def infer(
    subject: Annotated[str, typer.Argument(help="Subject of the events.", show_default=False)],
    lake: Lake,
    *,
    connection: ConnectionOptions,
    fitting_min: Annotated[
        float,
        typer.Option("--fitting-min", min=0, max=1, help="Share of an attribute's values that must fit its type."),
    ] = 1.0,
    is_set: Annotated[bool, typer.Option("--set", help="Declare the proposal at the server.")] = False,
    json: AsJson = False,
) -> None:
    """Propose a schema from the values that the events of a lake had.

    Types are widened from Integer to Double where both occur. Declared attributes stay, so the proposal may follow
    the present version; that of the lake, or with --set that of the server. Values that would not fit are counted.
    With --set it requires the role of administrator, and the options of a connection.

    Example: wanderbus schema infer Departure --lake lake

    Example: wanderbus schema infer Departure --lake lake --set --user sip:adam@localhost
    """
    with needing_packages("schema infer"):
        from wanderbus.pipeline.lake.observed_types import observed_types
        from wanderbus.pipeline.lake.schema_rows import newest_schemas
    if is_set:
        connection = connection.logged_in(may_be_operator=True)
    lines = ProgressLines(silent_s=PROGRESS_EACH_S)
    observed = observed_types(lake, subject, lambda done, files: lines.show(f"{done} of {files} files read"))
    if not observed.events:
        raise StorageError(f"{lake} has no events of the subject {subject!r}; check the subject, or run the pipeline")
    if is_set:
        found, schema = run_async(_declare(connection, subject, observed, fitting_min))
    else:
        newest = newest_schemas(lake).get(subject)
        found, schema = proposal(observed.types, newest.attributes if newest else (), fitting_min), None
    if json:
        print_json(_as_json(subject, observed, found, schema))
        return
    for line in _lines(subject, observed, found, schema):
        print_line(line)


async def _declare(
    connection: ConnectionOptions, subject: str, observed: Observed, fitting_min: float
) -> tuple[Proposal, SubjectSchema]:
    async with connection.visitor() as agent:
        present: Sequence[DeclaredAttribute] = ()
        async for schema in agent.operator.schemas(subject):
            present = schema.attributes
        found = proposal(observed.types, present, fitting_min)
        if not found.attributes:
            raise StorageError(f"no attribute of {subject!r} has one type that fits; lower --fitting-min")
        return found, await agent.operator.declare_schema(subject, found.attributes)


def _as_json(subject: str, observed: Observed, found: Proposal, schema: SubjectSchema | None) -> dict[str, Any]:
    return {
        "subject": subject,
        "events": observed.events,
        "attributes": found.attributes,
        "unfitting": found.unfitting,
        "observed": observed.types,
        "version": schema and schema.version,
    }


def _lines(subject: str, observed: Observed, found: Proposal, schema: SubjectSchema | None) -> Iterator[str]:
    yield f"{escaped(subject)}: {observed.events} events"
    known = {each.name: each.type for each in found.attributes}
    columns: Columns = {
        "name": lambda name: name,
        "type": lambda name: known.get(name, "none fits"),
        "values that do not fit": lambda name: found.unfitting.get(name, 0),
    }
    yield from aligned([*known, *(name for name in found.unfitting if name not in known)], columns)
    if schema is not None:
        yield f"declared as version {schema.version}"
    elif found.attributes:
        words = [f"{each.name}:{each.type}" + (f"={each.unit}" if each.unit else "") for each in found.attributes]
        yield f"declare it with --set, or with: wanderbus schema set {shlex.join([subject, *words])}"
