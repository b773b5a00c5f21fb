"""Copies of a directory that a program may be using: as operators make them, and with ``wanderbus backup``."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path
from random import Random
from typing import Final, Literal, NamedTuple

from wanderbus.server.backup.take import take_backup

How = Literal["cp", "backup"]
PAUSE_S_MAX: Final = 0.004
"""Longest pause between two files of a plain copy, in which the program goes on."""


class Copy(NamedTuple):
    """A copy, and how it was made."""

    path: Path
    how: How


def copy_plainly(source: Path, target: Path, random: Random) -> None:
    """Copy as ``cp -a`` does: file by file, while the program writes, removes and renames some."""
    target.mkdir(mode=0o700)
    with os.scandir(source) as found:
        names = [entry.name for entry in found]
    random.shuffle(names)  # directories have no order
    for name in names:
        _copy_one(source / name, target / name, random)
        time.sleep(random.uniform(0, PAUSE_S_MAX))


def _copy_one(source: Path, target: Path, random: Random) -> None:
    try:
        mode = source.lstat().st_mode
        if stat.S_ISDIR(mode):
            copy_plainly(source, target, random)
        elif stat.S_ISREG(mode):
            shutil.copy2(source, target)
    except FileNotFoundError:
        return  # cp says so, and goes on


def copy_server(source: Path, target: Path, how: How, random: Random) -> Copy:
    """Copy the data directory of a server that runs."""
    if how == "backup":
        take_backup(source, target, time.time_ns() // 1_000)
    else:
        copy_plainly(source, target, random)
    return Copy(target, how)


def put_back(copy: Path, place: Path) -> None:
    """Replace a directory by a copy of it, which stays as it is."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(copy, place, ignore=sockets)


def sockets(directory: str, names: list[str]) -> list[str]:
    """Return the names that a killed server has left for its callers: nothing can be read from them."""
    return [name for name in names if stat.S_ISSOCK(os.lstat(os.path.join(directory, name)).st_mode)]
