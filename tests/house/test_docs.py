"""The documentation is consistent: every page is in the index, and every link and file name resolves."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
DECISION_PARTS = ("Problem", "Decision", "Declined")
WITHOUT_ALTERNATIVES = {"0058-definitions-apart-and-modules-on-demand.md"}
NOT_IN_THE_TREE = {("0036-subscriptions-of-commands.md", "sub/")}
"""Places that a page names although the project has none: a directory of devices' state at run time."""


def links(page: Path) -> list[str]:
    """Return the targets of a page's links within the project."""
    found = LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, in the form that repository hosts generate."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    """Return the links of a page that do not resolve."""
    wrong = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            wrong.append(target)
    return wrong


def test_every_page_is_in_the_index(root: Path) -> None:
    index = root / "docs" / "README.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in links(index)}
    missing = {page for page in (root / "docs").glob("*.md") if page != index} - linked
    assert not missing, f"add to docs/README.md: {sorted(page.name for page in missing)}"
    assert root / "docs" / "decisions" in linked


def test_the_index_is_by_question(root: Path) -> None:
    text = (root / "docs" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\w+)", text, re.MULTILINE) == ["Learn", "Do", "Look", "Understand"]
    rows = re.findall(r"^\| (?!question|---)(.+?) \|", text, re.MULTILINE)
    assert all(row.endswith("?") for row in rows)


def test_the_readme_leads_to_the_index(root: Path) -> None:
    assert "docs/README.md" in links(root / "README.md")


def test_every_link_resolves(files: list[Path], root: Path) -> None:
    wrong = {str(page.relative_to(root)): found for page in files if page.suffix == ".md" and (found := broken(page))}
    assert not wrong


def test_broken_links_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One thing, here\n[a](#one-thing-here) [b](no.md) [c](#none) `[d](e)` [f](page.md#none)\n")
    assert broken(page) == ["no.md", "#none", "page.md#none"]


def bases(root: Path) -> tuple[Path, ...]:
    """Directories below which a page names files: the root, the package and docs/."""
    return (root, root / "src" / "wanderbus", root / "docs")


def named_places(text: str) -> list[str]:
    """Return the files, directories and modules of the project that a page names in code spans."""
    names = re.findall(r"`([\w./-]+)`", text)
    return [name for name in names if "/" in name or name.endswith(".py") or name.startswith("wanderbus.")]


def missing_places(text: str, root: Path) -> list[str]:
    """Return the named files, directories and modules that do not exist.

    A name with a slash counts as a path if its first part is a directory of the project, or if it ends with a slash.
    """
    missing = []
    for name in sorted(set(named_places(text))):
        first = name.split("/")[0]
        if name.startswith("wanderbus."):
            exists = is_importable(name)
        elif name.endswith((".py", "/")) or ("/" in name and any((base / first).is_dir() for base in bases(root))):
            exists = any((base / name).exists() for base in bases(root))
        else:
            continue
        if not exists:
            missing.append(name)
    return missing


def is_importable(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_every_place_that_a_page_names_exists(root: Path) -> None:
    """Decisions and the pages about structure name files by their path below the root, the package or docs/."""
    pages = sorted((root / "docs" / "decisions").glob("*.md"))
    pages += [root / "docs" / name for name in ("DESIGN.md", "ARCHITECTURE.md", "readings.md")]
    missing = {page.name: missing_places(page.read_text(encoding="utf-8"), root) for page in pages}
    found = {(page, name) for page, names in missing.items() for name in names}
    assert found == NOT_IN_THE_TREE, "correct the name; or, if a decision declines it, add it to NOT_IN_THE_TREE"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`broker/core.py`, `tests/house/`, `wanderbus.errors`, `docs/DESIGN.md` and `client/machine`", []),
        ("`broker/nothing.py`", ["broker/nothing.py"]),
        ("`nothing/`", ["nothing/"]),
        ("`client/nothing`", ["client/nothing"]),
        ("`wanderbus.nothing`", ["wanderbus.nothing"]),
        ("`TCP/TLS`, `state.db`, broker/nothing.py", []),
    ],
)
def test_missing_places_are_seen(text: str, expected: list[str], root: Path) -> None:
    assert missing_places(text, root) == expected


def parts_of(text: str) -> list[str]:
    """Return the parts of a decision that the form requires, in their order."""
    return [part for part in re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) if part in DECISION_PARTS]


def test_decisions_have_problem_decision_and_declined_alternatives(root: Path) -> None:
    pages = sorted((root / "docs" / "decisions").glob("0*.md"))
    found = {page.name: parts for page in pages if (parts := parts_of(page.read_text(encoding="utf-8")))}
    wrong = {name: parts for name, parts in found.items() if parts != list(DECISION_PARTS)}
    wrong |= {page.name: [] for page in pages if page.name not in found}
    assert {name for name in wrong if wrong[name] != ["Problem", "Decision"]} == set()
    assert set(wrong) <= WITHOUT_ALTERNATIVES, "say which alternatives were declined, and why"


def test_a_decision_in_another_form_is_seen() -> None:
    assert parts_of("# 1\n\n**Decision.** x\n\n**Problem.** y\n**Consequences.** z\n") == ["Decision", "Problem"]


def test_every_file_that_a_page_names_exists(root: Path) -> None:
    """Pages name a file by its path below the package or the root; matching.md and filters.md below their room."""
    named = re.compile(r"`((?:\w+/)*\w+\.py)`")
    package = root / "src" / "wanderbus"
    bases = (root, package, package / "matching", package / "filters")
    missing = []
    for page in sorted((root / "docs").glob("*.md")):
        names = set(named.findall(page.read_text(encoding="utf-8")))
        missing += [f"{page.name}: {name}" for name in names if not any((base / name).exists() for base in bases)]
    assert missing == []
