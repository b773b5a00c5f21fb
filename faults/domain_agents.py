"""``python -m faults.domain_agents``: many agents in one process that publish, subscribe and move, and keep a journal.

Each agent has one merged iteration over its subscriptions, and another subscription that comes and goes. Half of the
events are published by an agent that has just received one of the same subject, if there is one, so that effects follow
their causes as closely as possible.

Input: ``go`` begins to publish, ``burst`` publishes some events at once, ``move ADDRESS`` uses another address,
``walk SERVER`` moves the session of an agent to another server, and ``stop`` ends publishing; the end of the input ends
the process.
Output: ``ready`` once all have subscribed, then ``ACKNOWLEDGED UNANSWERED TAKEN HEARD MOVED WALKED``, twice a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Final

import msgspec
import uvloop

import wanderbus
from faults.agents import DOMAIN, INTERESTS, PASSWORD, READY
from faults.domain_journal import AgentRole, Entry, HostRole, Journal, Kind, Name
from faults.orders import obey_lines
from faults.party import Party
from wanderbus.errors import Closed, LimitExceeded, Refused, WanderbusError

CONNECT_S_MAX: Final = 60.0
"""Longest time until an agent is connected: all of them connect at once."""

UNANSWERED_MAX: Final = 24
"""Publishes of one agent without an answer, from which on it waits: its server or a leader is down."""

NOTHING: Final = Name(0, 0)
PAUSE_S_MAX: Final = 6.0
STAYS_S_MAX: Final = 10.0
BURST_EVENTS: Final = 40
"""Events of a burst of one process: some of them are on their way when a server is killed."""

WALK_AGAIN_S: Final = 0.5
"""Pause until a session that could not leave tries again: it moves while all servers run."""

REPLY_SHARE: Final = 0.5
DECENTRALISED_SHARE: Final = 0.6
REPORT_S: Final = 0.5


class _Member:
    """One agent with its journal and counts."""

    def __init__(self, role: AgentRole, host: HostRole, journal: Journal) -> None:
        self.role = role
        self.acknowledged = self.unanswered = self.taken = self.heard = self.moved = self.walked = 0
        self.at = role.server_name
        """Server of its session, or the one to which it is walking."""
        self._n = 0
        self._subjects = {each.subject for each in role.subscriptions}
        self._journal = journal
        self.agent = wanderbus.connect(
            f"sip:{role.user}@{DOMAIN}",
            password=PASSWORD,
            server=role.server,
            state_dir=Path(host.directory, role.user),
            local_address=host.local_address,
            connect_s_max=CONNECT_S_MAX,
        )

    def _note(self, kind: Kind, event: Name, subject: str, text: object = "") -> None:
        self._journal.note(Entry(kind, self.role.number, event, subject, str(text), time.monotonic_ns()))

    async def publish(self, subject: str) -> None:
        """Publish the next event, and note the answer."""
        self._n += 1
        self.unanswered += 1
        event = Name(self.role.number, self._n)
        self._note("sent", event, subject)
        try:
            attributes = {"by": event.by, "n": event.n, "k": event.n % 4}
            identity: object = ""
            if self.role.has_outbox:
                await self.agent.publish(subject, attributes, outbox=True)
            else:
                identity = await self.agent.publish(subject, attributes)
        except (LimitExceeded, Refused) as error:
            self._note("refused", event, subject, error)
        except Closed:
            return  # never answered
        else:
            self.acknowledged += 1
            self._note("acknowledged", event, subject, identity)
        self.unanswered -= 1

    async def take(self, ready: asyncio.Event, causes: deque[tuple[_Member, str]]) -> None:
        """Take the events of all subscriptions, and let ``causes`` name what may be answered."""
        agent = self.agent
        subscriptions = [
            agent.subscribe(each.subject, INTERESTS[each.interest].expression, keep=True, gaps=True)
            for each in self.role.subscriptions
        ]
        async with agent.merged(*subscriptions) as items:
            ready.set()
            async for item in items:
                if isinstance(item, wanderbus.Gap):
                    self._note("gap", NOTHING, "", f"{item.count} {item.reason}")
                    continue
                self.taken += 1
                self._note("took", _name(item.event), item.event.subject, item.id)
                causes.append((self, item.event.subject))

    async def visit(self, subjects: Sequence[str], random: Random, stop: asyncio.Event) -> None:
        """Subscribe and end the subscription, again and again; the last one stays when publishing stops."""
        while not stop.is_set():
            await asyncio.sleep(random.uniform(0, PAUSE_S_MAX))
            stays_s = random.uniform(0, STAYS_S_MAX)
            # An agent cannot read the same subscription twice.
            subject = random.choice([each for each in subjects if each not in self._subjects])
            interest = random.choice(list(INTERESTS))
            subscription = self.agent.subscribe(subject, INTERESTS[interest].expression, gaps=True)
            with contextlib.suppress(LimitExceeded):  # the disk is full
                async with subscription as items:
                    self._note("began", NOTHING, subject, interest)
                    hearing = asyncio.create_task(self._hear(items))
                    await asyncio.wait((hearing,), timeout=stays_s)
                    if stop.is_set() or hearing.done():
                        await hearing
                    hearing.cancel()
                    self._note("ended", NOTHING, subject)

    async def _hear(self, items: AsyncIterator[wanderbus.Notification | wanderbus.Gap]) -> None:
        async for item in items:
            if isinstance(item, wanderbus.Gap):
                self._note("gap", NOTHING, "", f"{item.count} {item.reason}")
                continue
            self.heard += 1
            self._note("heard", _name(item.event), item.event.subject, item.id)

    async def refusals(self) -> None:
        """Note each event of the outbox that is refused for good."""
        async for refusal in self.agent.outbox_refusals():
            self._note("refused", _name(refusal.event), refusal.event.subject, refusal.reason)

    async def walk(self, server: str) -> None:
        """Move the session to another server, as soon as it can leave."""
        self.at = server
        while True:
            try:
                await self.agent.handover(server)
            except WanderbusError:
                await asyncio.sleep(WALK_AGAIN_S)
            else:
                self.walked += 1
                return

    async def watch(self) -> None:
        """Count the moves that have ended."""
        address = ""
        async for change in self.agent.changes():
            if change.status == "CONNECTED" and change.address != address:
                self.moved += bool(address)
                address = change.address
                self._note("moved", NOTHING, "", address)


def _name(event: wanderbus.Event) -> Name:
    return Name(event.attributes["by"], event.attributes["n"])


class _Party(Party):
    """All agents of the process."""

    def __init__(self, role: HostRole) -> None:
        super().__init__(role.rate_per_s)
        self._role = role
        self._random = Random(role.seed)
        journal = Journal(role.journal)
        self._members = [_Member(each, role, journal) for each in role.agents]
        self._causes: deque[tuple[_Member, str]] = deque(maxlen=8)
        self._decentralised = frozenset(role.decentralised)
        self.go = asyncio.Event()

    async def live(self) -> None:
        """Connect and subscribe, publish until the order to stop, and take events until the end of the input."""
        await asyncio.gather(*(each.agent.__aenter__() for each in self._members))
        ready = [asyncio.Event() for _ in self._members]
        for member, subscribed in zip(self._members, ready, strict=True):
            self._begin(member.take(subscribed, self._causes))
            self._begin(member.watch())
            self._begin(member.refusals())
        for subscribed in ready:
            await subscribed.wait()
        print(READY, flush=True)
        self._begin(self._report())
        await self.go.wait()
        subjects = (*self._role.ordered, *self._role.decentralised)
        for member in self._members:
            self._begin(member.visit(subjects, Random(self._random.getrandbits(32)), self.stop))
        await self._publish()
        await self.end.wait()
        os._exit(0)  # nobody needs a goodbye

    def _publish_one(self) -> None:
        if (choice := self._choose()) is not None:
            self._begin(choice[0].publish(choice[1]))

    def _choose(self) -> tuple[_Member, str] | None:
        """Return who publishes next, and in which subject; None if too much is unanswered."""
        random = self._random
        if self._causes and random.random() < REPLY_SHARE:
            member, subject = self._causes.pop()
        else:
            member = random.choice(self._members)
            is_decentralised = random.random() < DECENTRALISED_SHARE
            subject = random.choice(self._role.decentralised if is_decentralised else self._role.ordered)
        return (member, subject) if member.unanswered + member.agent.outbox.events < UNANSWERED_MAX else None

    async def move(self, address: str) -> None:
        """Let all agents use another address."""
        for member in self._members:
            await member.agent.rebind(address)

    def _walk(self, server: str) -> None:
        """Let one of the agents walk to a server."""
        if others := [each for each in self._members if each.at != server]:
            self._begin(self._random.choice(others).walk(server))

    async def _report(self) -> None:
        while True:
            counts = [
                (each.acknowledged, each.unanswered, each.taken, each.heard, each.moved, each.walked)
                for each in self._members
            ]
            print(*map(sum, zip(*counts, strict=True)), flush=True)
            await asyncio.sleep(REPORT_S)

    def order(self, line: str) -> None:
        """Obey a line of the input."""
        word, _, rest = line.partition(" ")
        if word == "move":
            self._begin(self.move(rest))
        elif word == "walk":
            self._walk(rest)
        elif word == "go":
            self.go.set()
        elif word == "burst":
            self._begin_publishes(BURST_EVENTS)
        else:
            self.stop.set()


async def run(role: HostRole) -> None:
    """Do the job until standard input ends."""
    party = _Party(role)
    obey_lines(party.order, party.finish)
    await party.live()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(msgspec.json.decode(sys.argv[1], type=HostRole)))
