"""Rate of parsing expressions of interest, in each language."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Final

from wanderbus import filters
from wanderbus.filters import xml

ECI: Final = (
    "(Stock == PETR4) and (Price < 25)",
    "Dest == IAH and DepDelay > 30",
    "Stock in (PETR4, VALE5) and Price > 10 and Price < 25.5",
    'Topic prefix "sports/" or not (Level >= 3 and Urgent == true)',
    "all Scores (> 5 and < 10) and exists Player and Day >= 2026-11-21T10:00:00Z",
)
"""Typical expressions: the published one, and others of two to five questions."""

CESQL: Final = (
    "Stock = 'PETR4' AND Price < 25",
    "Dest = 'IAH' AND DepDelay > 30",
    "Stock IN ('PETR4', 'VALE5') AND Price > 10 AND Price < 25",
    "Topic LIKE 'sports/%' OR NOT (Level >= 3 AND Urgent = TRUE)",
    "EXISTS Player AND LENGTH(Player) > 3",
)
ROUNDS: Final = 9


def parses_per_s(round_s: float = 0.2) -> dict[str, float]:
    """Return, for each language, the expressions parsed in a second: the median of some rounds."""
    texts = {"eci": ECI, "cesql": CESQL, "xml": tuple(xml.write(filters.parse(text).root) for text in ECI)}
    return {language: median(_rate(language, of, round_s) for _ in range(ROUNDS)) for language, of in texts.items()}


def _rate(language: str, texts: Sequence[str], round_s: float) -> float:
    count, began = 0, time.process_time()
    while (took := time.process_time() - began) < round_s:
        for _ in range(20):
            for text in texts:
                filters.parse(text, language)
        count += 20 * len(texts)
    return count / took


if __name__ == "__main__":
    for language, rate in parses_per_s().items():
        print(f"parse_{language}_per_s: {rate:,.0f}")
