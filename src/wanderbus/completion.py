"""Names for tab completion of public objects."""

from __future__ import annotations


def public_names(shown: object) -> list[str]:
    """Return the attributes of ``shown`` without a leading underscore, for its ``__dir__``."""
    return sorted(name for name in object.__dir__(shown) if not name.startswith("_"))
