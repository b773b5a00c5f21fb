"""Environment that holds the wheel and the packages that it names, and nothing else; made without a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN_S_MAX = 120
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def built_wheel(directory: Path) -> Path:
    """Build the wheel of this checkout in ``directory``; return its path."""
    argv = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=RUN_S_MAX)
    (wheel,) = directory.glob("wanderbus-*.whl")
    return wheel


def requirements_of(wheel: Path) -> list[str]:
    """Return the names of the packages that ``wheel`` needs without any extra."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    needed = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return list(_names([each for each in needed if "extra ==" not in each]))


def _names(requirements: list[str]) -> Iterator[str]:
    for each in requirements:
        found = _NAME.match(each)
        assert found is not None, each
        yield found[0]


class EmptyEnvironment:
    """Virtual environment in ``directory`` with ``wheel`` and copies of its packages, also of those that they need."""

    def __init__(self, directory: Path, wheel: Path) -> None:
        self._directory = directory
        venv.create(directory / "venv", symlinks=True)
        self._python = directory / "venv" / "bin" / "python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self._packages = directory / "venv" / "lib" / version / "site-packages"
        self.installed: set[str] = set()
        """Names of the packages that were installed for the wheel."""
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(self._packages)
        for name in requirements_of(wheel):
            self._copy(name)

    def run(self, program: str, *words: str, may_fail: bool = False) -> str:
        """Run a program to its end, without this checkout and the packages of the user; return its output."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment |= {"XDG_STATE_HOME": str(self._directory / "state"), "PYTHONNOUSERSITE": "1"}
        done = subprocess.run(
            [self._python, "-c", program, *words],
            cwd=self._directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,
        )
        assert may_fail or done.returncode == 0, done.stderr
        return done.stdout if done.returncode == 0 else done.stderr

    def _copy(self, name: str) -> None:
        """Link the files of an installed package, and of those that it needs here."""
        found = metadata.distribution(name)
        canonical = found.metadata["Name"].lower()
        if canonical in self.installed:
            return
        self.installed.add(canonical)
        for file in found.files or ():
            source = Path(str(found.locate_file(file)))
            if ".." in file.parts or file.suffix == ".pyc" or not source.is_file():
                continue
            target = self._packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source.resolve())
        for needed in found.requires or ():
            if ";" not in needed or "PyPy" in needed:
                self._copy(next(_names([needed])))
