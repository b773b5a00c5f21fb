"""Command-line options of several commands about domains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wanderbus.runtime.files.domain_file import LINK_PORTS_ABOVE, SIP_PORT

SIPPort = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65_535,
        help=f"SIP port of all servers; their links to each other have the port {LINK_PORTS_ABOVE} above. 0 chooses "
        "free ports.",
        show_default=str(SIP_PORT),
    ),
]

FormerFile = Annotated[Path | None, typer.Option("--config", hidden=True)]
"""The former name of ``--event-domain``."""
