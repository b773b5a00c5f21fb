"""``python -m faults.federation_agents``: the agents of one domain, which publish and receive, and keep a journal.

Input: ``go`` lets the events count that are published from now on, ``burst`` publishes some at once, ``hold``
lets few events follow until ``resume``, ``stop`` ends publishing; the end of the input ends the process. Before ``go``
few events are published, until those of all domains come.
Output: ``ready`` once all have subscribed, then ``ACKNOWLEDGED UNANSWERED TAKEN SEEN``, twice a second. ``SEEN`` is the
number of streams of which something came, for each subscription.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import uvloop

import wanderbus
from faults.agents import INTERESTS, PASSWORD, READY
from faults.federation_journal import (
    ACKNOWLEDGED,
    BEGAN,
    GAP,
    REFUSED,
    STRAYED,
    TOOK,
    DomainRole,
    Journal,
    PublisherRole,
    ReaderRole,
    stream_of,
)
from faults.orders import obey_lines
from faults.party import Party
from wanderbus.errors import Closed, LimitExceeded, Refused

CONNECT_S_MAX: Final = 60.0
UNANSWERED_MAX: Final = 200
"""Publishes of one agent without an answer, from which on it waits: its server or a leader is down."""

EARLY_PER_S: Final = 40.0
"""Events a second before they count."""

HELD_PER_S: Final = 2.0
"""Events a second while the servers catch up: something is always on its way."""

BURST_EVENTS: Final = 30
REPORT_S: Final = 0.5


class _Publisher:
    """One agent that publishes."""

    def __init__(self, role: PublisherRole, domain: DomainRole, journal: Journal) -> None:
        self.role = role
        self.acknowledged = self.unanswered = 0
        self.agent = _agent(role, domain)
        self._subjects = domain.subjects
        self._home = domain.name
        self._numbers = [0] * len(domain.subjects)
        self._journal = journal

    def _stream(self, subject: int) -> int:
        return stream_of(self.role.number, subject, len(self._subjects))

    async def publish(self, subject: int) -> None:
        """Publish the next event of a subject, and note its id."""
        self._numbers[subject] = n = self._numbers[subject] + 1
        self.unanswered += 1
        stream, sent_ns = self._stream(subject), time.monotonic_ns()
        try:
            id = await self.agent.publish(self._subjects[subject], self._attributes(n))
        except (LimitExceeded, Refused) as error:
            print(f"{self.role.user}: {error}", file=sys.stderr, flush=True)
            self._journal.note(REFUSED, self.role.number, stream, n)
        except Closed:
            return  # never answered
        else:
            self.acknowledged += 1
            self._journal.note(ACKNOWLEDGED, self.role.number, stream, n, id, sent_ns)
        self.unanswered -= 1

    def _attributes(self, n: int) -> dict[str, int | str]:
        return {"by": self.role.number, "n": n, "k": n % 4, "home": self._home}

    def begin(self) -> None:
        """Note that all events count that follow."""
        for subject, n in enumerate(self._numbers):
            self._journal.note(BEGAN, self.role.number, self._stream(subject), n)


class _Reader:
    """One agent that receives."""

    def __init__(self, role: ReaderRole, domain: DomainRole, journal: Journal) -> None:
        self.role = role
        self.taken = 0
        self.seen: set[int] = set()
        self.agent = _agent(role, domain)
        self._subjects = {name: number for number, name in enumerate(domain.subjects)}
        self._names = domain.subjects
        self._home = domain.name
        self._journal = journal

    async def take(self, ready: asyncio.Event) -> None:
        """Take the events of all subscriptions."""
        agent, count = self.agent, len(self._names)
        subscriptions = [
            agent.subscribe(self._names[each.subject], INTERESTS[each.interest].expression, keep=True, gaps=True)
            for each in self.role.wants
        ]
        async with agent.merged(*subscriptions) as items:
            ready.set()
            async for item in items:
                if isinstance(item, wanderbus.Gap):
                    print(f"{self.role.user}: a gap of {item.count}: {item.reason}", file=sys.stderr, flush=True)
                    self._journal.note(GAP, self.role.number, 0, item.count)
                    continue
                event = item.event
                stream = stream_of(event.attributes["by"], self._subjects[event.subject], count)
                self.taken += 1
                self.seen.add(stream)
                id = event.origin or item.id
                home = event.origin.origin.partition("/")[0] if event.origin else self._home
                self._journal.note(TOOK, self.role.number, stream, event.attributes["n"], id)
                if home != event.attributes["home"]:
                    self._journal.note(STRAYED, self.role.number, stream, event.attributes["n"], id)


def _agent(role: ReaderRole | PublisherRole, domain: DomainRole) -> wanderbus.Agent:
    return wanderbus.connect(
        f"sip:{role.user}@{domain.name}",
        password=PASSWORD,
        server=role.server,
        state_dir=Path(domain.directory, f"{domain.name}-{role.user}"),
        connect_s_max=CONNECT_S_MAX,
    )


class _Party(Party):
    """All agents of the domain."""

    def __init__(self, domain: DomainRole) -> None:
        super().__init__(EARLY_PER_S)
        self._domain = domain
        self._random = Random(domain.seed)
        self._journal = Journal(domain.journal)
        self._publishers = [_Publisher(each, domain, self._journal) for each in domain.publishers]
        self._readers = [_Reader(each, domain, self._journal) for each in domain.readers]

    async def live(self) -> None:
        """Connect, subscribe, and publish until the order to stop; take events until the end of the input."""
        agents = [*(each.agent for each in self._publishers), *(each.agent for each in self._readers)]
        await asyncio.gather(*(each.__aenter__() for each in agents))
        ready = [asyncio.Event() for _ in self._readers]
        for reader, subscribed in zip(self._readers, ready, strict=True):
            self._begin(reader.take(subscribed))
        for subscribed in ready:
            await subscribed.wait()
        print(READY, flush=True)
        self._begin(self._report())
        await self._publish()
        await self.end.wait()
        self._journal.flush()
        os._exit(0)  # nobody needs a goodbye

    def _publish_one(self) -> None:
        publisher = self._random.choice(self._publishers)
        if publisher.unanswered < UNANSWERED_MAX:
            self._begin(publisher.publish(self._random.randrange(len(self._domain.subjects))))

    async def _report(self) -> None:
        while True:
            self._journal.flush()
            acknowledged = sum(each.acknowledged for each in self._publishers)
            unanswered = sum(each.unanswered for each in self._publishers)
            taken, seen = sum(each.taken for each in self._readers), sum(len(each.seen) for each in self._readers)
            print(acknowledged, unanswered, taken, seen, flush=True)
            await asyncio.sleep(REPORT_S)

    def order(self, line: str) -> None:
        """Obey a line of the input."""
        if line == "go":
            for each in self._publishers:
                each.begin()
            self._rate_per_s = self._domain.rate_per_s
        elif line == "burst":
            self._begin_publishes(BURST_EVENTS)
        elif line == "hold":
            self._rate_per_s = HELD_PER_S
        elif line == "resume":
            self._rate_per_s = self._domain.rate_per_s
        else:
            self.stop.set()


async def run(domain: DomainRole) -> None:
    """Do the job until standard input ends."""
    party = _Party(domain)
    obey_lines(party.order, party.finish)
    await party.live()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(msgspec.json.decode(sys.argv[1], type=DomainRole)))
