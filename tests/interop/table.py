"""Table of the interoperability tests with others' software: peer, scenario, transport, result.

Every test of this directory names its row by a marker::

    @pytest.mark.interop(peer="Kamailio", scenario="call, move and BYE")

Its transport is the marker's, or the value of the test's parameter ``transport``, or none at all. Several tests may
share a row; its result is the worst of theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

import pytest

Outcome = Literal["passed", "skipped", "failed"]

NO_TRANSPORT: Final = "-"
_WORST_LAST: Final[tuple[Outcome, ...]] = ("passed", "skipped", "failed")
_HEADINGS: Final = ("peer", "scenario", "transport", "result")


class Row(NamedTuple):
    """Key of a row, by which rows are sorted."""

    peer: str
    scenario: str
    transport: str


class Unmarked(Exception):
    """A test without a marker that names its row."""


def row_of(item: pytest.Item) -> Row:
    """Return the row of a test; raise :class:`Unmarked` if it names no peer or no scenario."""
    said: dict[str, str] = {}
    for marker in reversed(list(item.iter_markers("interop"))):  # the module's first, the test's own last
        said |= marker.kwargs
    if not {"peer", "scenario"} <= said.keys():
        raise Unmarked(f"{item.nodeid}: mark it with pytest.mark.interop(peer=..., scenario=...)")
    parameters: Mapping[str, object] = getattr(getattr(item, "callspec", None), "params", {})
    transport = said.get("transport") or str(parameters.get("transport", NO_TRANSPORT))
    return Row(said["peer"], said["scenario"], transport)


def merged(outcomes: Iterable[tuple[Row, Outcome]]) -> dict[Row, Outcome]:
    """Return the worst outcome of each row, in the order of rows."""
    worst: dict[Row, Outcome] = {}
    for row, outcome in outcomes:
        worst[row] = max(worst.get(row, "passed"), outcome, key=_WORST_LAST.index)
    return dict(sorted(worst.items()))


def markdown(results: Mapping[Row, str]) -> str:
    """Return the table in Markdown."""
    lines = [_HEADINGS, ("---",) * len(_HEADINGS), *((*row, result) for row, result in results.items())]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def aligned(results: Mapping[Row, str]) -> str:
    """Return the table for a terminal."""
    lines = [_HEADINGS, *((*row, result) for row, result in results.items())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)
