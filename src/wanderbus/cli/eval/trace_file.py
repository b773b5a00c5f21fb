"""Files with the places of users over time, for ``wanderbus eval handover --trace``."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from wanderbus.errors import ConfigurationError
from wanderbus.evaluation.handover.experiment import PLANE_M, USERS_MAX, TracePoint


def read_trace(path: Path) -> tuple[TracePoint, ...]:
    """Return the places of a file; ``ConfigurationError`` for a line that is none."""
    points = []
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            for number, row in enumerate(csv.reader(lines), 1):
                points.append(_trace_point(row, f"{path}, line {number}"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"{path} is no CSV file: {error}") from None
    if not points:
        raise ConfigurationError(f"{path} has no places; expected lines SECOND,USER,X,Y")
    return tuple(points)


def _trace_point(row: Sequence[str], where: str) -> TracePoint:
    try:
        at_s, user, x_m, y_m = row
        point = TracePoint(float(at_s), int(user), float(x_m), float(y_m))
    except ValueError:
        raise ConfigurationError(f"{where}: {','.join(row)!r} is not SECOND,USER,X,Y") from None
    is_place = 0 <= point.x_m <= PLANE_M and 0 <= point.y_m <= PLANE_M
    if not (0 <= point.user < USERS_MAX and 0 <= point.at_s < float("inf") and is_place):
        raise ConfigurationError(
            f"{where}: {','.join(row)!r} is out of range (users 0 to {USERS_MAX - 1}, X and Y 0 to {PLANE_M:g})"
        )
    return point
