"""Journal of the agents of federated domains: what they published and received, each with its time.

An entry is some numbers, so that a run can have millions. The agents of a domain share one process, which is never
killed, and one file. Journals, and the logs of the servers for loops alone, are all that the verdict uses.
"""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from wanderbus.event import EventId

ACKNOWLEDGED: Final = 1
TOOK: Final = 2
BEGAN: Final = 3
"""The events of a stream with higher numbers are due to all who want them."""
GAP: Final = 4
REFUSED: Final = 5
STRAYED: Final = 6
"""The event names another domain as its own than its publisher does."""

FIELDS: Final = np.dtype(
    [
        ("kind", "u1"),
        ("server", "u1"),
        ("agent", "<u2"),
        ("stream", "<u2"),
        ("n", "<u4"),
        ("at_ns", "<i8"),
        ("incarnation", "<i8"),
        ("number", "<i8"),
    ]
)
"""Fields of an entry: ``stream`` and ``n`` name an event, ``at_ns`` is when it was sent or received on the monotonic
clock, which all processes of a machine share; server, incarnation and number are its id in
the domain where it was published."""

_ENTRY: Final = struct.Struct("<BBHHIqqq")

Entries = NDArray[Any]


class Wanted(msgspec.Struct, frozen=True):
    """A subscription: the number of a subject, and a key of :data:`faults.agents.INTERESTS`."""

    subject: int
    interest: str


class ReaderRole(msgspec.Struct, frozen=True):
    """A subscriber: its number, its server, and its subscriptions."""

    number: int
    server: str
    wants: tuple[Wanted, ...]

    @property
    def user(self) -> str:
        """Return the name of its user."""
        return f"r{self.number}"


class PublisherRole(msgspec.Struct, frozen=True):
    """A publisher: its number, and its server."""

    number: int
    server: str

    @property
    def user(self) -> str:
        """Return the name of its user."""
        return f"p{self.number}"


class DomainRole(msgspec.Struct, frozen=True):
    """All agents of a domain, and what they publish: ``rate_per_s`` events together, of each of the subjects."""

    name: str
    number: int
    directory: str
    publishers: tuple[PublisherRole, ...]
    readers: tuple[ReaderRole, ...]
    subjects: tuple[str, ...]
    rate_per_s: float
    seed: int

    @property
    def journal(self) -> Path:
        """Return the path of the journal."""
        return Path(self.directory, f"{self.name}.journal")


def stream_of(publisher: int, subject: int, subjects: int) -> int:
    """Return the number of the stream of a publisher's events of a subject."""
    return publisher * subjects + subject


class Journal:
    """A journal that is being written; entries are on the disk once :meth:`flush` has been called."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=1 << 16)

    def note(self, kind: int, agent: int, stream: int, n: int, id: EventId | None = None, at_ns: int = 0) -> None:
        """Write an entry, by default with the present time."""
        server, incarnation, number = (
            (int(id.origin.rpartition("/")[2][1:]), id.incarnation, id.number) if id else (0, 0, 0)
        )
        at_ns = at_ns or time.monotonic_ns()
        self._file.write(_ENTRY.pack(kind, server, agent, stream, n, at_ns, incarnation, number))

    def flush(self) -> None:
        """Write what is in the buffer."""
        self._file.flush()


def entries(path: Path) -> Entries:
    """Return the complete entries of a journal; none if it does not exist."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = b""
    return np.frombuffer(data[: len(data) // FIELDS.itemsize * FIELDS.itemsize], FIELDS)
