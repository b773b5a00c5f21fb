"""Journal of the agents of a domain run: what each of them did and received, in its own order.

The agents of one process share a file. Each line begins with the kind of an :class:`Entry` and the number of the agent.
The journals are all that the verdict uses: the servers under test have no part in them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple, get_args

import msgspec

Kind = Literal["sent", "acknowledged", "refused", "took", "gap", "moved", "began", "heard", "ended"]

_EMPTY: Final = "-"
_KINDS: Final = frozenset(get_args(Kind))


class Name(NamedTuple):
    """An event: the number of its publisher, and its number there, from 1 on."""

    by: int
    n: int


class Entry(msgspec.Struct, frozen=True):
    """A line of a journal.

    ``event`` and ``subject`` are those of a publish or of a notification. ``text`` is the id of an acknowledged event
    or of a notification, the reason of a refusal, the count and reason of a gap, or the new address. It is empty for an
    event that was stored in an outbox.

    Beside the subscriptions that last for the whole run (``took``), an agent has one at a time that begins and ends
    during it: ``began`` has its subject and, as ``text``, its interest; ``heard`` is a notification of it.
    """

    kind: Kind
    agent: int
    event: Name
    subject: str
    text: str
    at_ns: int
    """Time on the monotonic clock, which all processes of a machine share."""


class Reader(msgspec.Struct, frozen=True):
    """A subscription of an agent: the subject, and a key of :data:`faults.agents.INTERESTS`."""

    subject: str
    interest: str


class AgentRole(msgspec.Struct, frozen=True):
    """An agent: its number, the address of its server, its subscriptions, and the name of this server.

    An agent that ``has_outbox`` publishes through that alone: an event counts as acknowledged once it is stored there.
    """

    number: int
    server: str
    subscriptions: tuple[Reader, ...]
    has_outbox: bool = False
    server_name: str = ""

    @property
    def user(self) -> str:
        """Return the name of its user."""
        return f"u{self.number}"


class HostRole(msgspec.Struct, frozen=True):
    """A process with several agents: its name, its agents, and what they publish, ``rate_per_s`` events together.

    ``local_address`` is None where the system shows the address.
    """

    name: str
    directory: str
    agents: tuple[AgentRole, ...]
    ordered: tuple[str, ...]
    decentralised: tuple[str, ...]
    rate_per_s: float
    seed: int
    local_address: str | None = None

    @property
    def journal(self) -> Path:
        """Return the path of the journal of all its agents."""
        return Path(self.directory, f"{self.name}.journal")


class Journal:
    """A journal that is being written; a line costs one system call, so that nothing is lost with the process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, entry: Entry) -> None:
        """Write a line."""
        words = (entry.kind, entry.agent, *entry.event, entry.at_ns, entry.subject or _EMPTY, entry.text or _EMPTY)
        os.write(self._file, f"{' '.join(map(str, words))}\n".encode())


def entries(path: Path) -> Iterator[Entry]:
    """Return the complete lines of a journal; none if it does not exist."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return
    for line in text[: text.rfind("\n") + 1].splitlines():
        kind, agent, by, n, at_ns, subject, rest = line.split(" ", 6)
        assert kind in _KINDS, line
        subject, text = (each if each != _EMPTY else "" for each in (subject, rest))
        yield Entry(kind, int(agent), Name(int(by), int(n)), subject, text, int(at_ns))  # type: ignore[arg-type]
