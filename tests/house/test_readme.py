"""The README tells the truth: its programs run against a real server, its commands exist.

A ```` ```python ```` block whose first line is a comment with a file name, such as ``# hello.py``, is run as that file.
Where a line of it ends in ``# prints TEXT``, that text has to come out, in this order. Port 5060 stands for the
server's; the block must end by itself.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
RUN_S_MAX = 60


class Snippet(NamedTuple):
    name: str
    code: str

    @property
    def printed(self) -> list[str]:
        return re.findall(r"# prints (.+)$", self.code, re.MULTILINE)


def snippets(markdown: str) -> list[Snippet]:
    """The named python blocks of a Markdown text."""
    blocks = re.findall(r"^```python\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL)
    named = ((re.match(r"# ([\w-]+\.py)\n", block), block) for block in blocks)
    return [Snippet(name[1], block) for name, block in named if name]


def readme() -> str:
    return README.read_text(encoding="utf-8") if README.exists() else ""


def test_extraction() -> None:
    text = "a\n```python\n# one.py\nprint(1)  # prints 1\n```\n```python\nunnamed()\n```\n```sh\n# no.py\n```\n"
    assert snippets(text) == [Snippet("one.py", "# one.py\nprint(1)  # prints 1\n")]
    assert snippets(text)[0].printed == ["1"]


def test_readme_has_programs() -> None:
    names = [snippet.name for snippet in snippets(readme())]
    assert names
    assert len(names) == len(set(names))


def test_commands_of_readme_exist(root: Path) -> None:
    usage = subprocess.run([str(root / "do"), "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"^  (\w+) ", usage, re.MULTILINE))
    named = set(re.findall(r"\./do (\w+)", readme()))
    assert {"demo", "test"} <= named <= known


@pytest.mark.integration
@pytest.mark.parametrize("snippet", snippets(readme()), ids=lambda snippet: snippet.name)
def test_program_of_readme_runs(snippet: Snippet, server: int, tmp_path: Path) -> None:
    file = tmp_path / snippet.name
    file.write_text(re.sub(r"\b5060\b", str(server), snippet.code), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
    rest = done.stdout
    for expected in snippet.printed:
        _, found, rest = rest.partition(expected)
        assert found, f"{expected!r} was not printed, or not in its place:\n{done.stdout}"
