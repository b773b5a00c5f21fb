"""What a user may name is pinned, and asking for one name loads no more than it needs (DESIGN 3)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import wanderbus

NAMES = [
    "Agent",
    "Custom",
    "Daily",
    "Ending",
    "Event",
    "EventId",
    "Frequency",
    "Gap",
    "Interval",
    "Loss",
    "Notification",
    "OutboxRefusal",
    "Position",
    "QueuePolicy",
    "Server",
    "StatusChange",
    "Subscription",
    "WanderbusError",
    "connect",
]
"""A change here is a change of the public interface: it takes a line in CHANGELOG.md."""

HEAVY = {"apsw", "pandas", "pyarrow", "pyspark", "rich", "typer"}


def loaded_after(statement: str) -> set[str]:
    """The modules loaded in a fresh interpreter by ``statement``."""
    program = f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_names_are_pinned() -> None:
    assert sorted(wanderbus.__all__) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_name_resolves(name: str) -> None:
    assert getattr(wanderbus, name) is getattr(wanderbus, name)
    assert name in dir(wanderbus)


def test_other_names_do_not() -> None:
    name = "nonsense"
    with pytest.raises(AttributeError, match=name):
        getattr(wanderbus, name)


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = loaded_after("import wanderbus")
    assert not loaded & HEAVY
    assert not {name for name in loaded if name.startswith(("wanderbus.api", "wanderbus.runtime", "wanderbus.sip"))}


def test_the_core_install_is_enough_to_connect() -> None:
    """DESIGN 3: the core install is the agent alone."""
    assert not loaded_after("from wanderbus import connect") & HEAVY
