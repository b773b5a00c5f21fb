"""Host of the roles of one process: it owns everything that they share.

These are the data directory with log and state, the sockets, a driver for each role, the SIP trace, the table of
refusals, the matching kernel, and the order of starting, failing and closing. A role (:mod:`wanderbus.server.role`)
only adds its machine, and the sockets and outputs of that machine.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from wanderbus.broker.messages import Append, Appended, DiskFreed, DiskFull, KernelLoaded, KernelWanted
from wanderbus.errors import WanderbusError
from wanderbus.machine import Input, Output
from wanderbus.matching import Kernel
from wanderbus.metrics import Sample
from wanderbus.refusals import Limited, LoginRefused
from wanderbus.runtime.files.disk import SYSTEM, make_directory
from wanderbus.runtime.files.file_modes import check_own_directory, warn_if_open
from wanderbus.runtime.files.server_files import LoggedState, ServerFiles, unusable
from wanderbus.runtime.files.users_file import follow
from wanderbus.runtime.limit_log import Refusals
from wanderbus.runtime.log.retention_policy import Keep
from wanderbus.runtime.net.descriptors import allow_files
from wanderbus.runtime.net.driver import Driver, Unmade
from wanderbus.runtime.net.sip_trace import SipRecorder
from wanderbus.runtime.process_metrics import ProcessMetrics
from wanderbus.server.kernel import loaded_kernel
from wanderbus.server.ports import Bound, SIPPort, bind
from wanderbus.server.role import HostOffer, Role, StatefulRole
from wanderbus.server.storage import Storage
from wanderbus.sip.authentication.digest import Secret

_log = logging.getLogger("wanderbus.server")


class DataDirectory(msgspec.Struct, frozen=True):
    """The data directory of a process."""

    path: Path
    holds: str
    """Secret content of the directory, for the warning if others can read it."""
    reserve_bytes: int = 0
    """Free space below which the disk counts as full."""
    keep: Keep = Keep()
    """Records that log retention keeps at least; everything by default."""
    new_name: str | None = None
    """Name of the server in event ids if the directory is new; a random one by default."""


class Host:
    """Runs ``roles`` between :meth:`start` and :meth:`close`.

    :param roles: in the order of their start; a role may use the addresses of those before it
    :param directory: the data directory; None if no role stores anything
    :param sip_trace: file for the SIP messages of all roles
    :param users: secrets of users; a file of users is followed while the roles run
    """

    def __init__(
        self,
        roles: Sequence[Role],
        *,
        directory: DataDirectory | None = None,
        sip_trace: Path | None = None,
        users: Mapping[str, Secret] | None = None,
    ) -> None:
        self._roles = roles
        self._directory = directory
        self._sip_trace = sip_trace
        self._users = users
        self._refusals = Refusals()
        self._running: list[_RunningRole] = []
        self._recorder: SipRecorder | None = None
        self._following: asyncio.Task[None] | None = None
        self._has_made_directory = False
        self.storage: Storage | None = None
        """Log and state; None before the start, and if no role keeps a state."""
        self._broken: asyncio.Future[None] | None = None
        self._metrics = ProcessMetrics(self._samples, self._refusals)

    async def start(self) -> None:
        """Return when every role serves; after an error everything is closed, and a new data directory is removed.

        :raises ConfigurationError: a port, a file or an address cannot be used
        :raises StorageError: the data directory cannot be used, or the disk is full
        :raises AuthenticationError: a SIP server rejects a role
        :raises NoResponse: it does not answer
        """
        try:
            await self._start()
        except BaseException:
            await self.close()
            if self._directory is not None and self._has_made_directory:
                # No data in it was acknowledged yet.
                shutil.rmtree(self._directory.path, ignore_errors=True)
            raise

    @property
    def failure(self) -> str:
        """Return the error that ends :meth:`run`, "" while there is none."""
        if self._broken is None or not self._broken.done() or self._broken.cancelled():
            return ""
        return str(self._broken.exception())

    def samples(self) -> Sequence[Sample]:
        """Return the samples of the process, not older than a second."""
        return self._metrics.samples()

    def note(self, limited: Limited) -> None:
        """Count what a limit outside the roles has refused."""
        self._refusals.note(limited)

    async def run(self) -> None:
        """Serve until cancelled; raise the error after which nothing is acknowledged."""
        assert self._broken is not None, "the host is not started"
        await asyncio.shield(self._broken)

    async def close(self) -> None:
        """Stop all roles; everything that was acknowledged is on disk."""
        if self._following is not None:
            self._following.cancel()
        running, self._running = self._running, []
        for each in running:
            each.close()
        await asyncio.gather(*(each.end() for each in running))
        storage, self.storage = self.storage, None
        if storage is not None:
            await storage.close()
        if self._recorder is not None:
            self._recorder.close()
        self._following = self._recorder = None

    async def _start(self) -> None:
        self._broken = asyncio.get_running_loop().create_future()
        allow_files()
        if self._directory is not None:
            warn_if_open(self._directory.path, self._directory.holds)
        if self._sip_trace is not None:
            self._recorder = SipRecorder.open(self._sip_trace)
        self._running = [_RunningRole(role) for role in self._roles]
        self._open_directory()
        for each in self._running:
            await each.role.open(self._offer(each))
        if self.storage is not None:
            self.storage.start()
        for each in self._running:
            self._start_role(each)
        await self._until_ready(self._broken)
        self._following = None if self._users is None else follow(self._users)

    def _open_directory(self) -> None:
        """Open the data directory, and bring the states of the roles up to date."""
        if self._directory is None:
            return
        path = self._directory.path
        is_missing = not path.exists()
        try:
            make_directory(SYSTEM, path, 0o700)
            check_own_directory(path)
        except OSError as error:
            raise unusable(path, error) from None
        # Not if another process made it in the meantime, which then owns it.
        self._has_made_directory = is_missing
        if not any(isinstance(role, StatefulRole) for role in self._roles):
            return
        files = ServerFiles.open(path, new_name=self._directory.new_name)
        try:
            states = files.load_states(lambda: self._make_states(files.identity.server))
        except BaseException:
            files.close()
            raise
        self.storage = Storage(
            files,
            states,
            reserve_bytes=self._directory.reserve_bytes,
            keep=self._directory.keep,
            on_durable=self._on_durable,
            on_full=lambda: self._feed_writers(DiskFull()),
            on_room=lambda: self._feed_writers(DiskFreed()),
            on_failure=self._fail,
        )

    def _make_states(self, server: str) -> list[LoggedState]:
        states = []
        for each in self._running:
            if isinstance(each.role, StatefulRole):
                each.state = each.role.make_state(server)
                states.append(each.state)
        return states

    def _offer(self, running: _RunningRole) -> HostOffer:
        return HostOffer(
            feed=running.feed,
            refusals=self._refusals,
            metrics=self._metrics.samples,
            directory=None if self._directory is None else self._directory.path,
            files=None if self.storage is None else self.storage.files,
        )

    def _samples(self) -> Iterator[Sample]:
        """Yield the samples of every role, and of log and disk."""
        for each in self._running:
            if each.driver is not None:
                yield from each.role.metrics()
        if self.storage is not None:
            yield from self.storage.metrics()

    def _start_role(self, running: _RunningRole) -> None:
        """Bind the sockets of a role, and make its machine, which has to know the addresses."""
        role = running.role
        ports = role.ports()
        tap = self._recorder.tap() if self._recorder and any(isinstance(port, SIPPort) for port in ports) else None
        driver = running.driver = Driver(
            Unmade(),
            self._reporter(running),
            wall_clock=role.reads_clock,
            tap=tap,
            on_fault=(lambda error: self._on_fault(role, error)) if isinstance(role, StatefulRole) else None,
        )
        previous = {} if self.storage is None else self.storage.files.identity.ports
        bound: dict[str, Bound] = {}
        for port in ports:
            try:
                found = bound[port.name] = bind(driver, port, previous.get(port.setting, 0))
            except OSError as error:
                raise role.port_error(port, error) from None
            if tap is not None and isinstance(port, SIPPort):
                tap.trace(port.name, found.address, found.streams)
        if self.storage is not None and (
            kept := {port.setting: bound[port.name].address[1] for port in ports if port.setting}
        ):
            self.storage.files.keep_ports(kept)
        driver.machine = role.make_machine(bound)
        driver.perform(role.begin(asyncio.get_running_loop().time()))

    def _reporter(self, running: _RunningRole) -> Callable[[Output], None]:
        """Return the function that performs the outputs of a role's machine."""
        report, state, refusals = running.role.report, running.state, self._refusals

        def perform(output: Output) -> None:
            match output:
                case Append(log=log, entries=entries, urgent=urgent):
                    if self.storage is not None and state is not None:
                        self.storage.append(log, state, entries, urgent=urgent)
                case Limited() | LoginRefused():
                    refusals.note(output)
                case KernelWanted(kernel=kernel):
                    running.load_kernel(kernel)
                case _:
                    report(output)

        return perform

    async def _until_ready(self, broken: asyncio.Future[None]) -> None:
        """Return when every role is ready and the disk has written a record; raise the first error."""
        begun = [each.role.until_ready() for each in self._running]
        if self.storage is not None:
            begun.insert(0, self.storage.until_first())
        waiting = [asyncio.create_task(each) for each in begun]
        try:
            while waiting:
                done, _ = await asyncio.wait((broken, *waiting), return_when=asyncio.FIRST_COMPLETED)
                for each in filter(done.__contains__, (broken, *waiting)):
                    each.result()
                waiting = [each for each in waiting if each not in done]
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def _writers(self) -> list[Driver]:
        """Return the drivers of the roles that keep a state."""
        return [each.driver for each in self._running if each.state is not None and each.driver is not None]

    def _feed_writers(self, given: Input) -> None:
        for driver in self._writers():
            driver.feed(given)

    def _on_durable(self, log: str, durable: int) -> None:
        for driver in self._writers():
            driver.take(Appended(log, durable))

    def _on_fault(self, role: Role, error: Exception) -> None:
        """Stop after a defect in a role that keeps a state."""
        _log.error("the %s failed", role.name, exc_info=error)
        if self.storage is not None:
            self.storage.end()
        self._fail(
            WanderbusError(
                f"the {role.name} failed ({error!r}); start the server again: the log has what it acknowledged"
            )
        )

    def _fail(self, error: WanderbusError) -> None:
        """End :meth:`run` with ``error``."""
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)


class _RunningRole:
    """A role with everything that the host made for it."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.state: LoggedState | None = None
        self.driver: Driver | None = None
        self._loading: asyncio.Task[None] | None = None

    def feed(self, given: Input) -> None:
        """Pass an input to the machine; a machine that is not made yet gets nothing."""
        if self.driver is not None:
            self.driver.feed(given)

    def load_kernel(self, wanted: Kernel) -> None:
        """Load a matching kernel in another thread, and pass it to the machine."""

        async def load() -> None:
            self.feed(KernelLoaded(await loaded_kernel(wanted)))

        self._loading = asyncio.create_task(load())

    def close(self) -> None:
        """Close the sockets, so that nothing arrives any more, and what the role opened."""
        if self.driver is not None:
            self.driver.close()
        self.role.close()

    async def end(self) -> None:
        """Wait until nothing of this role is under way."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        await asyncio.sleep(0)  # connections that were just being accepted end in the next turn
