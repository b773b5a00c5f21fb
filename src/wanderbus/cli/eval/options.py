"""Options that several commands of ``wanderbus eval`` have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OnSpark = Annotated[
    bool, typer.Option("--on-spark", help="Run the points on all cores, or on a cluster, with Spark; in virtual time.")
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Keep the results of --on-spark as Parquet in this directory; points in it do not run again.",
        show_default=False,
    ),
]
Cores = Annotated[
    int | None,
    typer.Option(
        "--cores", min=1, help="Threads of Spark on this machine; all cores unless given.", show_default=False
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the first run.")]
Json = Annotated[Path | None, typer.Option(help="Write results to this file.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with status 1 if a goal is not met.")]
