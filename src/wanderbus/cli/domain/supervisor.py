"""Supervision of the server processes of a domain: started together, started again when one ends, ended together."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

import msgspec

from wanderbus.errors import WanderbusError
from wanderbus.runtime.child_process import ChildProcess

PAUSE_S_MIN: Final = 1.0
PAUSE_S_MAX: Final = 30.0
"""Pauses before a server is started again: each is twice the one before, until it has run for the longest pause."""

FAILURES_MAX: Final = 3
"""Ends of a server in succession before it was ready, after which the domain is ended."""

END_S_MAX: Final = 15.0
"""Time that a server has to end by itself; then it is killed."""

_MISUSED: Final = 2
"""Exit status of a server with unusable settings."""

Ready = Mapping[str, Any]
"""The ready line of a server, decoded, with the id of its process as ``pid``."""


class SupervisorReports:
    """Receives what people should know; the methods do nothing here."""

    def ready(self, server: str, line: Ready) -> None:
        """Report that a server is ready."""

    def all_ready(self) -> None:
        """Report that every server has been ready; called once."""

    def restarting(self, server: str, why: str, pause_s: float) -> None:
        """Report that a server has ended and is started again after a pause."""

    def joins(self, server: str) -> None:
        """Report that a server is started because it is new."""

    def leaves(self, server: str) -> None:
        """Report that a server is ended because it has left."""

    def line(self, server: str, line: str) -> None:
        """Report a line of a server's standard error, other than its last error."""


class ServerCannotRunError(WanderbusError):
    """The server ``server`` ended before it was ready, and another attempt promises nothing."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(f"server {server} {why}")
        self.server = server


class _Failed(msgspec.Struct):
    """An error as the commands print it with ``--json``."""

    class Message(msgspec.Struct):
        """The part with the text."""

        message: str

    error: Message


class ServerRunner:
    """One server: its process now, and its failures.

    :param command: command line of the server, which prints its ready line and its errors as JSON
    :param pause_s_min: first pause before it is started again
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        reports: SupervisorReports,
        on_ready: Callable[[str], None],
        *,
        pause_s_min: float = PAUSE_S_MIN,
    ) -> None:
        self.name = name
        self._command = command
        self._reports = reports
        self._on_ready = on_ready
        self._pause_s_min = pause_s_min
        self._stopped = asyncio.Event()
        self._process: ChildProcess | None = None
        self._error = ""
        self._is_ready = self._was_ready = False
        self._failures = 0

    @property
    def pid(self) -> int | None:
        """Return the id of its process, None while there is none."""
        return None if self._process is None else self._process.pid

    async def run(self) -> None:
        """Run the server, again and again, until :meth:`stop`.

        :raises ServerCannotRunError: it does not become ready, and another attempt promises nothing
        """
        pause_s, loop = self._pause_s_min, asyncio.get_running_loop()
        while not self._stopped.is_set():
            began = loop.time()
            status = await self._run_once()
            if self._stopped.is_set():
                return
            self._failures = 0 if self._is_ready else self._failures + 1
            why = self._way(status)
            if self._failures == FAILURES_MAX:
                raise ServerCannotRunError(self.name, f"{why}, {FAILURES_MAX} times before it was ready")
            if status == _MISUSED and not self._was_ready:
                raise ServerCannotRunError(self.name, why)
            if loop.time() - began >= PAUSE_S_MAX:
                pause_s = self._pause_s_min
            self._reports.restarting(self.name, why, pause_s)
            await _event_within(self._stopped, pause_s)
            pause_s = min(PAUSE_S_MAX, 2 * pause_s)

    @property
    def is_stopped(self) -> bool:
        """Return whether no other process is started."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Ask the process to end, and start no other."""
        self._stopped.set()
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """Kill the process, and start no other."""
        self._stopped.set()
        if self._process is not None:
            self._process.kill()

    async def _run_once(self) -> int:
        self._error, self._is_ready = "", False
        try:
            process = self._process = await ChildProcess.start(self._command, self._on_output, self._on_error)
        except WanderbusError:
            raise
        except OSError as error:
            raise ServerCannotRunError(self.name, f"cannot be started: {error.strerror}") from None
        try:
            if self._stopped.is_set():
                process.terminate()
            return await process.wait()
        except BaseException:
            process.kill()  # an interrupted wait must not leave it behind
            raise
        finally:
            self._process = None

    def _on_output(self, line: str) -> None:
        try:
            ready = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            self._reports.line(self.name, line)
            return
        self._is_ready = self._was_ready = True
        self._reports.ready(self.name, {**ready, "pid": self.pid})
        self._on_ready(self.name)

    def _on_error(self, line: str) -> None:
        try:
            self._error = msgspec.json.decode(line, type=_Failed).error.message
        except msgspec.DecodeError:
            self._reports.line(self.name, line)

    def _way(self, status: int) -> str:
        way = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
        return f"{way}: {self._error}" if self._error else way


class Supervisor:
    """All servers of a domain, each by its name with its command line."""

    def __init__(
        self, commands: Mapping[str, Sequence[str]], reports: SupervisorReports, *, pause_s_min: float = PAUSE_S_MIN
    ) -> None:
        self._reports = reports
        self._pause_s_min = pause_s_min
        self._not_ready = set(commands)
        self.runners = [self._runner(name, command) for name, command in commands.items()]
        self._joined: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._hurry = asyncio.Event()

    def _runner(self, name: str, command: Sequence[str]) -> ServerRunner:
        return ServerRunner(name, command, self._reports, self._on_ready, pause_s_min=self._pause_s_min)

    def follow(self, commands: Mapping[str, Sequence[str]], left: Container[str]) -> None:
        """Start the servers that are new in ``commands``, and end those that have ``left``."""
        if self._stopping.is_set():
            return
        for runner in self.runners:
            if runner.name in left and not runner.is_stopped:
                self._reports.leaves(runner.name)
                runner.stop()
        for name in sorted(commands.keys() - {runner.name for runner in self.runners}):
            self._reports.joins(name)
            runner = self._runner(name, commands[name])
            self.runners.append(runner)
            self._joined.add(asyncio.create_task(self._run_joined(runner), name=f"server {name}"))

    async def _run_joined(self, runner: ServerRunner) -> None:
        """Run a server that is new; if it cannot run, the others go on."""
        try:
            await runner.run()
        except WanderbusError as error:
            self._reports.line(runner.name, f"{error}; it is not started again, and the other servers go on")

    def stop(self) -> None:
        """End all servers; with the second call, kill them."""
        if self._stopping.is_set():
            self._hurry.set()
        self._stopping.set()

    async def run(self) -> None:
        """Run all servers until :meth:`stop`, and return when all have ended.

        :raises ServerCannotRunError: one of them cannot run; the others have ended
        """
        running = {asyncio.create_task(each.run(), name=f"server {each.name}") for each in self.runners}
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            failed, waiting = False, {*running, stopping}
            while not failed and stopping in waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                failed = any(task.exception() for task in done)
            for runner in self.runners:
                runner.stop()
            hurrying = asyncio.create_task(self._hurry.wait())
            running |= self._joined
            ended = asyncio.create_task(_all_done(running))
            await asyncio.wait({ended, hurrying}, timeout=END_S_MAX, return_when=asyncio.FIRST_COMPLETED)
            hurrying.cancel()
            for runner in self.runners:
                runner.kill()
            await ended
            for task in running:
                task.result()
        finally:
            stopping.cancel()
            for runner in self.runners:
                runner.kill()
            for task in running | self._joined:
                task.cancel()

    def _on_ready(self, server: str) -> None:
        if self._not_ready:
            self._not_ready.discard(server)
            if not self._not_ready:
                self._reports.all_ready()


async def _all_done(tasks: set[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)


async def _event_within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
