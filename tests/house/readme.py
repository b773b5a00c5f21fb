"""The fenced blocks of a page, as the README: files to save, and lines for a shell; and a walk along them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
CHECKOUT = ("src", "tests", "examples", "docs", "do")


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
    return page_blocks(README)


def page_blocks(page: Path) -> list[Block]:
    """Return the blocks of a page."""
    return blocks(page.read_text(encoding="utf-8"))


def walk(page: Path, directory: Path, limit_s: float) -> subprocess.CompletedProcess[str]:
    """Follow a page in ``directory``, which gets what a checkout has, in a network of its own (needs root)."""
    for name in CHECKOUT:
        (directory / name).symlink_to(ROOT / name)
    (directory / ".venv").symlink_to(sys.prefix)
    return subprocess.run(
        ["unshare", "--net", sys.executable, "-m", "tests.house.readme_walk", str(directory), str(page)],
        cwd=ROOT,
        env={**os.environ, "HOME": str(directory)},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def _name(language: str, text: str) -> str:
    found = re.match(r"# ([\w-]+\.(?:py|toml))\n", text)
    return found[1] if found and language != "sh" else ""
