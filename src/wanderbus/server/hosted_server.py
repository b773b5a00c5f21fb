"""Base of the servers of this package, each of which hosts certain roles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from wanderbus.errors import ConfigurationError
from wanderbus.metrics import Sample
from wanderbus.refusals import Limited
from wanderbus.server.host import Host
from wanderbus.settings.server import ProxySettings
from wanderbus.sip.authentication.digest import Secret

if TYPE_CHECKING:
    from wanderbus.web.http_service import HttpService


class ProcessView:
    """View of a process for its pages: it has no samples until its host serves."""

    host: Host | None = None

    @property
    def is_serving(self) -> bool:
        """See :class:`wanderbus.web.monitoring.Monitored`."""
        return self.host is not None

    @property
    def failure(self) -> str:
        """See :class:`wanderbus.web.monitoring.Monitored`."""
        return "" if self.host is None else self.host.failure

    def samples(self) -> Sequence[Sample]:
        """See :class:`wanderbus.web.monitoring.Monitored`."""
        return () if self.host is None else self.host.samples()

    def note(self, limited: Limited) -> None:
        """See :class:`wanderbus.web.monitoring.Monitored`."""
        if self.host is not None:
            self.host.note(limited)


def http_of(
    settings: ProxySettings,
    view: ProcessView,
    secrets: Mapping[str, Secret],
    is_operator: Callable[[str], bool] | None = None,
) -> HttpService | None:
    """Return the pages that ``settings`` want, None without any; without ``is_operator`` on loopback alone.

    :raises ConfigurationError: the address cannot be used, or the extra is missing
    """
    if settings.http is None:
        return None
    try:
        from wanderbus.web.http_service import service_of  # only who serves pages needs its libraries
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"http: {error.name} is missing; install the extra: wanderbus[web]") from None
    return service_of(settings, view, secrets, is_operator)


class HostedServer(ABC):
    """Async context manager that runs a host with its roles while it is entered."""

    def __init__(self) -> None:
        self._host: Host | None = None
        """The host, while it runs."""
        self._http: HttpService | None = None

    @property
    def http_url(self) -> str | None:
        """Return the address of the pages for monitoring; None if none are served."""
        return None if self._http is None else self._http.url

    async def __aenter__(self) -> Self:
        view = ProcessView()
        http = self._http = self._make_http(view)
        if http is not None:
            await http.start()
        try:
            host = self._make_host()
            await host.start()
        except BaseException:
            self._http = None
            if http is not None:
                await http.close()
            raise
        self._host = view.host = host
        self._on_started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def run(self) -> None:
        """Serve until cancelled; :class:`StorageError` when the disk fails, after which nothing is acknowledged."""
        assert self._host is not None, "the server is not started"
        await self._host.run()

    async def close(self) -> None:
        """Stop serving; what was acknowledged is on disk, agents stay in their sessions until the next start."""
        host, self._host = self._host, None
        http, self._http = self._http, None
        if http is not None:
            await http.close()
        if host is not None:
            await host.close()

    @abstractmethod
    def _make_host(self) -> Host:
        """Return a host with new roles."""

    def _make_http(self, view: ProcessView) -> HttpService | None:
        """Return the pages about the process, which serve before its host starts; None without any."""
        return None

    @abstractmethod
    def _on_started(self) -> None:
        """Note the addresses in use."""
