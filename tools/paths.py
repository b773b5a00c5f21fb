"""Write docs/paths.md from the registry of tests/conformance/paths; with --check only report if it is up to date."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path as File

ROOT = File(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.conformance.paths.counts import COUNTINGS  # noqa: E402
from tests.conformance.paths.questions import KINDS  # noqa: E402
from tests.conformance.paths.registry import PATHS, Path  # noqa: E402

DOCUMENT = ROOT / "docs" / "paths.md"

HEADING = """# Paths that answer, and what each of them takes

A filter or a pattern can be asked on many paths: live, in the past of a log or of a lake, and by commands that explain.
Each gives the same answer to the same question. `./do fmt` writes this page from the registry of
`tests/conformance/paths/`. Its tests put the same events and questions to every path, and compare the answers with
those of the slow evaluator of filters and of an enumerator of patterns.

*yes*: it answers. *refused*: it refuses such a question with one line, which is below. An empty cell: there is no way
to ask it, for the reason below. A path gives whole *events*, their *numbers*, their *count*, the *matches* of the
filter whatever the restrictions, or *detections*.

The events have all types, lists, empty lists, attributes with odd names or with the names of columns, Dates with
offsets and of the years 1 and 9999, infinities, and no attributes. NaN, half characters, and Dates that in UTC are
beyond these years are refused when an event is published. Restrictions are those that held when an event came: changes
of a subscription are in the log, and what explains or replays the past uses them. A replay of a log that begins later
says that it does not know what was before. Patterns that are live or followed wait for events from the
future until the clock is there ([patterns.md](patterns.md)).

"""

ADDING = """
## A new feature adds a row or a column

A new path (a command, an option that reads elsewhere, a model of channels) is an entry of `PATHS` in
`tests/conformance/paths/registry.py`: a name, what it gives, a function that asks it, and the kinds of questions that
it refuses or cannot be asked. A new kind of question (a language, a restriction, a property of subjects) is an entry of
`KINDS` in `tests/conformance/paths/questions.py`, with a question in `tests/conformance/paths/cases.py`: then every
path must answer it, or say why not. A new kind of event is one more event of the small case and of the drawn ones.
`./do test tests/conformance/paths` asks the small form. `./do fuzz paths --seeds 20` draws cases, and prints each
difference with the command that repeats it; `./do soak` does so for longer.
"""


COUNTS = """\
For each user these give the same numbers: of matches generated, delivered, waiting, restricted, and dropped by reason.
All but `wanderbus sessions` count published events by user too. A report has one number for drops that somebody asked
for. The tests compare the counters of servers with the answers above, and the others with these counters."""


def cells(refuses: Mapping[str, str], lacks: Mapping[str, str]) -> Iterator[str]:
    """Yield the cell of each kind of question."""
    for kind in KINDS:
        yield "refused" if kind in refuses else "" if kind in lacks else "yes"


def reasons(which: str) -> list[str]:
    """Return a list of reasons, each with the kinds of questions and the paths."""
    found: dict[str, tuple[list[str], list[Path]]] = {}
    for path in PATHS:
        for kind, reason in getattr(path, which).items():
            kinds, paths = found.setdefault(reason, ([], []))
            kinds += [kind] if kind not in kinds else []
            paths += [path] if path not in paths else []
    return [f"- {', '.join(kinds)}: *{reason}* ({'; '.join(named(paths))})" for reason, (kinds, paths) in found.items()]


def named(paths: list[Path]) -> list[str]:
    """Return the names of paths, in groups of those that begin alike."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        first, _, rest = path.name.partition(": ")
        groups.setdefault(first, []).append(rest)
    every = {first: [path.name for path in PATHS if path.name.partition(": ")[0] == first] for first in groups}
    return [
        first if len(rests) == len(every[first]) else f"{first}: {', '.join(rests)}" for first, rests in groups.items()
    ]


def counted() -> Mapping[str, list[str]]:
    """Return the places that are counted, by the command that does it."""
    found: dict[str, list[str]] = {}
    for each in COUNTINGS:
        first, _, rest = each.name.partition(": ")
        found.setdefault(first, []).append(rest)
    return found


def document() -> str:
    """Return the content for docs/paths.md."""
    lines = [f"| path | gives | {' | '.join(KINDS)} |", f"|{'---|' * (len(KINDS) + 2)}"]
    lines += [f"| {path.name} | {path.gives} | {' | '.join(cells(path.refuses, path.lacks))} |" for path in PATHS]
    lines += [
        "",
        "## Refusals",
        "",
        *reasons("refuses"),
        "",
        "## Questions that cannot be asked",
        "",
        *reasons("lacks"),
        "",
        "## Counts",
        "",
        COUNTS,
        "",
        *(f"- {', '.join(rests)} ({first})" for first, rests in counted().items()),
    ]
    return HEADING + "\n".join(lines) + "\n" + ADDING


def main() -> int:
    expected = document()
    if "--check" not in sys.argv[1:]:
        DOCUMENT.write_text(expected, encoding="utf-8")
        return 0
    if DOCUMENT.exists() and DOCUMENT.read_text(encoding="utf-8") == expected:
        return 0
    print("docs/paths.md is not what the registry says: run ./do fmt", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
