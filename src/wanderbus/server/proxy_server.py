"""Registrar and proxy in a process without a broker; brokers in other processes are its user agents (DESIGN 6.4)."""

from __future__ import annotations

import asyncio
import shutil
from types import TracebackType
from typing import Self, Unpack

from wanderbus.config import ProxyArguments, ProxySettings
from wanderbus.machine import Address
from wanderbus.runtime.files.file_modes import warn_if_open
from wanderbus.runtime.files.users_file import follow
from wanderbus.runtime.net.descriptors import allow_files
from wanderbus.runtime.net.sip_trace import SipRecorder
from wanderbus.server import validation
from wanderbus.server.sip_role import SIPService
from wanderbus.settings.reading import make
from wanderbus.sip.proxy.routing_script import RoutingScript


class ProxyServer:
    """Registrar and proxy of one domain on one address; an async context manager that serves while it is entered.

    Its keyword arguments are the keys of a file of settings; ``domain``, ``data_dir`` and ``users`` must be given.

    :param routing: decides where the proxy sends requests (:mod:`wanderbus.sip.proxy.routing_script`); None: to the
        user
    :raises ConfigurationError: a given setting cannot be used
    """

    def __init__(self, *, routing: RoutingScript | None = None, **given: Unpack[ProxyArguments]) -> None:
        settings = self._settings = make(ProxySettings, given)
        validation.check_proxy(settings)
        self._secrets = validation.secrets(settings, taken=None)
        self._following: asyncio.Task[None] | None = None
        self._routing = routing
        self._recorder: SipRecorder | None = None
        self._sip: SIPService | None = None
        self.address: Address = (settings.host, settings.port)
        """Its address for UDP and TCP, once started."""
        self.tls_address: Address | None = None
        """Its address for TLS, once started; None without a certificate."""

    async def __aenter__(self) -> Self:
        allow_files()
        trace = self._settings.sip_trace
        self._recorder = None if trace is None else SipRecorder.open(trace)
        self._sip = SIPService(self._settings, self._secrets, routing=self._routing, recorder=self._recorder)
        is_new = not self._settings.data_dir.exists()
        warn_if_open(self._settings.data_dir, "registrations and keys")
        try:
            await self._sip.start()
        except BaseException:
            await self.close()
            if is_new:
                shutil.rmtree(self._settings.data_dir, ignore_errors=True)
            raise
        self.address, self.tls_address = self._sip.address, self._sip.tls_address
        self._following = follow(self._secrets)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop serving; registrations are on disk."""
        if self._following is not None:
            self._following.cancel()
        if self._sip is not None:
            await self._sip.close()
        if self._recorder is not None:
            self._recorder.close()
        self._sip = self._recorder = None
