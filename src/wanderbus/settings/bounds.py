"""Bounds of a running server with their values, each under the name that a refusal shows.

Most are settings. A few are constants, for the reasons that docs/SECURITY.md gives; they are named after their module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args, get_type_hints

import msgspec

from wanderbus import limits
from wanderbus.access.device_session import WITHHELD_MAX
from wanderbus.broker.backlog import UNATTENDED_MAX
from wanderbus.mobility.session.uas_invite import SESSIONS_MAX
from wanderbus.settings.keys import OPTIONAL
from wanderbus.settings.server import ProxySettings, ServerSettings
from wanderbus.sip.proxy.location import AORS_MAX, BINDINGS_PER_AOR_MAX

CONSTANTS: Final[Mapping[str, float]] = {
    **{f"limits.{name}": value for name, value in vars(limits).items() if name.isupper() and name.endswith("_MAX")},
    "access_server.WITHHELD_MAX": WITHHELD_MAX,
    "backlog.UNATTENDED_MAX": UNATTENDED_MAX,
    "registrar.AORS_MAX": AORS_MAX,
    "registrar.BINDINGS_PER_AOR_MAX": BINDINGS_PER_AOR_MAX,
    "user_agent.SESSIONS_MAX": SESSIONS_MAX,
}
"""Bounds that no setting changes."""

_NO_BOUNDS: Final = {
    *("port", "tls_port", "broker_port", "data_port", "stream_port", "eci_port"),
    *("log_keep_s", "log_keep_bytes"),
}
"""Numeric settings that are not bounds."""


def bounds_of(settings: ProxySettings | ServerSettings) -> tuple[Mapping[str, Any], ...]:
    """Return a row with ``limit`` and ``value`` for each bound, sorted by name.

    Settings of None are no bounds and are left out.
    """
    return tuple({"limit": name, "value": value} for name, value in sorted(values_of(settings).items()))


def values_of(settings: ProxySettings | ServerSettings) -> dict[str, float]:
    """Return the value of each bound by its name."""
    return {**CONSTANTS, **dict(_numbers(settings, ""))}


def _numbers(settings: msgspec.Struct, prefix: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers in a table and its subtables; an absent table has its defaults."""
    hints = get_type_hints(type(settings))
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if value is None and not (prefix == "" and name in OPTIONAL):
            value = _default(hints[name])
        if isinstance(value, msgspec.Struct):
            yield from _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name not in _NO_BOUNDS:
            yield f"{prefix}{name}", value


def _default(hint: Any) -> msgspec.Struct | None:
    """Return the default struct that None means in a field of this type."""
    for kind in get_args(hint):
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return kind()
    return None
