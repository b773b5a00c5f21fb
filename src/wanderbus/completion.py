"""Names for tab completion of public objects."""

from __future__ import annotations

from collections.abc import Set as AbstractSet


def public_names(shown: object, *, but: AbstractSet[str] = frozenset()) -> list[str]:
    """Return the attributes of ``shown`` without a leading underscore and without ``but``, for its ``__dir__``."""
    return sorted(name for name in object.__dir__(shown) if not name.startswith("_") and name not in but)
