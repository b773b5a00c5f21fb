"""Archive of this Python environment for the workers of a cluster (SPEC T-11, decision 0069).

What the workers need is copied into a virtual environment of its own, which ``venv_pack`` then packs: an environment
with an editable installation cannot be packed, and the workers need neither tools nor Spark's own files. All times of
files are the same, so that the same environment always gives the same bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from venv_pack.core import Env, VenvPackException

from wanderbus.errors import ConfigurationError, StorageError
from wanderbus.pipeline.cluster.connection import SUFFIXES
from wanderbus.pipeline.cluster.distributions import files_of_others, needed, project_of

SPARK_ONLY: Final = ("jars", "examples", "data", "licenses")
"""Directories of Spark's own distribution; the workers have an installation of Spark."""

TIME_S: Final = 1_580_601_600
"""Time of every file, in seconds since the Unix epoch: that which builders of wheels use."""

COMPRESSION: Final = 1
"""Level of gzip: a higher one takes three times as long for a tenth of the bytes."""

_GZIP_TIME_AT: Final = 4
_GZIP_TIME_BYTES: Final = 4
_BUILD_S_MAX: Final = 120.0
_CHECK_S_MAX: Final = 300.0
_IMPORT: Final = (
    "import wanderbus.pipeline.history.matches, wanderbus.pipeline.lake.jobs, wanderbus.pipeline.source.log_source"
)
"""Program that imports what jobs import; the packages themselves load it on first use."""

_COMPILE: Final = "; from wanderbus.matching import load_kernel; load_kernel()"
"""Further part that compiles the kernel of matching; numba keeps the code beside its source."""


class Packed(NamedTuple):
    """An archive: its file and size, and the distributions in it."""

    file: str
    size_bytes: int
    distributions: list[str]


def pack(
    file: Path,
    *,
    include: Sequence[str] = (),
    has_kernel: bool = False,
    replace: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> Packed:
    """Pack what jobs of the pipeline need of this environment into ``file``, a ``.tar.gz``.

    ``include`` names further distributions; what they require is packed too. ``has_kernel`` adds the kernel of matching
    as compiled for this machine's processor, which saves each executor ten seconds; the compiler's output differs each
    time, and so does the archive then. An existing file is only replaced if ``replace``. ``progress`` gets a line
    before each step. Raises ``ConfigurationError`` for an argument or an environment that cannot be packed, and
    ``StorageError`` if the file cannot be written.
    """
    _check(file, replace)
    names = needed(include)
    try:
        with tempfile.TemporaryDirectory(prefix=".wanderbus-environment-", dir=file.parent) as work:
            staged, archive = Path(work, "environment"), Path(work, "environment.tar.gz")
            progress(f"copying {len(names)} distributions")
            site = _make_environment(staged)
            editable = [each for each in sorted(names) if project_of(each) is not None]
            _copy_packages(site, files_of_others(names - set(editable)))
            for name in editable:
                progress(f"building the wheel of {name}")
                _install_wheel(_wheel(name, Path(work)), site)
            progress("importing it, and compiling the kernel" if has_kernel else "importing it")
            _check_imports(staged, has_kernel)
            _set_times(staged)
            progress(f"packing {_megabytes(staged)} MB")
            _archive(staged, archive)
            archive.replace(file)
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error}") from None
    return Packed(str(file), file.stat().st_size, sorted(names))


def _check(file: Path, replace: bool) -> None:
    if not file.name.endswith(SUFFIXES):
        raise ConfigurationError(f"{file} must end with {' or '.join(SUFFIXES)}: Spark unpacks it by its name")
    if not file.parent.is_dir():
        raise ConfigurationError(f"{file.parent} is not a directory; make it first")
    if file.exists() and not replace:
        raise ConfigurationError(f"{file} exists; give --replace, or another name")
    if sys.prefix == sys.base_prefix:
        raise ConfigurationError(
            f"{sys.prefix} is not a virtual environment; install wanderbus in one (python -m venv)"
        )


def _make_environment(staged: Path) -> Path:
    """Make an environment without packages on the same Python; return the directory of its packages."""
    site = staged / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    site.mkdir(parents=True)
    programs = staged / "bin"
    programs.mkdir()
    for name in ("python", "python3", f"python{sys.version_info[0]}.{sys.version_info[1]}"):
        programs.joinpath(name).symlink_to(Path(sys.executable).resolve())
    version = ".".join(map(str, sys.version_info[:3]))
    lines = [f"home = {Path(sys.executable).resolve().parent}", "include-system-site-packages = false"]
    (staged / "pyvenv.cfg").write_text("\n".join([*lines, f"version = {version}", ""]), encoding="utf-8")
    return site


def _copy_packages(site: Path, left_out: set[Path]) -> None:
    """Copy the installed packages without the files of other distributions, and without compiled Python."""
    for installed in dict.fromkeys(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")):
        for path in _files_below(installed):
            if path not in left_out:
                target = site / path.relative_to(installed)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)


def _files_below(installed: Path) -> Iterator[Path]:
    spark = [str(installed / "pyspark" / name) for name in SPARK_ONLY]
    for directory, directories, files in os.walk(installed):
        directories[:] = [each for each in directories if each != "__pycache__"]
        directories[:] = [each for each in directories if os.path.join(directory, each) not in spark]
        yield from (Path(directory, each) for each in files)


def _wheel(name: str, work: Path) -> Path:
    """Build the wheel of a project that is installed as editable."""
    project = project_of(name)
    directory = work / f"wheel-{name}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    build = ["wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "-w", str(directory), str(project)]
    _run([*pip, *build], _BUILD_S_MAX, f"the wheel of {name} cannot be built in {project}")
    return next(directory.glob("*.whl"))


def _install_wheel(wheel: Path, site: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        if any(each.partition("/")[0].endswith(".data") for each in file.namelist()):
            raise ConfigurationError(f"{wheel.name} has more than packages; install it, but not as editable")
        file.extractall(site)


def _check_imports(staged: Path, has_kernel: bool) -> None:
    """Import in the new environment what jobs import, and let it compile the kernel."""
    program = _IMPORT + (_COMPILE if has_kernel else "")
    _run([str(staged / "bin" / "python"), "-I", "-B", "-c", program], _CHECK_S_MAX, "the packed environment fails")


def _run(argv: Sequence[str], timeout_s: float, failure: str) -> None:
    """Run a program to its end; ``ConfigurationError`` with its last line if it fails."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "PYTHON"))}
    own |= {"PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": str(TIME_S)}
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False, env=own)
    except subprocess.TimeoutExpired:
        raise ConfigurationError(f"{failure}: it takes longer than {timeout_s:g} s") from None
    if done.returncode:
        complaint = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise ConfigurationError(f"{failure}: {complaint[-1]}")


def _set_times(staged: Path) -> None:
    for path in (staged, *staged.rglob("*")):
        os.utime(path, (TIME_S, TIME_S), follow_symlinks=False)


def _megabytes(staged: Path) -> int:
    return sum(path.lstat().st_size for path in staged.rglob("*")) // 1_000_000


def _archive(staged: Path, archive: Path) -> None:
    try:
        environment = Env(prefix=str(staged))
        environment.files.sort(key=lambda file: file.target)
        environment.pack(output=str(archive), compress_level=COMPRESSION)
    except VenvPackException as error:
        raise ConfigurationError(f"{sys.prefix} cannot be packed: {error}") from None
    with archive.open("r+b") as file:  # the time of packing would make each archive another one
        file.seek(_GZIP_TIME_AT)
        file.write(bytes(_GZIP_TIME_BYTES))
    archive.chmod(0o644)
