"""Time from the wheel to the first event, for whoever has nothing else: `wanderbus[server]` in an empty environment.

Builds the wheel, and downloads the packages that it needs in the versions of requirements.lock, or takes those of an
earlier run in `out/wheels`; neither counts. Time counts from an empty virtual environment: `pip install` without a
network, `wanderbus up` with two users, `wanderbus sub` and `wanderbus pub`, until the event is printed. Then `wanderbus
demo` has to run there.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from harness.reporting import finish, goal, progress
from wanderbus.testbed import CannotRunError
from wanderbus.testbed.processes import Process

ROOT: Final = Path(__file__).resolve().parents[1]
WHEELS: Final = Path("out", "wheels")
INSTALL_S_MAX: Final = 300.0
COMMAND_S_MAX: Final = 60.0
DEMO_SECONDS: Final = 5

_VERSIONS: Final = "versions.txt"
"""Name of the file that lists the versions of the packages in a directory."""


class Parts(msgspec.Struct):
    """Seconds of each part, from the end of the part before it."""

    environment_s: float
    """Making of the virtual environment, which is not part of the goal."""
    install_s: float
    server_s: float
    event_s: float

    @property
    def to_first_event_s(self) -> float:
        """Return the time from the empty environment to the first event."""
        return self.install_s + self.server_s + self.event_s


class Empty:
    """An environment in ``directory``, in which only what was installed can be imported."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "log.txt"

    def run(self, *words: str | Path, timeout_s: float = COMMAND_S_MAX) -> None:
        """Run a command to its end; :class:`CannotRunError` if it fails."""
        with self.start(*words) as process:
            if process.wait(timeout_s) != 0:
                raise CannotRunError(f"{' '.join(map(str, words))}: {process}")

    def start(self, *words: str | Path, read: bool = False) -> Process:
        """Start a command, which may be a program of the environment."""
        program = self._directory / "venv" / "bin" / str(words[0])
        argv = [str(program) if program.exists() else str(words[0]), *map(str, words[1:])]
        return Process(
            str(words[0]), argv, self._log, read=read, cwd=self._directory, more_environment=_isolated(self._directory)
        )

    @property
    def said(self) -> str:
        """Return the errors of all commands."""
        return self._log.read_text(encoding="utf-8", errors="replace")


def _isolated(directory: Path) -> Mapping[str, str]:
    """Return variables with which neither this checkout, nor the user's packages and settings are found."""
    of_pip = {name: "" for name in os.environ if name.startswith("PIP_")}
    own = {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1", "XDG_STATE_HOME": str(directory / "state")}
    return {**of_pip, **own, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def build(directory: Path) -> Path:
    """Build the wheel in ``directory``; return its path."""
    _call([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)], ROOT)
    (wheel,) = directory.glob("wanderbus-*.whl")
    return wheel


def gather(wheel: Path, wheels: Path) -> None:
    """Download the packages that ``wheel`` needs with a server, in the versions of the lock, unless they are there."""
    locked = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    versions = "\n".join(re.findall(r"^[\w.-]+==[^\s\\]+", locked, re.MULTILINE))
    gathered = wheels / _VERSIONS
    if gathered.exists() and gathered.read_text(encoding="utf-8") == versions:
        return
    wheels.mkdir(parents=True, exist_ok=True)
    if any(wheels.iterdir()) and not gathered.exists():
        raise CannotRunError(f"{wheels} has other files; give an empty directory with --wheels")
    gathered.touch()  # also after an interruption the files here are ours
    for old in wheels.glob("*.whl"):
        old.unlink()
    wanted = wheels / "wanted.txt"
    wanted.write_text(versions, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download", "--only-binary", ":all:"]
    _call([*pip, "--dest", str(wheels), "-c", str(wanted), f"{wheel}[server]"], ROOT)
    (wheels / wheel.name).unlink()  # a copy, which would be older next time
    wanted.replace(gathered)


def _call(argv: Sequence[str], directory: Path) -> None:
    done = subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        raise CannotRunError(f"{' '.join(argv[2:5])}: {last}")


def measure(wheel: Path, wheels: Path, directory: Path) -> Parts:
    """Return the time of each part from an empty ``directory`` to the first event."""
    empty, data = Empty(directory), ("--data-dir", "data")
    times_s = [time.monotonic()]
    empty.run(sys.executable, "-m", "venv", "venv")
    times_s.append(time.monotonic())
    packages = sorted(wheels.resolve().glob("*.whl"))
    empty.run("pip", "install", "--quiet", "--no-index", *packages, f"{wheel}[server]", timeout_s=INSTALL_S_MAX)
    times_s.append(time.monotonic())
    users = directory / "users.txt"
    users.touch(0o600)
    users.write_text("alice:secret\nbob:sesame\n", encoding="utf-8")
    with empty.start("wanderbus", "up", "--users", users, "--port", "0", *data, read=True) as server:
        server.line(COMMAND_S_MAX)
        times_s.append(time.monotonic())
        with empty.start("wanderbus", "sub", "Departure", "--user", "bob", "--count", "1", *data, read=True) as reader:
            reader.wait_until(lambda: "subscribed to" in empty.said, COMMAND_S_MAX)
            empty.run("wanderbus", "pub", "Departure", "Dest=IAH", "--user", "alice", *data)
            line = reader.line(COMMAND_S_MAX)
            times_s.append(time.monotonic())
        if "Dest=IAH" not in line:
            raise CannotRunError(f"another event arrived: {line}")
        server.end(number=signal.SIGINT)
    return Parts(*(round(later - earlier, 2) for earlier, later in pairwise(times_s)))


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write JSON if asked; return the exit status."""
    parser = argparse.ArgumentParser(prog="bench wheel", description=__doc__)
    parser.add_argument("--wheels", type=Path, default=WHEELS, metavar="DIR", help="packages (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report to FILE")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a goal is not met")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="wanderbus-wheel-") as temporary:
        directory = Path(temporary)
        try:
            progress("building the wheel, and gathering the packages that it needs")
            wheel = build(directory / "dist")
            gather(wheel, options.wheels)
            (directory / "empty").mkdir()
            parts = measure(wheel, options.wheels, directory / "empty")
            print(parts, flush=True)
            Empty(directory / "empty").run("wanderbus", "demo", "--seconds", str(DEMO_SECONDS))
        except CannotRunError as error:
            print(f"bench wheel: {error}", file=sys.stderr)
            return 2
    goals = [goal("wheel_to_first_event_s", parts.to_first_event_s, "s", most=60)]
    return finish("bench wheel", [msgspec.to_builtins(parts)], goals, file=options.json, strict=options.strict)
