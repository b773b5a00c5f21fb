"""Keywords of the language and quoting of text, for the reader and the writer."""

from __future__ import annotations

import re
from typing import Final

WORD: Final = r"[^\W\d][\w\-.:+/@\#$%]*+"
"""The pattern of a name or a string that needs no quotes."""

RESERVED: Final = frozenset({"and", "or", "not", "true", "false"})
"""Never a name or an unquoted string."""

QUANTIFIERS: Final = frozenset({"any", "all"})
WORD_OPERATORS: Final = frozenset({"prefix", "suffix", "contains", "in"})
SIGNS: Final = frozenset({"==", "!=", "<", "<=", ">", ">="})
ORDERING: Final = frozenset({"<", "<=", ">", ">="})
MATCHING: Final = frozenset({"prefix", "suffix", "contains"})
"""Operators of strings only."""

KEYWORDS: Final = RESERVED | QUANTIFIERS | WORD_OPERATORS | {"exists", "everything", "nothing", "cesql"}
"""A name that is one of these is written in backquotes."""

ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "`": "`", "\\": "\\"}
"""Characters that escapes stand for, besides ``u`` and four hexadecimal digits."""

_TO_ESCAPE: Final = re.compile("[\\\\\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}


def quoted(text: str, quote: str) -> str:
    """Return ``text`` between ``quote``, on one line and without control characters."""
    escaped = _TO_ESCAPE.sub(lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}", text)
    return quote + escaped.replace(quote, "\\" + quote) + quote
