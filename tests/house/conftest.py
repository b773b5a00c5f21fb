"""Fixtures of the house rules: the project's files, and a running server."""

from __future__ import annotations

import ast
import fnmatch
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wanderbus.runtime.net.free_port import free_port

ROOT = Path(__file__).resolve().parents[2]
ALWAYS_IGNORED = (".git",)


def project_files() -> list[Path]:
    """Return every file of the project, except those that .gitignore names."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    ignored = (*ALWAYS_IGNORED, *(line.strip().strip("/") for line in lines if line.strip() and line[0] != "#"))
    found: list[Path] = []
    for directory, subdirectories, names in os.walk(ROOT):
        for inner in list(subdirectories):
            if any(fnmatch.fnmatch(inner, pattern) for pattern in ignored):
                subdirectories.remove(inner)
        found += (
            Path(directory, name) for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in ignored)
        )
    return sorted(found)


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def files() -> list[Path]:
    return project_files()


@pytest.fixture(scope="session")
def modules(files: list[Path]) -> dict[Path, ast.Module]:
    """Every Python file of the project, by its path below the root, as a tree."""
    python = [path for path in files if path.suffix == ".py" or path == ROOT / "do"]
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in python}


@pytest.fixture(scope="session")
def light_port() -> int:
    """Port of the real server for lightweight clients."""
    return free_port("127.0.0.1")


@pytest.fixture(scope="session")
def server(light_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A real server on a free port of the loopback; gives the port. Its users are those of examples/users.txt."""
    directory = tmp_path_factory.mktemp("server")
    command = [sys.executable, "-m", "wanderbus", "up", "--host", "127.0.0.1", "--port", "0", "--domain", "localhost"]
    command += ["--data-dir", str(directory / "data"), "--users", str(ROOT / "examples" / "users.txt")]
    command += ["--light", str(light_port)]
    log = (directory / "stderr").open("w+")
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if ready := re.match(r"ready sip:\S+:(\d+) light:", line.strip()):
                yield int(ready[1])
                break
        else:
            log.seek(0)
            pytest.fail(f"the server ended with {process.wait()} before it was ready:\n{log.read()}")
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()
