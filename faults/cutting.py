"""Contents of a disk after a power cut: synced data, and any part of unsynced data.

All unsynced writes of a file may survive, none, a prefix, or any sectors of any of them; so may the unsynced names of a
directory, as a prefix or any. Most file systems do less harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from random import Random
from typing import Final, TypeVar

from faults.recording import Enter, Step, Sync, SyncNames, Truncate, Write

SECTOR_BYTES: Final = 512

Item = TypeVar("Item")


@dataclass
class Image:
    """The content of files by number, the numbers by name, and the directories."""

    files: dict[int, bytearray] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)

    def copy(self) -> Image:
        """Return an independent copy."""
        return Image(
            {number: bytearray(data) for number, data in self.files.items()}, dict(self.names), set(self.directories)
        )

    def lay_out(self, root: Path) -> None:
        """Write it below ``root``, which must not exist."""
        root.mkdir(parents=True)
        for directory in sorted(self.directories):
            (root / directory).mkdir()
        for path, number in self.names.items():
            (root / path).write_bytes(self.files.get(number, b""))


def cut(start: Image, steps: Sequence[Step], random: Random) -> Image:
    """Return a possible remainder of ``start`` if power fails after ``steps``."""
    image = start.copy()
    data: dict[int, list[Write | Truncate]] = {}
    names: dict[str, list[Enter]] = {}
    for step in steps:
        match step:
            case Write(file=number) | Truncate(file=number):
                data.setdefault(number, []).append(step)
            case Enter(path=path):
                names.setdefault(str(PurePosixPath(path).parent), []).append(step)
            case Sync(file=number):
                for change in data.pop(number, ()):
                    _change(image, change)
            case SyncNames(directory=directory):
                for entry in names.pop(directory, ()):
                    _enter(image, entry)
    for number in data:
        for change in _survivors(data[number], random):
            _change(image, change)
    for directory in names:
        for entry in _some(names[directory], random):
            _enter(image, entry)
    _drop_unreachable(image)
    return image


def _survivors(changes: Sequence[Write | Truncate], random: Random) -> list[Write | Truncate]:
    """Return the surviving part of the unsynced changes to one file."""
    if random.random() < 0.5:
        return list(_some(changes, random))
    pieces: list[Write | Truncate] = []
    for change in changes:
        pieces += _sectors(change) if isinstance(change, Write) else [change]
    kept = random.random()
    return [piece for piece in pieces if random.random() < kept]


def _some(changes: Sequence[Item], random: Random) -> Sequence[Item]:
    """Return a prefix, which may be all or none, or any selection."""
    if random.random() < 0.7:
        return changes[: random.randint(0, len(changes))]
    return [change for change in changes if random.random() < 0.5]


def _sectors(write: Write) -> list[Write]:
    """Cut a write at the boundaries of sectors, the unit that a disk writes as a whole."""
    pieces, done = [], 0
    while done < len(write.data):
        until = done + SECTOR_BYTES - (write.byte + done) % SECTOR_BYTES
        pieces.append(Write(write.file, write.byte + done, write.data[done:until]))
        done = until
    return pieces


def _change(image: Image, change: Write | Truncate) -> None:
    content = image.files.setdefault(change.file, bytearray())
    end = change.size if isinstance(change, Truncate) else change.byte
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if isinstance(change, Truncate):
        del content[end:]
    else:
        content[end : end + len(change.data)] = change.data


def _enter(image: Image, entry: Enter) -> None:
    if entry.old is not None:
        image.names.pop(entry.old, None)
    if entry.file is None:
        image.names.pop(entry.path, None)
    elif entry.file < 0:
        image.directories.add(entry.path)
    else:
        image.names[entry.path] = entry.file


def _drop_unreachable(image: Image) -> None:
    for path in list(image.names):
        parent = str(PurePosixPath(path).parent)
        if parent != "." and parent not in image.directories:
            del image.names[path]
    kept = set(image.names.values())
    image.files = {number: data for number, data in image.files.items() if number in kept}
