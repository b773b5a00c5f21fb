"""The subscription language of ECI, read and written (SPEC A-06, A-13 to A-16, X3).

The grammar, with every operator and literal, is in docs/filter-reference.md; a test holds it to this reader.

A word starts with a letter or ``_`` and goes on with letters, digits and ``_ - . : + / @ # $ %``; as a literal it is a
string. In quotes, ``\\`` goes before a quote, ``\\``, ``n``, ``r``, ``t``, or ``u`` and four hexadecimal digits. A
date is an instant of RFC 3339 with its offset, to the microsecond, or a day, which is its midnight in UTC. The float
that is infinite is ``+inf`` or ``-inf``. Keywords are read in any case; ``and or not true false`` are reserved, the
others are keywords only where no operator follows them, and names that would be one are put in backquotes.

``name test`` asks for some item, as ``any name test`` does. Those of one ``and`` that ask about one name are **one**
clause, satisfied by one item: ``Price > 5 and Price < 10``; with ``any`` each may have its own. An ``and`` in
parentheses within an ``and`` is opened, and so is an ``or`` within an ``or``; ``and(...)`` and ``or(...)`` take their
operands as they stand.
"""

from __future__ import annotations

from wanderbus.filters.eci.reading import read
from wanderbus.filters.eci.writing import write

__all__ = ["read", "write"]
