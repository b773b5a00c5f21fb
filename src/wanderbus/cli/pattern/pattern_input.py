"""The pattern that a command is given: as an argument, or as a file."""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import Annotated

import typer

from wanderbus.cli.filter_input import given_text
from wanderbus.errors import ConfigurationError
from wanderbus.patterns import Pattern, compile_pattern

Text = Annotated[str | None, typer.Argument(help="The pattern, unless --file is given.", show_default=False)]
File = Annotated[Path | None, typer.Option("--file", help="File that contains the pattern; - is standard input.")]


def given_pattern(text: str | None, file: Path | None, option: str = "--file") -> Pattern:
    """Return the pattern; ``ConfigurationError`` unless it is given once."""
    if (text is None) == (file is None):
        raise ConfigurationError(f"give the pattern either as text or with {option}")
    if text is not None and os.path.isfile(text):  # a long text is no error here
        raise ConfigurationError(f"{text} is a file, not a pattern; give it with {option}")
    return compile_pattern(given_text(text, file))
