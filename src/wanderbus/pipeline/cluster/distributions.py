"""Installed distributions that the workers need, and the files of those that they do not need (decision 0069)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name

from wanderbus.errors import ConfigurationError

OWN: Final = canonicalize_name("wanderbus")


def needed(included: Sequence[str]) -> set[NormalizedName]:
    """Return the names of what jobs of the pipeline need, of ``included``, and of everything that these require.

    Raises ``ConfigurationError`` if one of them is not installed.
    """
    found: dict[NormalizedName, set[str]] = {}
    wanted = [("", Requirement(f"{OWN}[pipeline]"))]
    wanted += [("", _requirement(each)) for each in included]
    while wanted:
        parent, requirement = wanted.pop()
        name, extras = canonicalize_name(requirement.name), {"", *requirement.extras}
        added = extras - found.get(name, set())
        if not added:
            continue
        found.setdefault(name, set()).update(added)
        wanted += [(name, each) for each in _requirements(name, added, parent)]
    return set(found)


def project_of(name: str) -> Path | None:
    """Return the directory from which a distribution is installed as editable; None if its files are installed."""
    text = distribution(name).read_text("direct_url.json")
    origin = json.loads(text) if text else {}
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(origin["url"]).path))


def files_of_others(names: Iterable[NormalizedName]) -> set[Path]:
    """Return the files of all distributions but those with these names."""
    kept = set(names)
    others = [each for each in distributions() if canonicalize_name(each.name) not in kept]
    return {path for each in others for path in files_of(each)}


def files_of(installed: Distribution) -> Iterator[Path]:
    """Yield the files of a distribution, as absolute paths."""
    for file in installed.files or ():
        yield Path(str(installed.locate_file(file))).absolute()


def _requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement:
        raise ConfigurationError(f"--include {text}: it is not the name of a distribution") from None


def _requirements(name: NormalizedName, extras: set[str], parent: str) -> list[Requirement]:
    """Return what a distribution requires itself with these extras."""
    try:
        texts = distribution(name).requires or []
    except PackageNotFoundError:
        by = f", which {parent} requires," if parent else ""
        raise ConfigurationError(f"{name}{by} is not installed in this environment; install it first") from None
    every = [Requirement(each) for each in texts]
    return [
        each for each in every if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras)
    ]
