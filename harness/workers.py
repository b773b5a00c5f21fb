"""Worker processes for the jobs of a benchmark, one side of a measurement each, on a processor of its own.

A worker runs many jobs, so that a run does not pay for starting Python; each job has an event loop of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import logging
import multiprocessing
import os
import signal
import traceback
from collections.abc import Awaitable, Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import uvloop

from wanderbus.testbed.namespaces import enter

Job = Callable[..., Awaitable[Any]]
"""Job: a coroutine function of a :class:`Line` and arguments that can be pickled."""

LOOPS: Final[dict[str, Callable[[], asyncio.AbstractEventLoop]]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.SelectorEventLoop,
}
ANSWER_S_MAX: Final = 60.0


class WorkerError(Exception):
    """A job failed, or its process was silent for too long; the text has the traceback."""


class Line:
    """The job's end of the pipe to the benchmark."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._received: asyncio.Queue[Any] = asyncio.Queue()

    def send(self, message: Any) -> None:
        """Send a message to the benchmark before the job is done."""
        self._connection.send(("message", message))

    async def receive(self) -> Any:
        """Wait for the next message of the benchmark."""
        return await self._received.get()

    @contextlib.contextmanager
    def listening(self) -> Iterator[Self]:
        """Receive from the benchmark during the block."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._connection.fileno(), lambda: self._received.put_nowait(self._connection.recv()))
        try:
            yield self
        finally:
            loop.remove_reader(self._connection.fileno())
            os.set_blocking(self._connection.fileno(), True)  # because of uvloop


class Worker:
    """One process, in this network namespace and on this processor if they are given."""

    def __init__(self, *, namespace: str | None = None, processor: int | None = None) -> None:
        self._connection, there = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_work, args=(there, namespace, processor), daemon=True)
        self._process.start()
        there.close()

    def start(self, job: Job, *arguments: Any, loop: str = "uvloop", profile: Path | None = None) -> Self:
        """Begin a job; the one before must be done. A profile of it (pstats) is written to the file ``profile``."""
        self._connection.send((job, arguments, loop, profile))
        return self

    def send(self, message: Any = None) -> None:
        """Send a message to the job."""
        self._connection.send(message)

    def receive(self) -> Any:
        """Return the next message of the job, or its result; raise :class:`WorkerError` if it fails."""
        if not self._connection.poll(ANSWER_S_MAX):
            raise WorkerError(f"a job sent nothing for {ANSWER_S_MAX:g} s")
        try:
            kind, message = self._connection.recv()
        except (EOFError, ConnectionError):
            raise WorkerError("the process of a job ended") from None
        if kind == "failed":
            raise WorkerError(message)
        return message

    def kill(self) -> None:
        """End the process as by kill -9; messages that it has sent can still be received."""
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join(2.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def processors() -> tuple[int, int]:
    """Return the processors for the two sides of a measurement; the same twice where there is but one."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[-1], usable[0]


def _work(connection: Connection, namespace: str | None, processor: int | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the benchmark, which then ends its workers
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # a measurement ends in the middle of a stream, which warns
    if namespace is not None:
        enter(namespace)
    if processor is not None:
        os.sched_setaffinity(0, {processor})
    while True:
        try:
            job, arguments, loop, profile = connection.recv()
        except EOFError:
            return
        try:
            with _profiled(profile), asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
                done = runner.run(_do(job, connection, arguments))
        except Exception:
            connection.send(("failed", traceback.format_exc()))
        else:
            connection.send(("done", done))


@contextlib.contextmanager
def _profiled(file: Path | None) -> Iterator[None]:
    if file is None:
        yield
        return
    with cProfile.Profile() as profile:
        yield
    profile.dump_stats(file)


async def _do(job: Job, connection: Connection, arguments: tuple[Any, ...]) -> Any:
    with Line(connection).listening() as line:
        return await job(line, *arguments)
