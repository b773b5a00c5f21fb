"""One run: a server, a publisher and a subscriber on hosts of a small internet, their moves, and the received
events.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from harness.internet import PUBLIC, Internet
from harness.workers import Worker
from tests.interop.nat import sides
from tests.interop.nat.places import ALICE, BOB, NORTH, OFFICE, RELAY, SERVER, SOUTH, WEST
from tests.interop.nat.programs import DOMAIN, PASSWORDS, Layout, programs

TRANSPORTS: Final = {
    "UDP": ("udp", "udp"),
    "TCP": ("tcp", "tcp"),
    "UDP, SIP over TCP": ("udp", "tcp"),
    "TCP, SIP over UDP": ("tcp", "udp"),
    "any": ("auto", "udp"),
    "any, SIP over TCP": ("auto", "tcp"),
}
"""Transports of events and of SIP, by their name in the table."""


_FILTER: Final = """\
*filter
:FILTERED -
-A INPUT -d {address} -j FILTERED
-A OUTPUT -s {address} -j FILTERED
{rules}
COMMIT
"""

Serving = Callable[[Internet, Path], Mapping[str, Any]]
"""Returns programs of other makes, each with ``start`` and ``end``, in the order of starting."""


Agents = Callable[[Internet, str], Mapping[str, str]]
"""Returns settings of a user's agent in place of the usual."""


class Stage:
    """A run, made by :meth:`set`; at every place that a host moves to, it gets an address that was never used
    before.
    """

    programs: Mapping[str, Any]
    """The server programs, by their host."""

    _publisher: Worker
    _subscriber: Worker

    def __init__(self, internet: Internet, work: Path, agents: Agents) -> None:
        self.internet = internet
        self._agents = agents
        self._work = work
        self._numbers = iter(range(1, 150))
        for host in (SERVER, RELAY):
            self.move(host, PUBLIC)
        self.move(OFFICE, WEST)

    @classmethod
    @contextlib.contextmanager
    def set(
        cls,
        internet: Internet,
        work: Path,
        *,
        layout: Layout | Serving = Layout.TOGETHER,
        transport: str = "UDP",
        alice: str = NORTH,
        bob: str = SOUTH,
        agents: Agents = lambda internet, user: {},
    ) -> Iterator[Self]:
        """Start everything, with publisher and subscriber behind these routers or in public; end it after the block.

        Behind two routers, the two have the same private address.
        """
        stage = cls(internet, work, agents)
        with contextlib.ExitStack() as stack:
            if isinstance(layout, Layout):
                stage.programs = programs(layout, internet, work)
            else:
                stage.programs = layout(internet, work)
            for program in stage.programs.values():
                stack.callback(program.end)
                program.start()
            number = next(stage._numbers)
            internet.plug(ALICE, alice, number)
            internet.plug(BOB, bob, next(stage._numbers) if alice == bob else number)
            stage._publisher, stage._subscriber = (
                stack.enter_context(Worker(namespace=internet.namespaces.name(host))) for host in (ALICE, BOB)
            )
            stage._publisher.start(sides.publish, stage.agent_settings(ALICE, transport))
            stage._subscriber.start(sides.subscribe, stage.agent_settings(BOB, transport)).receive()
            stage._publisher.receive()
            yield stage

    def move(self, host: str, segment: str, *, firewall: str = "") -> float:
        """Move a host to another place; return the moment it left, on the monotonic clock.

        ``firewall`` has rules of iptables-restore for the chain FILTERED, which everything to and from the host's
        address there passes; at the next place there are none.
        """
        number = next(self._numbers)
        if firewall:
            address = self.internet.address_at(segment, number)
            self.internet.namespaces.run(host, ["iptables-restore"], _FILTER.format(address=address, rules=firewall))
        left_s = time.monotonic()
        self.internet.plug(host, segment, number)
        return left_s

    def takes(self, host: str, way: str, within_s: float) -> None:
        """Wait until the data channel of the publisher or subscriber takes this way; no events flow."""
        worker = self._publisher if host == ALICE else self._subscriber
        until_s, taken = time.monotonic() + within_s, ""
        while taken != way:
            assert time.monotonic() < until_s, f"{host} takes {taken} and not {way}"
            time.sleep(0.05)
            worker.send("way")
            taken = worker.receive()

    def rebind(self, router: str) -> float:
        """Let a router forget its connections and give each another port; return the moment just before."""
        before_s = time.monotonic()
        self.internet.rebind(router)
        return before_s

    def flow(self) -> None:
        """Start publishing events."""
        self._publisher.send("flow")

    def hold(self) -> int:
        """Stop publishing events; return how many were published in all, each of them acknowledged."""
        self._publisher.send("hold")
        published: int = self._publisher.receive()
        return published

    def healed_s(self, moment_s: float) -> float:
        """Wait for an event that was published after a moment; return how long after it the event came, in seconds."""
        self._subscriber.send(moment_s)
        received_s: float | None = self._subscriber.receive()
        assert received_s is not None, f"no event came within {sides.HEAL_S_MAX:g} s"
        return received_s - moment_s

    def hand_over(self, server: str, meanwhile: Callable[[], Any] = lambda: None) -> None:
        """Let the subscriber's session go to another server or domain; something else happens at the same time."""
        self._subscriber.send(server)
        meanwhile()
        assert self._subscriber.receive() == "done"

    def check(self, published: int) -> None:
        """See that each of so many events came once, and in order."""
        self._subscriber.send(published)
        arrivals: list[sides.Arrival] = self._subscriber.receive()
        assert [each.number for each in arrivals] == list(range(published))

    def agent_settings(self, user: str, transport: str) -> dict[str, str]:
        """Return the settings of a user's agent."""
        data_transport, sip_transport = TRANSPORTS[transport]
        return {
            "uri": f"sip:{user}@{DOMAIN}",
            "password": PASSWORDS[user],
            "server": self.internet.address(SERVER),
            "transport": sip_transport,
            "data_transport": data_transport,
            "state_dir": str(self._work / user),
            **self._agents(self.internet, user),
        }
