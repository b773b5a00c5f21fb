"""Citations of requirements, readings and design sections resolve to rows and headings in docs/ (SPEC Q-04)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PLACES = ("src", "tests", "demo", "bench", "hostile", "faults", "fuzz", "examples", "tools", "docs", "README.md")
SUFFIXES = {".py", ".md", ".toml"}

CHAIN = re.compile(r"\b(SPEC|DESIGN) (?:section |(rule ))?([\w.-]+(?:(?:, | to | and )[\w.-]+)*)")
REQUIREMENT = re.compile(r"[A-W]-\d\d")
SECTION = re.compile(r"[A-W]")
READING = re.compile(r"X\d{1,2}")
READING_ALONE = re.compile(r"(?<![\w.-])X\d{1,2}(?![\w.])")
NUMBER = re.compile(r"\d+(?:\.\d+)*")
LINE_BREAK = re.compile(r"\n[ \t]*(?:#+ |> )?")


class Citation(NamedTuple):
    """One cited item, such as ``SPEC A-01`` or ``DESIGN 5.4``, and its line."""

    line: int
    kind: str
    item: str


class Targets(NamedTuple):
    """Everything that a citation can name."""

    requirements: set[str]
    readings: set[str]
    sections: set[str]
    design: set[str]


def targets(root: Path) -> Targets:
    """Read rows and headings of the pages that citations resolve to."""
    requirements = (root / "docs" / "REQUIREMENTS.md").read_text(encoding="utf-8")
    readings = (root / "docs" / "readings.md").read_text(encoding="utf-8")
    design = (root / "docs" / "DESIGN.md").read_text(encoding="utf-8")
    return Targets(
        set(re.findall(r"^\| ([A-W]-\d\d) \|", requirements, re.MULTILINE)),
        set(re.findall(r"^\| (X\d+) \|", readings, re.MULTILINE)),
        set(re.findall(r"^## ([A-W])\. ", requirements, re.MULTILINE)),
        set(re.findall(r"^##+ (\d+(?:\.\d+)*)\.? ", design, re.MULTILINE))
        | {title.lower() for title in re.findall(r"^## \d+\. (\w+)$", design, re.MULTILINE)},
    )


def items_of(kind: str, chain: str) -> Iterator[str]:
    """Yield the items of one citation: ``A-13 to A-16, X4`` has three. The first word counts even if it is no id."""
    words = re.split(r", | to | and ", chain)
    known = (REQUIREMENT, READING, SECTION) if kind == "SPEC" else (NUMBER,)
    for index, word in enumerate(words):
        item = word.rstrip(".-")
        if any(pattern.fullmatch(item) for pattern in known) or index == 0:
            yield item
        else:
            return


def citations(text: str) -> Iterator[Citation]:
    """Find the citations of a text, also those that a line break divides."""
    starts = [0, *(match.end() for match in re.finditer(r"\n", text))]
    flat = LINE_BREAK.sub(lambda match: " ".ljust(len(match[0])), text)
    flat = re.sub(r" +", lambda match: " ".ljust(len(match[0]), "\0"), flat)
    plain, places = [], []
    for place, character in enumerate(flat):
        if character != "\0":
            plain.append(character)
            places.append(place)
    joined = "".join(plain)

    def line_of(place: int) -> int:
        return sum(start <= places[place] for start in starts)

    for match in CHAIN.finditer(joined):
        for item in items_of(match[1], match[3]):
            yield Citation(line_of(match.start()), match[1], f"2.{item}" if match[2] else item)
    for match in READING_ALONE.finditer(joined):
        yield Citation(line_of(match.start()), "SPEC", match[0])


def resolves(citation: Citation, known: Targets) -> bool:
    """Say whether a citation names a row or a heading."""
    if citation.kind == "DESIGN":
        return citation.item in known.design
    return citation.item in known.requirements | known.readings | known.sections


def dead(text: str, known: Targets) -> list[str]:
    """Return the citations of a text that resolve to nothing, with their lines."""
    return [f"{found.line}: {found.kind} {found.item}" for found in citations(text) if not resolves(found, known)]


@pytest.fixture(scope="module")
def known(root: Path) -> Targets:
    return targets(root)


def test_every_citation_resolves(files: list[Path], root: Path, known: Targets) -> None:
    found = []
    for path in files:
        place = path.relative_to(root)
        if place.parts[0] in PLACES and path.suffix in SUFFIXES and path != Path(__file__).resolve():
            found += [f"{place}:{fault}" for fault in dead(path.read_text(encoding="utf-8"), known)]
    assert found == [], (
        "add a row to docs/REQUIREMENTS.md or docs/readings.md, a heading to docs/DESIGN.md, or correct it"
    )


def test_pages_are_complete(known: Targets) -> None:
    assert known.readings == {f"X{number}" for number in range(1, 43)}
    assert {item.partition("-")[0] for item in known.requirements} == known.sections


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(SPEC A-01 to A-03, X99)", ["1: SPEC X99", "1: SPEC X99"]),
        ("one\n(SPEC A-99)", ["2: SPEC A-99"]),
        ("(SPEC\n    A-98; RFC 3261)", ["1: SPEC A-98"]),
        ("# see SPEC\n# A-98, where", ["1: SPEC A-98"]),
        ("(DESIGN 5.1 and 5.99)", ["1: DESIGN 5.99"]),
        ("(DESIGN rule 9)", ["1: DESIGN 2.9"]),
        ("(DESIGN rule 3; DESIGN words; SPEC section R, S-08)", []),
        ("(SPEC F, F-09; DESIGN 6.1 to 6.3). X12: it is", []),
        ("X25519, RFC 3261 X-Header, SPEC_A", []),
    ],
)
def test_dead_citations_are_seen(text: str, expected: list[str], known: Targets) -> None:
    assert dead(text, known) == expected
