"""Imports go one way (DESIGN 3)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import wanderbus

PACKAGE = Path("src/wanderbus")
VOCABULARY = {
    "cloudevents",
    "channel_events",
    "codec",
    "composition",
    "errors",
    "epochs",
    "event",
    "event_text",
    "hosts",
    "limits",
    "literals",
    "machine",
    "metrics",
    "completion",
    "detection",
    "operator_rows",
    "parameters",
    "records",
    "refusal_table",
    "refusals",
    "schema_proposals",
    "segments",
    "server_networks",
    "subject_schemas",
    "subscription",
    "tokens",
    "transport",
    "work",
}
MACHINES = {
    "filters",
    "matching",
    "patterns",
    "sip",
    "rudp",
    "tcp",
    "datachannel",
    "mobility",
    "relay",
    "protocol",
    "channels",
    "broker",
    "client.machine",
    "peers",
    "federation",
    "access",
}

# Each room, and the rooms that it may import besides itself and the vocabulary.
ALLOWED: dict[str, set[str]] = {
    "vocabulary": set(),
    "filters": set(),
    "sip": set(),
    "rudp": set(),
    "tcp": set(),
    "datachannel": {"sip", "rudp", "tcp"},
    "matching": {"filters"},
    "patterns": {"filters", "matching"},
    "mobility": {"sip"},
    "relay": {"sip", "rudp", "tcp", "datachannel"},
    "protocol": {"filters"},
    "planning": {"filters"},
    "channels": {"filters", "matching", "protocol"},
    "broker": {"filters", "matching", "patterns", "protocol", "channels"},
    "client.machine": {"sip", "rudp", "tcp", "datachannel", "mobility", "protocol", "filters"},
    "peers": {"sip", "rudp", "datachannel", "filters", "protocol", "channels", "broker"},
    "federation": {"filters", "protocol", "channels", "broker", "peers"},
    "access": MACHINES - {"client.machine", "access"},
    # Programs that read the log register there; this file alone, without the rest of the room.
    "runtime.log_readers": {"runtime"},
    # Whoever reads the log compares its place with it; this file alone, too.
    "runtime.log_place": {"runtime", "runtime.segment_files"},
    # Access rights of files, for everybody who makes some.
    "runtime.files.file_modes": set(),
    # Files of the log, which the pipeline reads too.
    "runtime.segment_files": set(),
    # The socket between a server and the programs beside it.
    "runtime.services": {"broker", "runtime", "runtime.files.file_modes", "runtime.segment_files"},
    "pipeline": {
        *("filters", "matching", "patterns", "broker", "planning", "plots"),
        *("runtime.files.file_modes", "runtime.log_place", "runtime.log_readers", "runtime.segment_files"),
        "runtime.services",
    },
    "simulation": MACHINES,
    "settings": MACHINES,
    "config": MACHINES | {"settings"},
    "runtime": MACHINES | {"runtime.files.file_modes", "runtime.segment_files", "settings"},
    "client": MACHINES - {"broker", "channels", "peers", "federation", "access", "matching", "patterns", "relay"}
    | {"runtime", "settings"},
    "server": MACHINES - {"client.machine"}
    | {"config", "runtime", "runtime.files.file_modes", "runtime.log_place", "runtime.log_readers", "settings"}
    | {"runtime.segment_files", "runtime.services", "web"},
    "api": {"sip", "rudp", "datachannel", "mobility", "runtime", "settings", "broker"},
    "plots": set(),
    # It is copied out of the package: standard library alone.
    "lightweight": set(),
    "testbed": set(),
    "web": MACHINES | {"config", "runtime", "settings", "client"},
    "evaluation": {
        *("filters", "protocol", "channels", "matching", "broker", "peers", "federation", "rudp"),
        *("simulation", "client", "server", "plots", "testbed"),
    },
    "cli": MACHINES
    | {
        *("config", "runtime", "runtime.files.file_modes", "runtime.log_readers", "runtime.segment_files", "settings"),
        *("runtime.services", "client", "server", "web", "pipeline"),
        *("simulation", "evaluation", "planning", "plots"),
    },
    "__init__": {"client", "server"},
    "__main__": {"cli"},
}

# What the demonstration may import too: it starts its own servers and users, in networks of its own.
EQUIPMENT = ("wanderbus.testbed", "wanderbus.plots")

# Modules that programs outside the package (demo/, examples/) may import, besides the names of `wanderbus` itself.
PUBLIC = (
    "wanderbus.api.extending",
    "wanderbus.api.rudp",
    "wanderbus.api.sip_mobility",
    "wanderbus.cloudevents",
    "wanderbus.config",
    "wanderbus.errors",
    "wanderbus.event_text",
    "wanderbus.filters",
    "wanderbus.lightweight",
    "wanderbus.patterns",
    "wanderbus.pipeline",
)


def room_of(parts: Sequence[str]) -> str:
    """Return the room of a module, from its path below the package; the files at the top are the vocabulary."""
    for depth in (3, 2):
        if (room := ".".join(parts[:depth])) in ALLOWED:
            return room
    return "vocabulary" if parts[0] in VOCABULARY else parts[0]


def room_of_file(path: Path) -> str:
    """Return the room of a file of the package."""
    return room_of(path.relative_to(PACKAGE).with_suffix("").parts)


def imported(path: Path, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield every module that a file imports, with its full name and the imported names, and the line."""
    here = path.relative_to("src").with_suffix("").parts if path.is_relative_to("src") else path.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*here[: len(here) - node.level]] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)


def breaches(modules: dict[Path, ast.Module]) -> list[str]:
    found = []
    for path, tree in modules.items():
        if not path.is_relative_to(PACKAGE):
            continue
        room = room_of_file(path)
        for name, line in imported(path, tree):
            parts = name.split(".")
            if parts[0] != "wanderbus" or len(parts) == 1:
                continue
            target = room_of(parts[1:])
            if target not in {room, "vocabulary"} | ALLOWED[room]:
                found.append(f"{path}:{line}: {room} may not import {target}")
    return sorted(set(found))


def test_every_room_is_known(modules: dict[Path, ast.Module]) -> None:
    unknown = {room_of_file(path) for path in modules if path.is_relative_to(PACKAGE)} - ALLOWED.keys()
    assert not unknown, "give these a place in ALLOWED, and in docs/ARCHITECTURE.md"


def test_imports_go_one_way(modules: dict[Path, ast.Module]) -> None:
    assert breaches(modules) == []


def test_the_table_of_layers_has_no_cycle() -> None:
    done: set[str] = set()
    while rest := ALLOWED.keys() - done:
        free = {room for room in rest if ALLOWED[room] - {room} <= done | (ALLOWED[room] - ALLOWED.keys())}
        assert free, f"a cycle among {sorted(rest)}"
        done |= free


def imported_at_once(name: str, tree: ast.Module) -> set[str]:
    """Return what a module imports when it is loaded: neither for types alone nor within functions."""
    found: set[str] = set()
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        match waiting.pop():
            case ast.If(test=test, body=body) if "TYPE_CHECKING" not in ast.unparse(test):
                waiting += body
            case ast.Import(names=names):
                found |= {each.name for each in names}
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found |= {module, *(f"{module}.{each.name}" for each in names)}
    return found - {name, *(parent for parent in (name.rpartition(".")[0],) if parent)}


def cycles(imports: dict[str, set[str]]) -> set[str]:
    """Return the modules that are left when those that import no other are removed again and again."""
    left = {name: others & imports.keys() for name, others in imports.items()}
    while done := {name for name, others in left.items() if not others}:
        left = {name: others - done for name, others in left.items() if name not in done}
    while ends := left.keys() - set().union(*left.values()):
        left = {name: others for name, others in left.items() if name not in ends}
    return set(left)


def test_modules_import_each_other_in_no_circle(modules: dict[Path, ast.Module]) -> None:
    """A circle works or fails with the module that happens to be imported first."""
    imports = {}
    for path, tree in modules.items():
        if path.is_relative_to(PACKAGE):
            name = ".".join(path.relative_to("src").with_suffix("").parts).removesuffix(".__init__")
            imports[name] = imported_at_once(name, tree)
    assert cycles(imports) == set()
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {"b", "c"}


def rooms_in_the_map(text: str) -> dict[str, set[str]]:
    """Read the table of rooms of docs/ARCHITECTURE.md: each room and the rooms that it may import."""
    rooms = {}
    for room, imports in re.findall(r"^\| `?([\w.]+)`? \| [^|]+ \| ?([^|]*)\|$", text, re.MULTILINE):
        first, _, rest = imports.partition(";")
        names = set(re.findall(r"`([\w.]+)`", first))
        rooms[room] = MACHINES - names | set(re.findall(r"`([\w.]+)`", rest)) if "the machines" in first else names
    rooms.pop("room")
    return rooms


def test_the_map_in_the_documentation_is_this_table(root: Path) -> None:
    """ARCHITECTURE.md has one line for each room that exists, with the imports that this test allows."""
    text = (root / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = text.partition("## The map")[2].partition("##")[0]
    there = {room for room in ALLOWED if (root / PACKAGE / room.replace(".", "/")).is_dir()} | {"vocabulary"}
    expected = {room: (ALLOWED[room] & there) - {room} for room in there}
    assert {room: imports - {room} for room, imports in rooms_in_the_map(table).items()} == expected


def test_broker_names_neither_sip_nor_rudp(modules: dict[Path, ast.Module]) -> None:
    """DESIGN 3: no identifier of the broker names them; `sip:` in a text is a user's URI."""
    for path, tree in modules.items():
        if path.is_relative_to(PACKAGE / "broker"):
            names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            assert not {name for name in names if "rudp" in name.lower() or name.lower().startswith("sip")}, path


def is_public(name: str, rooms: Sequence[str] = PUBLIC) -> bool:
    """Return whether ``name`` is the package, one of its pinned names, or within a public room."""
    _, _, rest = name.partition(".")
    return rest in ("", *wanderbus.__all__) or any(f"{name}.".startswith(f"{room}.") for room in rooms)


def test_programs_use_the_public_interface_alone(modules: dict[Path, ast.Module]) -> None:
    found = []
    for path, tree in modules.items():
        if path.parts[0] in ("demo", "examples"):
            rooms = (*PUBLIC, *EQUIPMENT) if path.parts[0] == "demo" else PUBLIC
            for name, line in imported(path, tree):
                if name.split(".")[0] == "wanderbus" and not is_public(name, rooms):
                    found.append(f"{path}:{line}: {name} is not public")
    assert found == []


def test_the_checker_sees_a_breach() -> None:
    """The test can fail: it sees imports of every form."""
    for text in (
        "import wanderbus.sip.message.uri",
        "from wanderbus import sip",
        "from wanderbus.sip import uri",
        "from ..sip import uri",
        "def f():\n    from wanderbus.sip.message.uri import SIPUri",
    ):
        path = PACKAGE / "broker" / "core.py"
        assert len(breaches({path: ast.parse(text)})) == 1, text
    assert breaches({PACKAGE / "broker" / "core.py": ast.parse("from wanderbus.event import Event")}) == []
