"""The published XML schema, to validate written and parsed documents."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import xmlschema


@cache
def schema() -> xmlschema.XMLSchema:
    """Return ``wanderbus.xsd`` of the package."""
    return xmlschema.XMLSchema(files("wanderbus.filters.xml").joinpath("wanderbus.xsd").read_text("utf-8"))


def is_valid(text: str) -> bool:
    """Return whether the schema admits ``text``."""
    return bool(schema().is_valid(text))
