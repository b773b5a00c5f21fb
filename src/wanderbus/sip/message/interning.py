"""Interning of strings that occur in the messages of all users, to store each of them once."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

WORDS_MAX: Final = 256
"""Strings that are interned at a time. A sender of many different strings only makes interning ineffective."""


@lru_cache(WORDS_MAX)
def shared(word: str) -> str:
    """Return the interned string equal to ``word``."""
    return word
