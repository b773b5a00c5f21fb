"""The fenced blocks of the README: files to save, and lines for a shell."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

README = Path(__file__).resolve().parents[2] / "README.md"


class Block(NamedTuple):
    """One fenced block; ``name`` is the file that its first line names, as in ``# hello.py``, or empty."""

    language: str
    name: str
    text: str

    @property
    def printed(self) -> list[str]:
        """Texts that the program must print, in this order: from comments ``# prints TEXT``."""
        return re.findall(r"# prints (.+)$", self.text, re.MULTILINE)


def blocks(markdown: str) -> list[Block]:
    """Return the fenced blocks of a Markdown text, in order."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL)
    return [Block(language, _name(language, text), text) for language, text in fenced]


def readme_blocks() -> list[Block]:
    """Return the blocks of this project's README."""
    return blocks(README.read_text(encoding="utf-8"))


def _name(language: str, text: str) -> str:
    found = re.match(r"# ([\w-]+\.(?:py|toml))\n", text)
    return found[1] if found and language != "sh" else ""
