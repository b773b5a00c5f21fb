"""The archive of the environment has wanderbus and what its jobs need, and nothing of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import wanderbus
from wanderbus.cli.application import run
from wanderbus.errors import ConfigurationError
from wanderbus.pipeline.cluster import environment
from wanderbus.pipeline.cluster.distributions import needed, project_of
from wanderbus.pipeline.cluster.environment import pack

SMALL = {"wanderbus", "msgspec"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack two distributions alone, which takes seconds."""
    monkeypatch.setattr(environment, "needed", lambda included: {*SMALL, *included})
    monkeypatch.setattr(environment, "_IMPORT", "import wanderbus.records")


@pytest.mark.usefixtures("small")
def test_the_same_environment_gives_the_same_bytes_and_runs_elsewhere(tmp_path: Path) -> None:
    one, other = tmp_path / "one.tar.gz", tmp_path / "other.tgz"
    lines: list[str] = []
    packed = pack(one, progress=lines.append)
    pack(other)
    assert one.read_bytes() == other.read_bytes()
    assert packed == (str(one), one.stat().st_size, sorted(SMALL))
    assert [line.split(" ")[0] for line in lines] == ["copying", "building", "importing", "packing"]
    assert sorted(tmp_path.iterdir()) == [one, other], "nothing else is left"
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(["tar", "-xzf", one, "-C", unpacked], check=True)  # as Spark does
    program = "import sys, msgspec, wanderbus; print(msgspec.__file__, wanderbus.__file__, *sys.path)"
    done = subprocess.run([unpacked / "bin/python", "-I", "-c", program], capture_output=True, text=True, check=True)
    *files, zipped, standard, dynamic, site = done.stdout.split()
    assert [Path(each).is_relative_to(unpacked) for each in (*files, site)] == [True] * 3, done.stdout
    assert not [each for each in (zipped, standard, dynamic) if each.startswith(sys.prefix)]


@pytest.mark.usefixtures("small")
def test_no_file_names_the_environment_or_the_project(tmp_path: Path) -> None:
    pack(tmp_path / "e.tar.gz")
    project = str(Path(wanderbus.__file__).parents[2])
    with tarfile.open(tmp_path / "e.tar.gz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            text = (file.read().decode(errors="replace") if file else "") + member.name + member.linkname
            assert sys.prefix not in text, member.name
            assert project not in text, member.name


def test_needed_distributions_are_those_of_jobs_and_what_they_require() -> None:
    names = needed([])
    assert {"wanderbus", "msgspec", "pyarrow", "numpy", "pandas", "deltalake", "pyspark", "numba", "llvmlite"} <= names
    assert not names & {"pytest", "hypothesis", "ruff", "apsw", "uvloop"}
    assert {"hypothesis", "sortedcontainers"} <= needed(["hypothesis"])


@pytest.mark.parametrize(
    ("included", "line"),
    [
        ("no-such-distribution", "no-such-distribution is not installed in this environment; install it first"),
        ("???", "--include ???: it is not the name of a distribution"),
    ],
)
def test_an_unknown_distribution_is_named(included: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        pack(tmp_path / "e.tar.gz", include=[included])
    assert str(caught.value) == line


def test_unusable_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "e.tgz").touch()
    for file, line in (
        (tmp_path / "e.zip", "must end with .tar.gz or .tgz"),
        (tmp_path / "none" / "e.tgz", "is not a directory; make it first"),
        (tmp_path / "e.tgz", "exists; give --replace, or another name"),
    ):
        with pytest.raises(ConfigurationError, match=line):
            pack(file)


def test_outside_a_virtual_environment_there_is_nothing_to_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    with pytest.raises(ConfigurationError, match="is not a virtual environment"):
        pack(tmp_path / "e.tgz")


def test_the_check_loads_what_jobs_load() -> None:
    program = f"{environment._IMPORT}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"pyspark.sql", "pyspark.sql.datasource", "deltalake"} <= set(done.stdout.split())


@pytest.mark.usefixtures("small")
def test_an_environment_that_cannot_import_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_IMPORT", "import numpy")
    with pytest.raises(ConfigurationError, match=r"the packed environment fails: .*No module named 'numpy'"):
        pack(tmp_path / "e.tgz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(project_of("wanderbus") is None, reason="wanderbus is not installed as editable here")
def test_a_wheel_that_cannot_be_built_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None) -> None:
    (tmp_path / "broken").mkdir()
    monkeypatch.setattr(environment, "project_of", lambda name: tmp_path / "broken" if name == "wanderbus" else None)
    with pytest.raises(ConfigurationError, match=r"the wheel of wanderbus cannot be built in .*broken"):
        pack(tmp_path / "e.tgz")


@pytest.mark.usefixtures("small")
def test_the_command_packs_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "e.tar.gz"
    assert run(["pipeline", "environment", str(file), "--json"]) == 0
    output = capsys.readouterr()
    found = {"file": str(file), "size_bytes": file.stat().st_size, "distributions": sorted(SMALL)}
    assert json.loads(output.out) == found
    assert "wanderbus: importing it" in output.err.splitlines()
    assert run(["pipeline", "environment", str(file)]) == 2
    assert capsys.readouterr().err == f"wanderbus: {file} exists; give --replace, or another name\n"
