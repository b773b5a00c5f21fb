"""Names of a package that are loaded on first use, so that who needs the others does not load Spark."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def names_on_demand(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a ``package`` whose names are in these modules of it.

    A type checker must not see it, because it would accept every name.
    """

    def get(name: str) -> object:
        if name in homes:
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get
