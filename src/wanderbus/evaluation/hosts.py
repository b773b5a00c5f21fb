"""Hosts of a run in real time: a fixed one for servers and publisher, and one for each consumer.

In network namespaces (as root) addresses are really removed and added, and the consumer's agent detects it by itself::

    consumer n: eth0 10.78.<n>.<2..5>/24 ──veth── w<n> 10.78.<n>.1/24 :fixed, 10.78.255.1 on lo

On the loopback interface hosts share 127.78.0.0/16, where no address can be removed; an agent is given its address.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from wanderbus.errors import ConfigurationError
from wanderbus.testbed.namespaces import Namespaces, missing

PLACES: Final = 4
"""The pool of addresses of a consumer, used in turn."""

_FIXED: Final = "fixed"


class Hosts(Protocol):
    """The hosts of one run, which exist for a ``with`` block."""

    server_address: str
    gives_address: bool
    """True if an agent has to be given its address, because the kernel does not show it."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def fixed(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` on the fixed host."""
        ...

    def mobile(self, number: int, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` on the host of consumer ``number``."""
        ...

    def address(self, number: int) -> str:
        """Return the present or last address of consumer ``number``."""
        ...

    def leave(self, number: int) -> None:
        """Remove the address from the host of consumer ``number``."""
        ...

    def arrive(self, number: int) -> str:
        """Give the host of consumer ``number`` the next address of its pool instead of the present one; return it."""
        ...


class _Places:
    """Index of each consumer's address in its pool."""

    def __init__(self, network: str, consumers: int) -> None:
        self.server_address = f"{network}.255.1"
        self._network = network
        self._places = [0] * consumers

    def address(self, number: int) -> str:
        """Return the present or last address of consumer ``number``."""
        return f"{self._network}.{number}.{2 + self._places[number] % PLACES}"

    def _next(self, number: int) -> str:
        self._places[number] += 1
        return self.address(number)


class LoopbackHosts(_Places):
    """Hosts on the loopback interface; they need no privilege, and support no outage."""

    gives_address = True

    def __init__(self, consumers: int) -> None:
        super().__init__("127.78", consumers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: nothing was created."""

    def fixed(self, argv: Sequence[str]) -> list[str]:
        """Return ``argv`` as it is."""
        return list(argv)

    def mobile(self, number: int, argv: Sequence[str]) -> list[str]:
        """Return ``argv`` as it is."""
        return list(argv)

    def leave(self, number: int) -> None:
        """Raise: an address of the loopback interface cannot be lost."""
        raise ConfigurationError("outages need network namespaces")

    def arrive(self, number: int) -> str:
        """Return the next address, for the agent."""
        return self._next(number)


class NamespaceHosts(_Places):
    """Hosts in network namespaces (:class:`Namespaces`)."""

    gives_address = False
    missing = staticmethod(missing)

    def __init__(self, consumers: int) -> None:
        super().__init__("10.78", consumers)
        self._namespaces = Namespaces("wbeval")
        self._there = [True] * consumers

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._namespaces)
            self._make()
            stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._namespaces.__exit__(kind, error, trace)

    def fixed(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` on the fixed host, under the same process id."""
        return self._namespaces.command(_FIXED, argv)

    def mobile(self, number: int, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` on the host of consumer ``number``, under the same process id."""
        return self._namespaces.command(number, argv)

    def leave(self, number: int) -> None:
        """Remove the address from the host, and with it its route."""
        self._namespaces.configure(number, [self._lose(number)])
        self._there[number] = False

    def arrive(self, number: int) -> str:
        """Give the host its next address instead of the present one."""
        lost = [self._lose(number)] if self._there[number] else []
        address = self._next(number)
        self._namespaces.configure(number, [*lost, *self._gain(number)])
        self._there[number] = True
        return address

    def _lose(self, number: int) -> str:
        return f"address delete {self.address(number)}/24 dev eth0"

    def _gain(self, number: int) -> list[str]:
        gateway = f"{self._network}.{number}.1"
        return [f"address add {self.address(number)}/24 dev eth0", f"route replace default via {gateway} dev eth0"]

    def _make(self) -> None:
        self._namespaces.add(_FIXED)
        fixed = [f"address add {self.server_address}/32 dev lo"]
        for number in range(len(self._places)):
            self._namespaces.add(number)
            self._namespaces.join(_FIXED, f"w{number}", number, "eth0")
            fixed += [f"address add {self._network}.{number}.1/24 dev w{number}", f"link set w{number} up"]
            self._namespaces.configure(number, ["link set eth0 up", *self._gain(number)])
        self._namespaces.configure(_FIXED, fixed)
