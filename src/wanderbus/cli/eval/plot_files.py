"""Files of the plots of ``wanderbus eval``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from wanderbus.errors import ConfigurationError


def write_plots(directory: Path | None, plots: Iterable[tuple[str, str]]) -> None:
    """Write plots, each with its name, unless there is no directory; :class:`ConfigurationError` if that fails."""
    if directory is None:
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, plot in plots:
            (directory / f"{name}.svg").write_text(plot, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{directory} cannot be written: {error.strerror}") from None
