"""Durations on the command line: seconds, or a number with a unit."""

from __future__ import annotations

import re
from typing import Final

from wanderbus.errors import ConfigurationError

_UNITS: Final = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_SPAN: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(|s|min|h|d)")


def span_s(text: str, option: str) -> float:
    """Return the seconds of ``90``, ``90s``, ``15min``, ``2h`` or ``7d``; else raise :class:`ConfigurationError`."""
    found = _SPAN.fullmatch(text)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < seconds < 1e10:
        raise ConfigurationError(f"{option}: invalid duration {text!r} (expected for example 90s, 15min, 2h or 7d)")
    return seconds
