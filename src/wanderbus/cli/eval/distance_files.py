"""Files with the places of domains, or with the round-trip times between them, for ``wanderbus eval federation``."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from wanderbus.errors import ConfigurationError
from wanderbus.evaluation.federation.experiment import DOMAINS_MAX
from wanderbus.evaluation.handover.experiment import PLANE_M
from wanderbus.evaluation.handover.movement import Place

ROUND_TRIP_MS_MAX: Final = 10_000.0


def read_places(path: Path) -> tuple[Place, ...]:
    """Return the places in a CSV file; :class:`ConfigurationError` if a line is wrong."""
    rows = _rows(path)
    if not 1 <= len(rows) <= DOMAINS_MAX:
        raise ConfigurationError(f"{path}: {len(rows)} places (expected 1 to {DOMAINS_MAX})")
    return tuple(_place(row, f"{path}:{number}") for number, row in enumerate(rows, 1))


def read_regions() -> tuple[tuple[float, ...], ...]:
    """Return the round-trip times in milliseconds between regions of a public cloud.

    Source: Microsoft, *Azure network round-trip latency statistics*, July 2025; medians of 30 days, of both directions
    the mean. All 36 regions are there that have a time to each other one.
    """
    with resources.as_file(resources.files("wanderbus.evaluation.federation") / "regions.csv") as path:
        return read_round_trips(path)


def read_round_trips(path: Path) -> tuple[tuple[float, ...], ...]:
    """Return the round-trip times in milliseconds in a CSV file; :class:`ConfigurationError` if a line is wrong."""
    rows = _rows(path)
    names = rows[0][1:] if rows else []
    if not 1 <= len(names) <= DOMAINS_MAX:
        raise ConfigurationError(f"{path}:1: {len(names)} names (expected 1 to {DOMAINS_MAX})")
    if [row[0] for row in rows[1:] if row] != names:
        raise ConfigurationError(f"{path}: expected a line for each name of the first one, in the same order")
    return tuple(_times(row[1:], len(names), f"{path}:{number}") for number, row in enumerate(rows[1:], 2))


def _rows(path: Path) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from None


def _place(row: Sequence[str], where: str) -> Place:
    x, y = _numbers(row, 2, PLANE_M, f"{where}: expected X,Y from 0 to {PLANE_M:g}")
    return x, y


def _times(row: Sequence[str], count: int, where: str) -> tuple[float, ...]:
    expected = f"{where}: expected {count} times from 0 to {ROUND_TRIP_MS_MAX:g} ms"
    return _numbers(row, count, ROUND_TRIP_MS_MAX, expected)


def _numbers(row: Sequence[str], count: int, most: float, expected: str) -> tuple[float, ...]:
    try:
        found = tuple(map(float, row))
    except ValueError:
        raise ConfigurationError(expected) from None
    if len(found) != count or not all(math.isfinite(each) and 0 <= each <= most for each in found):
        raise ConfigurationError(expected)
    return found
