"""Context-sensitive ticker: place, battery and network decide on which device it is read (SPEC Q-07)."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

TICKER = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "ticker.py"))


@pytest.mark.parametrize(
    ("place", "battery", "network", "present", "best"),
    [
        ("office", 0.9, "wlan", "phone", "desk"),
        ("office", 0.1, "none", "phone", "desk"),
        ("home", 0.19, "wlan", "phone", "kitchen"),
        ("home", 0.2, "wlan", "desk", "phone"),
        ("train", 0.1, "cellular", "desk", "phone"),
        ("tunnel", 0.9, "none", "desk", "desk"),
        ("tunnel", 0.9, "none", "phone", "phone"),
    ],
)
def test_q07_the_context_decides_which_device_shows_the_ticker(
    place: str, battery: float, network: str, present: str, best: str
) -> None:
    assert TICKER["best_device"](TICKER["Context"](place, battery, network), present) == best
