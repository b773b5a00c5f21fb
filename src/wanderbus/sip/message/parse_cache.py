"""Cache of parsed texts: each value of a message is read about six times."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

_Value = TypeVar("_Value")

CACHE_ENTRIES_MAX: Final = 256
"""Entries in each of the three caches: of Via values, of addresses and of URIs."""

CACHED_CHARACTERS_MAX: Final = 200
"""Longest text that is cached; this limits the caches to 8 MiB, even for values made of parameters only."""


def cached(read: Callable[[str], _Value]) -> Callable[[str], _Value]:
    """Return ``read``, whose values never change, with a cache of its latest ones; an error is not kept."""
    known = lru_cache(CACHE_ENTRIES_MAX)(read)
    return lambda text: known(text) if len(text) <= CACHED_CHARACTERS_MAX else read(text)
