"""Broker role of a server: its event log and state, its user agent, and the data channels of agents (DESIGN 1)."""

from __future__ import annotations

import asyncio
import logging
import ssl
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import msgspec

from wanderbus.broker.core import (
    Append,
    Appended,
    Broker,
    DiskFreed,
    DiskFull,
    ExtensionFailed,
    KernelLoaded,
    KernelWanted,
    ServerAnswered,
    ServerAsked,
    SubscriptionUnread,
    SubscriptionUnreadable,
    UserStatusChanged,
)
from wanderbus.config import ServerSettings
from wanderbus.domain.access_server import (
    DATA_SOCKET,
    ECI_SOCKET,
    SIP_SOCKET,
    STREAM_SOCKET,
    AccessServer,
)
from wanderbus.domain.baseline import Baseline
from wanderbus.domain.device_signalling import REGISTRATION_REFUSALS
from wanderbus.domain.messages import BrokerRegistered, BrokerUnregistered, ChannelRefused
from wanderbus.errors import AuthenticationError, ConfigurationError, NoResponse, StorageError, WanderbusError
from wanderbus.machine import Address, Output, shown
from wanderbus.matching import SCANNED_MAX, Kernel, load_kernel
from wanderbus.mobility.properties import Properties
from wanderbus.parameters.broker import BrokerConfig
from wanderbus.parameters.transports import DATA_STREAM_LIMITS
from wanderbus.refusal_table import Limited
from wanderbus.runtime.files.server_files import ServerFiles
from wanderbus.runtime.limit_log import Refusals
from wanderbus.runtime.log.committer import Committer
from wanderbus.runtime.net.certificate import own_certificate
from wanderbus.runtime.net.driver import Driver, Unmade
from wanderbus.runtime.net.sip_listening import listen_for_sip
from wanderbus.runtime.net.sip_trace import SipRecorder
from wanderbus.runtime.net.tls import server_tls
from wanderbus.runtime.system_random import SystemRandom, wall_us
from wanderbus.server.extensions import Extensions
from wanderbus.settings.bounds import bounds_of
from wanderbus.sip.authentication.digest import Authenticator, Secret
from wanderbus.sip.authentication.login_guard import LoginGuard, LoginLimits, LoginRefused
from wanderbus.sip.transaction.flood_limits import FloodLimits

_log = logging.getLogger("wanderbus.server")

SAVE_S = 1.0
"""Pause between two saves of the state that is derived from the log."""

DATA_CHANNEL = "data_channel"
"""Name of the limit in a report of a data channel that does not meet the requirements."""

START_S_MAX = 10.0
"""Timeout for the broker's own registration."""


class BrokerService:
    """The broker: :meth:`open` makes it, :meth:`start` accepts agents, :meth:`close` stops it."""

    def __init__(
        self,
        settings: ServerSettings,
        users: Mapping[str, Secret],
        recorder: SipRecorder | None,
        files: ServerFiles,
        broker: Broker,
        refusals: Refusals,
    ) -> None:
        self._settings = settings
        self._users = users
        self._recorder = recorder
        self.files = files
        self.broker = broker
        self.eci_address = None if settings.eci_port is None else (settings.eci_host, settings.eci_port)
        """Address of the original ECI, once started; None if it is not served."""
        self.sip_address: Address = (settings.host, 0)
        """Address of its user agent, once started."""
        loop = asyncio.get_running_loop()
        self.broken: asyncio.Future[None] = loop.create_future()
        """Future that fails with the error after which nothing is acknowledged any more."""
        self._ready: asyncio.Future[None] = loop.create_future()
        self._registered = self._kept = False
        self._shortage = self._trouble = ""
        self._failures_logged: dict[str, int] = {}
        """Number of failures at the last log line, by extension."""
        self._refusals = refusals
        self._bounds = bounds_of(settings)
        self._driver: Driver | None = None
        self._save_timer: asyncio.TimerHandle | None = None
        self._loading: asyncio.Task[None] | None = None
        self._committer: Committer | None = Committer(
            files.log,
            files.store,
            on_durable=self._on_durable,
            on_failure=self._on_failure,
            on_full=self._on_disk_full,
            on_room=self._on_disk_freed,
            reserve_bytes=settings.disk_reserve_bytes,
        )

    @classmethod
    async def open(
        cls,
        settings: ServerSettings,
        config: BrokerConfig,
        extensions: Extensions,
        users: Mapping[str, Secret],
        recorder: SipRecorder | None,
        refusals: Refusals,
    ) -> Self:
        """Open the data directory, and bring the state up to date; :class:`StorageError` if it cannot be used.

        :param users: the secret of each user, with which the broker authenticates callers
        :param refusals: the table of refusals of this process, which operators can list
        """
        files = ServerFiles.open(settings.data_dir)
        try:
            state = files.load_state(config.publishes_remembered)
            # Loading now delays nobody; a few subscriptions need no kernel.
            kernel = await _loaded("numpy") if len(state.subscriptions) > SCANNED_MAX else None
            named = msgspec.structs.replace(config, server=files.identity.server)
            broker = Broker(state, named, extensions.restrictions, kernel, extensions.hook, extensions.policies)
        except BaseException:
            files.close()
            raise
        return cls(settings, users, recorder, files, broker, refusals)

    async def start(self, properties: Properties, tls: ssl.SSLContext | None = None) -> None:
        """Register with ``properties``; ``tls`` verifies the SIP server. Return when agents can call.

        :raises AuthenticationError: the SIP server rejects the broker
        :raises NoResponse: it does not answer
        :raises ConfigurationError: a port cannot be used
        :raises StorageError: the disk is full
        """
        self._properties = msgspec.structs.replace(properties, instance=_instance(properties.uri, self.files))
        self._start_access(self._properties, tls)
        self._save_timer = asyncio.get_running_loop().call_later(SAVE_S, self._save_again)
        await asyncio.wait((self._ready, self.broken), timeout=START_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        if self.broken.done():
            self.broken.result()
        if self._shortage and not self._kept:
            raise StorageError(f"the disk is full; free some space and start again: {self._shortage}")
        if not self._ready.done():
            raise NoResponse(
                f"the SIP server {shown(properties.server)} does not answer the broker {properties.uri} in "
                f"{START_S_MAX:g} s{self._trouble}; check that it runs, and sip_server"
            )
        self._ready.result()

    async def close(self) -> None:
        """Stop; what was acknowledged is on disk, agents stay in their sessions until the next start."""
        if self._save_timer is not None:
            self._save_timer.cancel()
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        if self._driver is not None:
            self._driver.close()
        if self._committer is not None:
            self._save()
            await asyncio.to_thread(self._committer.stop)
            self._committer = None
        self.files.close()

    def _start_access(self, properties: Properties, tls: ssl.SSLContext | None) -> None:
        tap = None if self._recorder is None else self._recorder.tap()
        driver = self._driver = Driver(Unmade(), self._report, wall_clock=True, tap=tap, on_fault=self._on_fault)
        certificate = own_certificate(self._settings.data_dir)
        bound = self._bind(driver, properties.transport, certificate.file, tls)
        self.sip_address = bound[SIP_SOCKET]
        if tap is not None:
            tap.hears(SIP_SOCKET, self.sip_address)
        self.files.keep_ports(*(bound[name][1] for name in (SIP_SOCKET, DATA_SOCKET, STREAM_SOCKET)))
        advertised = {name: (self._settings.advertise or host, port) for name, (host, port) in bound.items()}
        random = SystemRandom()
        access = AccessServer(
            properties,
            self.broker,
            random,
            sip_address=advertised[SIP_SOCKET],
            data_address=advertised[DATA_SOCKET],
            host=bound[DATA_SOCKET][0],
            stream_address=advertised[STREAM_SOCKET],
            authenticator=Authenticator(
                self._settings.domain.lower(),
                self._users.get,
                random.token(32),
                algorithms=self._settings.digest_algorithms,
                guard=LoginGuard(self._settings.logins or LoginLimits(), proxies={properties.server[0]}),
            ),
            flood=self._settings.flood or FloodLimits(),
            encryption=self._settings.encryption,
            reset_key=self.files.reset_key,
            fingerprint=certificate.fingerprint if self._settings.encryption else b"",
            rudp=self._settings.rudp,
            tcp=self._settings.tcp_channels,
            baseline=self._make_baseline(random),
        )
        self._refusals.counted["data"] = access.dropped
        self._bind_eci(driver)
        driver.machine = access
        driver.perform(access.start(wall_us(), asyncio.get_running_loop().time()))

    def _bind(
        self, driver: Driver, transport: str, certificate: Path, tls: ssl.SSLContext | None
    ) -> dict[str, Address]:
        """Bind the previous ports, which agents know, or new ones if other programs use them; agents then call again.

        A port that the settings name is never replaced.
        """
        settings, known = self._settings, self.files.identity
        host = settings.host

        def bind(wanted: int | None, previous: int, listen: Callable[[int], Address]) -> Address:
            if wanted is not None:
                return listen(wanted)
            try:
                return listen(previous)
            except OSError as error:
                _log.warning("cannot bind the previous port %s (%s); using another", previous, error.strerror)
                return listen(0)

        def for_sip(port: int) -> Address:
            # The SIP server may connect to us, as it must after its restart; over TLS that would need a certificate.
            return listen_for_sip(
                driver,
                SIP_SOCKET,
                (host, port),
                tcp=transport == "TCP",
                client_tls=tls,
                limits=settings.sip_connections,
            )[0]

        def for_data(port: int) -> Address:
            return driver.bind({DATA_SOCKET: (host, port)})[DATA_SOCKET]

        def for_streams(port: int) -> Address:
            kind, own = ("TLS", server_tls(certificate)) if settings.encryption else ("TCP", None)
            wanted = {kind: (host, port)}
            limits = settings.data_connections or DATA_STREAM_LIMITS
            return driver.bind_streams(STREAM_SOCKET, wanted, server_tls=own, limits=limits)[kind]

        try:
            return {
                SIP_SOCKET: bind(settings.broker_port, known.broker_port, for_sip),
                DATA_SOCKET: bind(settings.data_port, known.data_port, for_data),
                STREAM_SOCKET: bind(settings.stream_port, known.stream_port, for_streams),
            }
        except OSError as error:
            reason = f"{error.strerror}; look at broker_port, data_port, stream_port"
            raise ConfigurationError(f"cannot bind the broker's ports on {host}: {reason}") from None

    def _make_baseline(self, random: SystemRandom) -> Baseline | None:
        given = self._settings
        return None if given.eci_port is None else Baseline(given.eci, key=random.token(32), flood=given.flood)

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

    def _report(self, output: Output) -> None:
        match output:
            case Append(entries=entries, urgent=urgent):
                if self._committer is not None:
                    self._committer.append(entries, urgent=urgent)
            case BrokerRegistered():
                self._registered = True
                self._check_ready()
            case BrokerUnregistered(status=status, reason=reason):
                self._on_unregistered(status, reason)
            case ChannelRefused(user=user, reason=reason, limit=limit):
                self._refusals.note(Limited(limit or DATA_CHANNEL, user, f"no data channel: {reason}"))
            case Limited() | LoginRefused():
                self._refusals.note(output)
            case ServerAsked(request=request):
                rows = self._bounds if request.what == "bounds" else self._refusals.rows(self._bounds)
                self._feed(ServerAnswered(output, rows))
            case UserStatusChanged(user=user, status=status):
                _log.info("%s is %s", user, status)
            case KernelWanted(kernel=kernel):
                self._loading = asyncio.create_task(self._load_kernel(kernel))
            case SubscriptionUnreadable(subscription=subscription, reason=reason):
                _log.error("cannot parse the stored subscription %s, no event matches it: %s", subscription, reason)
            case SubscriptionUnread():
                _log.warning("%s", _unread(output))
            case ExtensionFailed(count=count, reason=reason):
                self._on_extension_failed(count, reason)

    def _on_extension_failed(self, count: int, reason: str) -> None:
        """Log the first failure, and then one each time that their number has doubled."""
        kind = reason.partition(":")[0]
        if count >= self._failures_logged.get(kind, 0) * 2:
            self._failures_logged[kind] = count
            _log.warning("code of the operator failed %s times so far: %s", count, reason)

    def _on_unregistered(self, status: int | None, reason: str) -> None:
        """Log that the broker is not registered; a rejection of the first registration ends the start."""
        response = reason if status is None else f"{status} {reason}".rstrip()
        if status not in REGISTRATION_REFUSALS or self._ready.done():
            _log.warning("the broker is not registered: %s", response)
            self._trouble = f" ({response})"
            return
        server, uri = shown(self._properties.server), self._properties.uri
        advice = "check that user's password, and that the server has such a user"
        if self._properties.password is None:
            advice = "give that user's password with --broker-password-file, or a line in users"
        self._ready.set_exception(AuthenticationError(f"the SIP server {server} rejects {uri}: {response}; {advice}"))

    async def _load_kernel(self, wanted: Kernel) -> None:
        self._feed(KernelLoaded(await _loaded(wanted)))

    def _feed(self, given: DiskFull | DiskFreed | KernelLoaded | ServerAnswered) -> None:
        if self._driver is not None:
            self._driver.feed(given)

    def _check_ready(self) -> None:
        """Report the server as ready when the broker is registered and a first record is durable."""
        if self._registered and self._kept and not self._ready.done():
            self._ready.set_result(None)

    def _on_durable(self, durable: int) -> None:
        self._kept = True
        self._check_ready()
        if self._driver is not None:
            self._driver.take(Appended(durable))

    def _on_disk_full(self, reason: str) -> None:
        self._shortage = reason
        _log.error("the disk is full, new events and subscriptions are refused until there is room: %s", reason)
        self._feed(DiskFull())

    def _on_disk_freed(self) -> None:
        self._shortage = ""
        _log.warning("the disk has room again, events are accepted again (%s)", self._settings.data_dir)
        self._feed(DiskFreed())

    def _on_failure(self, error: Exception) -> None:
        self._committer = None
        if not self.broken.done():
            self.broken.set_exception(
                StorageError(f"writing to {self._settings.data_dir} failed, nothing more is acknowledged: {error}")
            )

    def _on_fault(self, error: Exception) -> None:
        """Stop after a defect in the broker: its memory can no longer be trusted, but its log can."""
        _log.error("the broker failed", exc_info=error)
        committer = self._committer
        self._committer = None
        if committer is not None:
            committer.stop()
        if not self.broken.done():
            self.broken.set_exception(
                WanderbusError(
                    f"the broker failed ({error!r}); start the server again: the log has what it acknowledged"
                )
            )

    def _save_again(self) -> None:
        self._save()
        self._save_timer = asyncio.get_running_loop().call_later(SAVE_S, self._save_again)

    def _save(self) -> None:
        changes = self.broker.state.changes()
        if changes and self._committer is not None:
            self._committer.save(changes, self.broker.state.offset)


def _instance(uri: str, files: ServerFiles) -> str:
    """Return the instance id of this broker for a registrar, stable over restarts (RFC 5626 4.1)."""
    return f"<{uuid.uuid5(uuid.NAMESPACE_URL, f'{uri};server={files.identity.server}').urn}>"


def _unread(unread: SubscriptionUnread) -> str:
    waits = f"{unread.waiting} notifications wait for subscription {unread.subscription} of {unread.user}"
    if unread.device is None:
        return f"{waits} in session {unread.session}, which nobody has read for {unread.since_s:.0f} s"
    return f"{waits}: its reader on device {unread.device} has acknowledged nothing for {unread.since_s:.0f} s"


async def _loaded(wanted: Kernel) -> Kernel:
    """Load a kernel in a thread, so that the event loop is not blocked."""
    kernel = await asyncio.to_thread(load_kernel, wanted)
    if kernel != wanted:
        _log.warning("cannot load the matching kernel %s; using %s, which is slower", wanted, kernel)
    return kernel
