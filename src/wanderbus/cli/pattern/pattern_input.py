"""The pattern that a command is given: as an argument, or as a file."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from wanderbus.cli.filter_input import given_text
from wanderbus.errors import ConfigurationError
from wanderbus.patterns import Pattern, compile_pattern
from wanderbus.subscription import check_wanted_subject

Text = Annotated[str | None, typer.Argument(help="The pattern, unless --file is given.", show_default=False)]
File = Annotated[Path | None, typer.Option("--file", help="File that contains the pattern; - is standard input.")]


def with_parents(pattern: Pattern, parents: Mapping[str, str]) -> Pattern:
    """Return the pattern in a domain whose subjects have these parents."""
    from wanderbus.pipeline.subject_children import children_of

    return Pattern(pattern.text, pattern.bounds, children_of(parents)) if parents else pattern


def given_pattern(text: str | None, file: Path | None, option: str = "--file") -> Pattern:
    """Return the pattern; ``ConfigurationError`` unless it is given once."""
    if (text is None) == (file is None):
        raise ConfigurationError(f"give the pattern either as text or with {option}")
    if text is not None and os.path.isfile(text):  # a long text is no error here
        raise ConfigurationError(f"{text} is a file, not a pattern; give it with {option}")
    pattern = compile_pattern(given_text(text, file))
    for subject in (pattern.declaration.subject, *(leaf.subject for leaf in pattern.leaves)):
        check_wanted_subject(subject)
    return pattern
