"""Public names are pinned, and importing one name loads only what it needs (DESIGN 3)."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest

import wanderbus

NAMES = [
    "Advertisement",
    "Agent",
    "Custom",
    "Daily",
    "Disconnection",
    "Ending",
    "Event",
    "EventId",
    "Frequency",
    "Gap",
    "HELD_BACK",
    "Interval",
    "Loss",
    "Merged",
    "Notification",
    "Notifications",
    "Operator",
    "OutboxRefusal",
    "Position",
    "QueuePolicy",
    "Server",
    "StatusChange",
    "Subscription",
    "WanderbusError",
    "connect",
    "merge_repeated",
]
"""Pinned names. A change here changes the public interface and needs a line in CHANGELOG.md."""

MEMBERS = {
    "Advertisement": ["expression", "subject", "withdraw"],
    "Agent": [
        *(
            "advertise",
            "changes",
            "close",
            "connected",
            "data_path",
            "endings",
            "handover",
            "held_back",
            "history",
            "leave",
            "merged",
            "operator",
            "outbox",
            "outbox_end",
            "outbox_refusals",
        ),
        *(
            "publish",
            "read",
            "rebind",
            "renew",
            "restrict",
            "status",
            "subscribe",
            "subscriptions",
            "unsubscribe",
            "uri",
        ),
    ],
    "Event": ["arrived_us", "attributes", "get", "get_all", "origin", "past", "published_us", "subject"],
    "Gap": ["count", "lost", "position", "reason"],
    "Merged": ["ack", "aclose"],
    "Notification": ["event", "id", "is_history", "position", "redelivered", "subscriptions", "xml"],
    "Notifications": ["ack", "aclose", "dropped", "ended", "subscription"],
    "Operator": [
        *("SESSION", "advertisements", "bounds", "copy_session", "declare_schema", "discard", "dormant"),
        *(
            "drain",
            "end_copied",
            "engine",
            "filtering",
            "foreign_domains",
            "groups",
            "import_session",
            "kick",
            "limits",
            "loads",
            "metrics",
            "move",
            "move_group",
            "peek",
            "process",
            "purge",
            "queues",
            "routes",
            "schemas",
            "servers",
            "sessions",
            "subscriptions",
            "transfer",
        ),
    ],
    "Server": [
        *(
            "address",
            "broker_address",
            "broker_uri",
            "close",
            "domain",
            "eci_address",
            "from_file",
            "http_url",
            "light_address",
            "run",
        ),
        *("sip_server", "tls_address"),
    ],
    "Subscription": [
        *("device", "expires_us", "expression", "format", "id", "language", "owner", "queue", "restrictions"),
        *("session", "since", "subject"),
    ],
}
"""Pinned attributes and methods of the classes that applications use most, of the class or of an instance."""

HEAVY = {"apsw", "pandas", "pyarrow", "pyspark", "rich", "typer"}

MODULES_OF_AN_AGENT_MAX = 115
"""Modules of ours that a program loads for ``wanderbus.connect``."""

MODULES_OF_A_CONNECTED_AGENT_MAX = {"udp": 135, "tcp": 131}
"""Modules of ours that an agent has loaded once it is connected, by the transport of SIP and of events."""

MODULES_OF_PUB_MAX = {"wanderbus": 171, "cryptography": 38}
"""Modules that ``wanderbus pub`` has loaded once its event is acknowledged, by package: each takes up to 2 ms."""

NOT_FOR_PUB = ("cryptography.x509", "rich", "wanderbus.client.operator", "wanderbus.runtime.log")

NOT_FOR_AN_AGENT = ("access", "broker", "federation", "matching", "peers", "relay", "server", "simulation")


def loaded_after(statement: str) -> set[str]:
    """Return the modules that ``statement`` loads in a fresh interpreter."""
    program = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_names_are_pinned() -> None:
    assert sorted(wanderbus.__all__) == NAMES


def attributes_of(kind: type) -> set[str]:
    """Return the names of ``kind`` without an underscore, with those that its initialiser assigns to ``self``."""
    assigned = re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? = ", inspect.getsource(kind))
    return {name for name in [*dir(kind), *assigned] if not name.startswith("_")}


@pytest.mark.parametrize("name", MEMBERS)
def test_classes_have_public_members_alone(name: str) -> None:
    assert sorted(attributes_of(getattr(wanderbus, name))) == sorted(MEMBERS[name])


def test_no_other_class_has_a_public_name(modules: dict[Path, ast.Module]) -> None:
    found = Counter(
        node.name
        for path, tree in modules.items()
        if path.parts[:2] == ("src", "wanderbus") and path.parts[2] not in ("simulation", "evaluation")
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name in NAMES
    )
    terms = {"Interval"}  # of values in mathematics, and of sessions in RFC 4028
    assert {name for name, count in found.items() if count > 1} == terms
    assert set(found) == set(NAMES) - {"HELD_BACK", "connect", "merge_repeated"}


@pytest.mark.parametrize("name", NAMES)
def test_every_name_resolves(name: str) -> None:
    assert getattr(wanderbus, name) is getattr(wanderbus, name)
    assert name in dir(wanderbus)


def test_other_names_do_not() -> None:
    name = "nonsense"
    with pytest.raises(AttributeError, match=name):
        getattr(wanderbus, name)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("Subscripton", "did you mean 'Subscription'?"),
        ("relay", "import wanderbus.relay first"),
        ("qqq", "dir(wanderbus) lists the names"),
    ],
)
def test_an_unknown_name_gets_a_remedy(name: str, remedy: str) -> None:
    program = f"import wanderbus; wanderbus.{name}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert f"AttributeError: module 'wanderbus' has no attribute {name!r}; {remedy}" in done.stderr


def test_completion_offers_public_names_alone() -> None:
    assert dir(wanderbus) == sorted([*NAMES, "__version__"])
    internals = {name for name in vars(wanderbus) if not name.startswith("_")} - set(NAMES)
    modules = {name for name in internals if isinstance(vars(wanderbus)[name], ModuleType)}
    assert internals == modules, "imports are underscored, for editors that read the file"


def test_the_version_has_one_source(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/wanderbus/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+", wanderbus.__version__)
    assert metadata.version("wanderbus") == wanderbus.__version__


def test_type_checkers_see_every_name_and_no_other(root: Path) -> None:
    """A lazy __getattr__ that mypy sees would make every name valid."""
    names = [f"wanderbus.{name}" for name in NAMES]
    wrong = ["wanderbus.Subscripton", "wanderbus.filters.nope"]
    program = "\n".join(["import wanderbus.filters", *names, "wanderbus.filters.covers", *wrong])
    line = [sys.executable, "-m", "mypy", "--config-file", str(root / "pyproject.toml"), "-c", program]
    done = subprocess.run(line, cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        f'<string>:{len(NAMES) + 3}: error: Module has no attribute "Subscripton"; maybe "Subscription"?  '
        "[attr-defined]",
        f'<string>:{len(NAMES) + 4}: error: Module has no attribute "nope"  [attr-defined]',
        "Found 2 errors in 1 file (checked 1 source file)",
    ], done.stdout + done.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = loaded_after("import wanderbus")
    assert not loaded & HEAVY
    rooms = ("wanderbus.api", "wanderbus.client", "wanderbus.server", "wanderbus.runtime", "wanderbus.sip")
    assert not {name for name in loaded if name.startswith(rooms)}


def test_connecting_loads_no_server() -> None:
    """Programs on devices load only the modules that an agent needs."""
    loaded = {name for name in loaded_after("import wanderbus; wanderbus.connect") if name.startswith("wanderbus.")}
    assert not {name for name in loaded if name.split(".")[1] in NOT_FOR_AN_AGENT}
    assert not {name for name in loaded if name.startswith(("wanderbus.sip.proxy", "wanderbus.settings.server"))}
    assert len(loaded) <= MODULES_OF_AN_AGENT_MAX


@pytest.mark.integration
@pytest.mark.parametrize(
    ("transport", "others"),
    [
        ("udp", ("wanderbus.tcp", "wanderbus.datachannel.over_tcp", "wanderbus.runtime.net.streams")),
        ("tcp", ("wanderbus.rudp", "wanderbus.datachannel.over_udp")),
    ],
)
def test_an_agent_loads_the_transport_that_it_uses(
    transport: str, others: tuple[str, ...], server: int, tmp_path: Path
) -> None:
    program = f"""
import asyncio, wanderbus
async def publish():
    given = {{"transport": {transport!r}, "data_transport": {transport!r}, "state_dir": {str(tmp_path)!r}}}
    async with wanderbus.connect("alice@localhost", password="secret", server="127.0.0.1:{server}", **given) as alice:
        await alice.publish("news", {{"text": "hello"}})
asyncio.run(publish())"""
    loaded = {name for name in loaded_after(program) if name.split(".")[0] == "wanderbus"}
    unused = (*others, *(f"wanderbus.{room}" for room in NOT_FOR_AN_AGENT))
    assert not {name for name in loaded if name.startswith(unused)}
    assert len(loaded) <= MODULES_OF_A_CONNECTED_AGENT_MAX[transport]


@pytest.mark.integration
def test_pub_loads_what_it_uses(server: int, tmp_path: Path) -> None:
    program = f"""
from wanderbus.cli.application import run
words = ["pub", "news", "text=hello", "--user", "sip:alice@localhost", "--password", "secret"]
assert run([*words, "--server", "127.0.0.1:{server}", "--state-dir", {str(tmp_path)!r}]) == 0"""
    loaded = loaded_after(program)
    unused = (*NOT_FOR_PUB, *(f"wanderbus.{room}" for room in NOT_FOR_AN_AGENT))
    assert not {name for name in loaded if name.startswith(unused)}
    counts = {package: sum(name.split(".")[0] == package for name in loaded) for package in MODULES_OF_PUB_MAX}
    assert all(counts[package] <= most for package, most in MODULES_OF_PUB_MAX.items()), counts


def test_the_core_install_is_enough_to_connect() -> None:
    """DESIGN 3: the core install contains the agent only."""
    assert not loaded_after("from wanderbus import connect") & HEAVY
