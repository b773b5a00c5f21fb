"""The client as one file: standard library alone, and its core under MicroPython (SPEC P-02)."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.lightweight.light_town import FINGERPRINT, LightDevice, LightServer
from wanderbus.lightweight import Core
from wanderbus.lightweight.one_file import one_file

OF_CORE = {"hashlib", "struct", "typing"}
REPLAY = """
core = Core("alice", "secret", "device", lambda n: bytes(n))
for name, arguments, expected in CALLS:
    result = getattr(core, name)(*arguments)
    if name == "next_item":
        result = (result.position, result.attributes) if result else None
    found = (result, core.take())
    assert found == expected, (name, arguments, found, expected)
print("same", len(CALLS))
"""


def imports(text: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {each.name.split(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


def test_p02_the_client_imports_the_standard_library_alone(tmp_path: Path) -> None:
    text = one_file()
    assert imports(text) <= sys.stdlib_module_names
    assert imports(one_file(with_socket=False)) == OF_CORE
    (tmp_path / "light.py").write_text(text)
    program = "import light, sys; print(light.Client.__name__, any('wanderbus' in each for each in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "Client False\n"


def test_the_command_prints_the_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "wanderbus.lightweight"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == one_file()
    core = subprocess.run([*command, "--core"], capture_output=True, text=True, check=True).stdout
    assert core == one_file(with_socket=False)


class Recorded(Core):
    """A core whose calls are recorded with their results and outputs."""

    calls: ClassVar[list[tuple[str, tuple[Any, ...], Any]]] = []

    def recorded(self, name: str, *arguments: Any) -> Any:
        result = getattr(super(), name)(*arguments)
        shown = result
        if name == "next_item":
            shown = (result.position, result.attributes) if result else None
        out = super().take()
        self.calls.append((name, arguments, (shown, out)))
        self._out[:0] = out
        return result

    def opened(self, certificate_digest: bytes, now: float) -> None:
        self.recorded("opened", certificate_digest, now)

    def data(self, data: bytes, now: float) -> None:
        self.recorded("data", data, now)

    def closed(self, now: float) -> None:
        self.recorded("closed", now)

    def tick(self, now: float) -> None:
        self.recorded("tick", now)

    def ack(self, now: float) -> None:
        self.recorded("ack", now)

    def next_item(self, now: float) -> Any:
        return self.recorded("next_item", now)


def conversation() -> list[tuple[str, tuple[Any, ...], Any]]:
    """Return the calls of a client that subscribes, publishes, moves, and goes on after a restart of its server."""
    server = LightServer()
    device = LightDevice(server, "alice")
    device.core = core = Recorded("alice", "secret", "device", bytes)
    calls: list[tuple[str, tuple[Any, ...], Any]] = []
    Recorded.calls = calls
    calls.append(("subscribe", ("Trade", "N >= 0", 0.0), (core.subscribe("Trade", "N >= 0", 0.0), core.take())))
    for n in range(3):
        device.settle()
        arguments = ("Trade", {"N": [n, 2.5, "text", True][n]}, None, server.now)
        ticket = core.publish(*arguments)
        out = core.take()
        calls.append(("publish", arguments, (ticket, out)))
        core._out[:0] = out
        device.settle()
        if n == 0:
            device.cut()
        if n == 1:
            server.restart()
            device.cut()
    assert [each for each in device.got if each == 2.5]
    return calls


@pytest.fixture
def micropython(tmp_path: Path) -> list[str]:
    """The command of MicroPython, which npm installs by its hash; skips without npm or its registry."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm, to install MicroPython")
    home = shutil.copytree(Path(__file__).parent / "micropython", tmp_path / "micropython")
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--fetch-timeout=30000"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=120)
    if done.returncode:
        pytest.skip(f"npm cannot install MicroPython: {done.stderr.splitlines()[:1]}")
    return ["node", str(home / "node_modules/@micropython/micropython-webassembly-pyscript/micropython.mjs")]


@pytest.mark.integration
def test_p02_the_core_does_the_same_under_micropython(tmp_path: Path, micropython: list[str]) -> None:
    calls = conversation()
    assert FINGERPRINT in calls[1][1]
    script = tmp_path / "replay.py"
    lines = ",\n".join(map(repr, calls))
    script.write_text(f"{one_file(with_socket=False)}\nCALLS = [{lines}]\n{REPLAY}")
    command = [*micropython, "-X", "heapsize=1024k", str(script)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == (f"same {len(calls)}\n", "", 0)
