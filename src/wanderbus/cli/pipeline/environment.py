"""``wanderbus pipeline environment``: the packages for the workers of a cluster, as one file (SPEC T-11)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.output import print_json, print_line, print_progress
from wanderbus.cli.pipeline.spark_options import needing_packages

_BYTES_PER_MB = 1_000_000

File = Annotated[Path, typer.Argument(help="The file to write; its name ends with .tar.gz.", show_default=False)]
Include = Annotated[
    list[str] | None,
    typer.Option("--include", help="Also pack this distribution and what it requires; may be repeated."),
]
Kernel = Annotated[
    bool,
    typer.Option("--kernel", help="Also pack the matching kernel, compiled for this machine's kind of processor."),
]
Replace = Annotated[bool, typer.Option("--replace", help="Replace the file if it exists.")]


def environment(
    file: File, include: Include = None, kernel: Kernel = False, replace: Replace = False, json: AsJson = False
) -> None:
    """Pack wanderbus and the packages that its jobs need into one file, for the workers of a cluster.

    Workers need Spark and the same Python at the same path as here, and nothing else. The same environment gives
    the same file again, except with --kernel, which saves each executor the ten seconds of compiling the kernel.

    Example: wanderbus pipeline environment environment.tar.gz
    """
    with needing_packages("the pipeline"):
        from wanderbus.pipeline.cluster.environment import pack
    packed = pack(file, include=include or (), has_kernel=kernel, replace=replace, progress=print_progress)
    if json:
        print_json(packed._asdict())
    else:
        size = f"{packed.size_bytes / _BYTES_PER_MB:.0f} MB"
        print_line(f"{packed.file}: {size}, {len(packed.distributions)} distributions")
