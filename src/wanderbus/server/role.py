"""Interface between a server's host and its roles.

A role is one part of a server: a pure machine, the sockets that the machine needs, and the outputs that only this part
understands. The host (:mod:`wanderbus.server.host`) runs the roles of one process and owns everything they share.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from wanderbus.errors import ConfigurationError
from wanderbus.machine import Input, Machine, Output
from wanderbus.metrics import Sample
from wanderbus.runtime.files.server_files import LoggedState, ServerFiles
from wanderbus.runtime.limit_log import Refusals
from wanderbus.runtime.net.certificate import OwnCertificate, own_certificate
from wanderbus.server.ports import Bound, Port


class HostOffer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the host offers to one role."""

    feed: Callable[[Input], None]
    """Passes an input to the role's machine, in this turn of the loop."""
    refusals: Refusals
    """Table of the refusals of this process; the host notes those that machines report."""
    metrics: Callable[[], Sequence[Sample]]
    """Returns the samples of all roles of the process, not older than a second."""
    directory: Path | None = None
    """The data directory, which exists; None if the process has none."""
    files: ServerFiles | None = None
    """Name, keys and log of the server; None unless a role of the process keeps a state."""

    @property
    def certificate(self) -> OwnCertificate:
        """Return the server's own certificate, which is kept in the data directory."""
        assert self.directory is not None, "this process has no data directory"
        return own_certificate(self.directory)


class Role(Protocol):
    """One part of a server; the host calls the methods in the order in which they stand here.

    The host itself performs these outputs of every machine: ``KernelWanted``, ``Limited`` and ``LoginRefused``. After a
    defect, the machine loses its inputs of that turn and goes on.
    """

    name: str
    """The role's name in errors."""
    reads_clock: bool = False
    """True if every batch of inputs begins with ``ClockRead``."""

    async def open(self, offer: HostOffer) -> None:
        """Do everything that may take long or fail, before any role binds a port; the state is loaded."""
        return

    @abstractmethod
    def ports(self) -> Sequence[Port]:
        """Return the sockets to bind, in this order; the roles before this one have bound theirs."""
        ...

    @abstractmethod
    def port_error(self, port: Port, error: OSError) -> ConfigurationError:
        """Return the error for a socket that cannot be bound; its text names the setting to change."""
        ...

    @abstractmethod
    def make_machine(self, bound: Mapping[str, Bound]) -> Machine:
        """Return the machine; ``bound`` has the addresses in use, by the names of the sockets."""
        ...

    def begin(self, now: float) -> Sequence[Output]:
        """Return the first outputs of the machine, at monotonic second ``now``."""
        return ()

    async def until_ready(self) -> None:
        """Return when the role serves; raise the error with which the start of the server fails."""
        return

    def report(self, output: Output) -> None:
        """Perform an output of the machine that is neither a socket's, nor a timer's, nor the host's."""
        return

    def metrics(self) -> Iterable[Sample]:
        """Return the samples of this role; called at most once a second, after the machine is made."""
        return ()

    def close(self) -> None:
        """Release everything that the role opened; its machine is not called again, its sockets are closed."""
        return


@runtime_checkable
class StatefulRole(Role, Protocol):
    """A role whose machine writes to the event log, with the output ``Append``.

    The machine receives ``Appended``, ``DiskFull`` and ``DiskFreed``. A defect in it ends the server: its memory can no
    longer be trusted, but the log can.
    """

    @abstractmethod
    def make_state(self, server: str) -> LoggedState:
        """Return an empty state of the server named ``server``, which the host loads before it opens the role.

        If the stored rows are damaged, the host calls this again: the last state counts.
        """
        ...
