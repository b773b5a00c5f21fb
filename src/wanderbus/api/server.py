"""A server in this process: SIP registrar and proxy, broker, event log (DESIGN 1).

::

    async with Server(domain="localhost", data_dir=Path("data"), users={"alice": "secret"}) as server:
        print(server.address)
        await server.run()          # until something breaks or the task is cancelled
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack, cast

import msgspec

from wanderbus.api import checking
from wanderbus.broker.core import (
    Append,
    Appended,
    Broker,
    DiskFreed,
    DiskFull,
    KernelLoaded,
    KernelWanted,
    SubscriptionUnreadable,
    UserStatusChanged,
)
from wanderbus.broker.custom import Kind, Kinds
from wanderbus.config import ServerArguments, ServerSettings
from wanderbus.config.reading import make
from wanderbus.domain.access_server import (
    DATA_SOCKET,
    ECI_SOCKET,
    SIP_SOCKET,
    STREAM_SOCKET,
    AccessServer,
    BrokerRegistered,
    BrokerUnregistered,
    ChannelRefused,
)
from wanderbus.domain.baseline import Baseline
from wanderbus.errors import ConfigurationError, StorageError, Unreachable, WanderbusError
from wanderbus.machine import Address, Output, shown
from wanderbus.matching import SCANNED_MAX, Kernel, load_kernel
from wanderbus.mobility.properties import Properties
from wanderbus.runtime.ambient import SystemRandom, wall_us
from wanderbus.runtime.certificate import own_certificate
from wanderbus.runtime.committer import Committer
from wanderbus.runtime.config_files import settings_in
from wanderbus.runtime.driver import Driver, Unmade
from wanderbus.runtime.registrations import Registrations
from wanderbus.runtime.server_files import Identity, ServerFiles
from wanderbus.runtime.sip_listening import listen_for_sip
from wanderbus.runtime.sip_trace import SipRecorder
from wanderbus.runtime.streams import DATA_STREAM_LIMITS
from wanderbus.runtime.tls import client_tls, server_tls
from wanderbus.runtime.trace_file import TraceFile
from wanderbus.sip.digest import Authenticator
from wanderbus.sip.flood import DEFAULT_LIMITS
from wanderbus.sip.location import BindingsWritten
from wanderbus.sip.routing import RoutingFailed, RoutingScript
from wanderbus.sip.server import SIPServer
from wanderbus.sip.trace import Trace

_log = logging.getLogger("wanderbus.server")

SAVE_S = 1.0
"""Pause between two savings of the state that is derived from the log."""

START_S_MAX = 10.0
"""How long the broker's own registration may take."""


class Server:
    """Registrar, proxy and broker of one domain on one address; an async context manager.

    Its keyword arguments are the keys of a file of settings; ``domain``, ``data_dir`` and ``users`` must be given.
    docs/configuration.md lists them, and so does ``wanderbus config sample broker``.

    :param routing: decides where the proxy sends requests (:mod:`wanderbus.sip.routing`); None: to the user
    :param restrictions: kinds of restriction besides those that are built in, by their names (SPEC H-10)
    :raises ConfigurationError: what is given cannot be used
    """

    def __init__(
        self,
        *,
        routing: RoutingScript | None = None,
        restrictions: Mapping[str, Kind] | None = None,
        **given: Unpack[ServerArguments],
    ) -> None:
        settings = self._settings = make(ServerSettings, given)
        self.domain = settings.domain.lower()
        self.broker_uri = checking.broker_uri(settings)
        checking.check_channels(settings)
        self.address: Address = (settings.host, settings.port)
        """Where registrar and proxy listen, over UDP and TCP, once started."""
        self.tls_address: Address | None = None
        """Where they listen over TLS, once started; None without a certificate."""
        self.eci_address = None if settings.eci_port is None else (settings.eci_host, settings.eci_port)
        """Where the original ECI is served, once started; None if it is not."""
        self._routing = routing
        self._kinds = Kinds(restrictions)
        self._random = SystemRandom()
        self._passwords = {**checking.passwords(settings), checking.BROKER: self._random.token(16).hex()}
        self._broker_config = checking.broker_config(settings)
        self._recorder: SipRecorder | None = None
        self._registrations: Registrations | None = None
        self._drivers: list[Driver] = []
        self._files: ServerFiles | None = None
        self._committer: Committer | None = None
        self._save_timer: asyncio.TimerHandle | None = None
        self._loading: asyncio.Task[None] | None = None

    @classmethod
    def from_file(
        cls,
        file: Path | str,
        *,
        routing: RoutingScript | None = None,
        restrictions: Mapping[str, Kind] | None = None,
        **given: Unpack[ServerArguments],
    ) -> Self:
        """Return a server with the settings of a TOML file; what is given here comes before them."""
        settings = cast(ServerArguments, settings_in(ServerSettings, Path(file)) | given)
        return cls(routing=routing, restrictions=restrictions, **settings)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._broken: asyncio.Future[None] = loop.create_future()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._registered = self._kept = False
        self._shortage = ""
        try:
            await self._start()
            await asyncio.wait((self._ready, self._broken), timeout=START_S_MAX, return_when=asyncio.FIRST_COMPLETED)
            if self._broken.done():
                self._broken.result()
            if self._shortage and not self._kept:
                raise StorageError(f"the disk is full, make room and start again: {self._shortage}")
            if not self._ready.done():
                raise Unreachable(f"the broker could not register with its own server on {self.address[0]}")
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(self) -> None:
        """Serve until cancelled; :class:`StorageError` when the disk fails, after which nothing is acknowledged."""
        await asyncio.shield(self._broken)

    async def close(self) -> None:
        """Stop serving; what was acknowledged is on disk, agents stay in their sessions until the next start."""
        if self._save_timer is not None:
            self._save_timer.cancel()
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        for driver in self._drivers:
            driver.close()
        self._drivers.clear()
        if self._committer is not None:
            self._save()
            await asyncio.to_thread(self._committer.stop)
            self._committer = None
        if self._registrations is not None:
            self._registrations.close()
            self._registrations = None
        if self._files is not None:
            self._files.close()
            self._files = None
        if self._recorder is not None:
            self._recorder.close()
            self._recorder = None

    async def _start(self) -> None:
        files = self._files = ServerFiles.open(self._settings.data_dir)
        config = msgspec.structs.replace(self._broker_config, server=files.identity.server)
        state = files.load_state(config.publishes_remembered)
        # Nobody is kept waiting yet, and with few subscriptions nobody may ever need a kernel.
        kernel = await _loaded_kernel() if len(state.subscriptions) > SCANNED_MAX else None
        self._broker = Broker(state, config, self._kinds, kernel)
        self._committer = Committer(
            files.log,
            files.store,
            on_durable=self._durable,
            on_failure=self._failed,
            on_full=self._disk_full,
            on_room=self._disk_freed,
            reserve_bytes=self._settings.disk_reserve_bytes,
        )
        trace = self._settings.sip_trace
        self._recorder = None if trace is None else SipRecorder(Trace(), TraceFile.open(trace))
        self._registrations = Registrations.open(self._settings.data_dir / "registrations.db")
        self._start_registrar(self._registrations)
        self._start_access(files)
        self._save_timer = asyncio.get_running_loop().call_later(SAVE_S, self._save_again)

    def _start_registrar(self, registrations: Registrations) -> None:
        """The machine has to know its address, so a free port is taken before it is made."""
        settings = self._settings
        tap = None if self._recorder is None else self._recorder.tap()
        driver = Driver(Unmade(), self._report, tap=tap)
        self._drivers.append(driver)
        secure = None if settings.tls_certificate is None else server_tls(settings.tls_certificate, settings.tls_key)
        self.address, streams = listen_for_sip(
            driver,
            "sip",
            self.address,
            tcp=settings.tcp,
            tls_port=settings.tls_port,
            server_tls=secure,
            client_tls=None if secure is None else client_tls(),
        )
        self.tls_address = streams.get("TLS")
        if tap is not None:
            tap.hears("sip", self.address, streams)
        machine = SIPServer(
            self.domain,
            self.address,
            self._passwords.get,
            self._random,
            self._random.token(32),
            streams=streams,
            routing=self._routing,
            flood=settings.flood or DEFAULT_LIMITS,
        )
        driver.machine = machine
        # The broker is in this process and registers itself; where it was before is of no use to anybody.
        driver.perform(registrations.restore_into(machine, without=self.broker_uri))

    def _start_access(self, files: ServerFiles) -> None:
        host = self.address[0]
        tap = None if self._recorder is None else self._recorder.tap()
        driver = Driver(Unmade(), self._report, wall_clock=True, tap=tap, on_fault=self._broke)
        self._drivers.append(driver)
        certificate = own_certificate(self._settings.data_dir)
        bound = self._bind_access(driver, host, files.identity, certificate.file)
        if tap is not None:
            tap.hears(SIP_SOCKET, bound[SIP_SOCKET])
        files.keep_ports(*(bound[name][1] for name in (SIP_SOCKET, DATA_SOCKET, STREAM_SOCKET)))
        access = AccessServer(
            Properties(uri=self.broker_uri, server=self.address, password=self._passwords[checking.BROKER]),
            self._broker,
            self._random,
            sip_address=bound[SIP_SOCKET],
            data_address=bound[DATA_SOCKET],
            stream_address=bound[STREAM_SOCKET],
            authenticator=Authenticator(self.domain, self._passwords.get, self._random.token(32)),
            encryption=self._settings.encryption,
            reset_key=files.reset_key,
            fingerprint=certificate.fingerprint if self._settings.encryption else b"",
            rudp=self._settings.rudp,
            tcp=self._settings.tcp_channels,
            baseline=None if self.eci_address is None else Baseline(self._settings.eci),
        )
        self._bind_eci(driver)
        driver.machine = access
        self._access_driver = driver
        driver.perform(access.start(wall_us(), asyncio.get_running_loop().time()))

    def _bind_access(self, driver: Driver, host: str, identity: Identity, certificate: Path) -> dict[str, Address]:
        """Take the ports that agents know; if another program has them by now, agents call again and find new ones."""
        ports = (identity.broker_port, identity.data_port, identity.stream_port)
        try:
            return self._bind_ports(driver, host, ports, certificate)
        except OSError as error:
            _log.warning("ports %s, %s and %s of before cannot be had (%s), others are taken", *ports, error.strerror)
        try:
            return self._bind_ports(driver, host, (0, 0, 0), certificate)
        except OSError as error:
            raise ConfigurationError(f"no port can be had on {host}: {error.strerror}") from None

    def _bind_eci(self, driver: Driver) -> None:
        if self.eci_address is None:
            return
        try:
            self.eci_address = driver.bind({ECI_SOCKET: self.eci_address})[ECI_SOCKET]
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigurationError(
                f"UDP port {shown(self.eci_address)} cannot be used: {reason}; give another with --eci-port"
            ) from None

    def _bind_ports(
        self, driver: Driver, host: str, ports: tuple[int, int, int], certificate: Path
    ) -> dict[str, Address]:
        sip, data, stream = ((host, port) for port in ports)
        bound = driver.bind({SIP_SOCKET: sip, DATA_SOCKET: data})
        kind, tls = ("TLS", server_tls(certificate)) if self._settings.encryption else ("TCP", None)
        streams = driver.bind_streams(STREAM_SOCKET, {kind: stream}, server_tls=tls, limits=DATA_STREAM_LIMITS)
        return {**bound, STREAM_SOCKET: streams[kind]}

    def _report(self, output: Output) -> None:
        match output:
            case Append(entries=entries, urgent=urgent):
                if self._committer is not None:
                    self._committer.append(entries, urgent=urgent)
            case BindingsWritten(aor=aor, bindings=bindings):
                if self._registrations is not None:
                    self._registrations.note(aor, bindings)
            case RoutingFailed(method=method, error=error):
                _log.warning("the routing script failed for %s: %s", method, error)
            case BrokerRegistered():
                self._registered = True
                self._check_ready()
            case BrokerUnregistered(status=status, reason=reason):
                _log.warning("the broker is not registered: %s %s", status, reason)
            case ChannelRefused(user=user, reason=reason):
                _log.warning("the data channel of %s is refused: %s", user, reason)
            case UserStatusChanged(user=user, status=status):
                _log.info("%s is %s", user, status)
            case KernelWanted():
                self._loading = asyncio.create_task(self._load_kernel())
            case SubscriptionUnreadable(subscription=subscription, reason=reason):
                _log.error("the subscription %s cannot be read any more, it hears of nothing: %s", subscription, reason)

    async def _load_kernel(self) -> None:
        self._access_driver.feed(KernelLoaded(await _loaded_kernel()))

    def _check_ready(self) -> None:
        """The server is ready when the broker can be called, and has seen its disk keep a record."""
        if self._registered and self._kept and not self._ready.done():
            self._ready.set_result(None)

    def _durable(self, durable: int) -> None:
        self._kept = True
        self._check_ready()
        self._access_driver.take(Appended(durable))

    def _disk_full(self, reason: str) -> None:
        self._shortage = reason
        _log.error("the disk is full, new events and subscriptions are refused until there is room: %s", reason)
        self._access_driver.feed(DiskFull())

    def _disk_freed(self) -> None:
        self._shortage = ""
        _log.warning("the disk has room again, events are taken as before (%s)", self._settings.data_dir)
        self._access_driver.feed(DiskFreed())

    def _failed(self, error: Exception) -> None:
        self._committer = None
        if not self._broken.done():
            self._broken.set_exception(
                StorageError(f"writing to {self._settings.data_dir} failed, nothing more is acknowledged: {error}")
            )

    def _broke(self, error: Exception) -> None:
        """A fault of our own in the broker: its memory can no longer be trusted, its log can."""
        _log.error("the broker failed", exc_info=error)
        committer = self._committer
        self._committer = None
        if committer is not None:
            committer.stop()
        if not self._broken.done():
            self._broken.set_exception(
                WanderbusError(f"the broker failed ({error!r}); start it again, what it acknowledged is in the log")
            )

    def _save_again(self) -> None:
        self._save()
        self._save_timer = asyncio.get_running_loop().call_later(SAVE_S, self._save_again)

    def _save(self) -> None:
        changes = self._broker.state.changes()
        if changes and self._committer is not None:
            self._committer.save(changes, self._broker.state.offset)


async def _loaded_kernel() -> Kernel:
    """Load in a thread what matches many subscriptions: for a second or more the loop has other things to do."""
    kernel = await asyncio.to_thread(load_kernel)
    if kernel != "numba":
        _log.warning("numba cannot be loaded, subscriptions are matched by %s, which takes longer", kernel)
    return kernel
