"""Statements that requirements demand in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("requirement", "page", "words"),
    [
        ("A-02", "docs/ARCHITECTURE.md", ("server stays where it is", "only agents move or disconnect")),
        ("E-09", "docs/GLOSSARY.md", ("delivered to a device", "does not mean that anybody read it")),
    ],
)
def test_the_document_states_it(root: Path, requirement: str, page: str, words: tuple[str, ...]) -> None:
    text = " ".join((root / page).read_text(encoding="utf-8").split())
    at = text.find(f"(SPEC {requirement})")
    assert at > 0, f"{page} does not name {requirement}"
    assert all(word in text[at - 300 : at] for word in words)
