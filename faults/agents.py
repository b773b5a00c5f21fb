"""``python -m faults.agents``: a publisher or a consumer under faults, in a process of its own that may be killed.

Each keeps a journal of lines beside its device directory, which is all that the reckoning goes by. A publisher writes
``sent N`` before it publishes and ``acknowledged N OFFSET`` after. A consumer writes ``took EPOCH NUMBER OFFSET``
before it acknowledges by asking for the next one, and goes on from its last line after a crash (DESIGN 5.5). A
consumer of the past subscribes, takes some events, ends the subscription and begins another one since the id of the
last event, again and again: each seam is between history and new events (SPEC T-05).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Final, Literal, NamedTuple

import msgspec
import uvloop

import wanderbus
from harness.domain_file import Place
from wanderbus.errors import Refused, WanderbusError

SUBJECT: Final = "Trade"
DOMAIN: Final = "localhost"
PASSWORD: Final = "secret"
BURST_MAX: Final = 60
HYBRID_EVENTS_MAX: Final = 15
"""Most new events that a subscription which begins in the past takes before the next one begins."""
PAUSE_S_MAX: Final = 0.15
LONG_PAUSE_SHARE: Final = 0.2
LONG_PAUSE_S_MAX: Final = 1.5
AWAY: Final = "older records are in the lake"
"""Words of a refusal while the service with the removed records is killed."""
CONNECT_S_MAX: Final = 20.0
RETRY_S: Final = 0.2
READY: Final = "ready"


def agent_at(place: Place, user: str, directory: Path) -> wanderbus.Agent:
    """Return an agent of a user at a server of a domain, with its state in ``directory``."""
    return wanderbus.connect(
        f"sip:{user}@{DOMAIN}",
        password=PASSWORD,
        server=f"{place.host}:{place.sip_port}",
        state_dir=directory / f"{user}-state",
    )


class Interest(NamedTuple):
    """An expression, and the same in Python: expected events are computed independently of the tested code."""

    expression: str
    matches: Callable[[int], bool]


INTERESTS: Final = {
    "everything": Interest("", lambda n: True),
    "one": Interest("k == 1", lambda n: n % 4 == 1),
    "some": Interest("(k >= 2) and (n > 10)", lambda n: n % 4 >= 2 and n > 10),
}


class Role(msgspec.Struct, frozen=True):
    """Role of a process: its device, its files, and its job."""

    user: str
    device: str
    directory: str
    server: str
    interest: str | None = None
    """A key of :data:`INTERESTS`; None for a publisher."""
    is_hybrid: bool = False
    """True for a consumer whose subscriptions begin in the past, each after the last event of the previous one."""

    @property
    def journal(self) -> Path:
        """Return the path of its journal."""
        return Path(self.directory, f"{self.device}.journal")


def lines_of(journal: Path) -> list[list[str]]:
    """Return the words of every complete line."""
    try:
        text = journal.read_text()
    except FileNotFoundError:
        return []
    return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]


class Journal:
    """Lines that survive ``kill -9``."""

    def __init__(self, path: Path) -> None:
        self.before = lines_of(path)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, *words: object) -> None:
        """Write a line."""
        os.write(self._file, f"{' '.join(map(str, words))}\n".encode())


async def publish(role: Role, stop: asyncio.Event, burst: asyncio.Event) -> None:
    """Publish bursts of numbered events until stopped; numbers of an earlier life are not used again."""
    journal, random = Journal(role.journal), Random(role.device)
    number = max((int(words[1]) for words in journal.before if words[0] == "sent"), default=0)

    async def publish_one(agent: wanderbus.Agent, n: int) -> None:
        journal.note("sent", n)
        identity = await agent.publish(SUBJECT, {"by": role.device, "n": n, "k": n % 4})
        journal.note("acknowledged", n, identity.number)

    async with _connected(role, None) as agent:
        print(READY, flush=True)
        while not stop.is_set():
            count = BURST_MAX if burst.is_set() else random.randint(1, BURST_MAX // 3)
            burst.clear()
            await asyncio.gather(*(publish_one(agent, n) for n in range(number + 1, number + 1 + count)))
            number += count
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(burst.wait(), random.uniform(0, PAUSE_S_MAX))


async def consume(role: Role, stop: asyncio.Event, interest: Interest) -> None:
    """Consume notifications until stopped."""
    journal = Journal(role.journal)
    positions = [wanderbus.Position(int(words[1]), int(words[2])) for words in journal.before]

    async def take(agent: wanderbus.Agent) -> None:
        async with agent.subscribe(SUBJECT, interest.expression, keep=True, gaps=True) as notifications:
            print(READY, flush=True)
            async for item in notifications:
                offset = "gap" if isinstance(item, wanderbus.Gap) else item.id.number
                journal.note("took", item.position.epoch, item.position.number, offset)

    async with _connected(role, positions[-1] if positions else None) as agent:
        taking = asyncio.create_task(take(agent))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((taking, stopping), return_when=asyncio.FIRST_COMPLETED)
        if taking.done():
            taking.result()
        os._exit(0)  # an orderly end would acknowledge the last notification; this end is as sudden as any


async def consume_since(role: Role, stop: asyncio.Event, interest: Interest) -> None:
    """Consume by one subscription after another until stopped, each since the last event taken."""
    journal, random = Journal(role.journal), Random(role.device)
    last = next((wanderbus.EventId.parse(words[4]) for words in reversed(journal.before)), None)

    async def take(agent: wanderbus.Agent) -> None:
        print(READY, flush=True)
        while True:
            # Meanwhile new events become past ones, and sometimes are removed from the log.
            longest_s = LONG_PAUSE_S_MAX if random.random() < LONG_PAUSE_SHARE else PAUSE_S_MAX
            await asyncio.sleep(random.uniform(0, longest_s))
            try:
                await take_some(agent)
            except Refused as error:
                if AWAY not in str(error):
                    raise

    async def take_some(agent: wanderbus.Agent) -> None:
        nonlocal last
        left = random.randint(1, HYBRID_EVENTS_MAX)
        since: wanderbus.EventId | Literal["earliest"] = last or "earliest"
        async with agent.subscribe(SUBJECT, interest.expression, gaps=True, since=since) as notifications:
            async for item in notifications:
                position = item.position
                if isinstance(item, wanderbus.Gap):
                    journal.note("took", position.epoch, position.number, "gap", last)
                    continue
                last = item.id
                seam = "past" if item.is_history else "new"
                journal.note("took", position.epoch, position.number, item.id.number, last, seam)
                left -= not item.is_history
                if left <= 0:
                    break

    async with _connected(role, None, keep=False) as agent:
        taking = asyncio.create_task(take(agent))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((taking, stopping), return_when=asyncio.FIRST_COMPLETED)
        if taking.done():
            taking.result()
        os._exit(0)


@contextlib.asynccontextmanager
async def _connected(
    role: Role, resume: wanderbus.Position | None, *, keep: bool = True
) -> AsyncIterator[wanderbus.Agent]:
    """Open an agent, retrying while the server is away."""
    while True:
        agent = wanderbus.connect(
            f"sip:{role.user}@{DOMAIN}",
            password=PASSWORD,
            server=role.server,
            state_dir=Path(role.directory, role.device),
            resume=resume,
            keep=keep,
            connect_s_max=CONNECT_S_MAX,
        )
        try:
            await agent.__aenter__()
            break
        except WanderbusError as error:
            print(f"{role.device} could not connect: {error}", file=sys.stderr, flush=True)
            await asyncio.sleep(RETRY_S)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_exit(agent)
        yield agent


async def run(role: Role) -> None:
    """Do the job until standard input ends; a line there makes a publisher publish at once."""
    stop, burst = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().add_reader(0, _read, stop, burst)
    if role.interest is None:
        await publish(role, stop, burst)
    else:
        consumes = consume_since if role.is_hybrid else consume
        await consumes(role, stop, INTERESTS[role.interest])


def _read(stop: asyncio.Event, burst: asyncio.Event) -> None:
    if os.read(0, 1_024):
        burst.set()
    else:
        stop.set()
        asyncio.get_running_loop().remove_reader(0)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(msgspec.json.decode(sys.argv[1], type=Role)))
