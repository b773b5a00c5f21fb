"""Snapshot of a server: everything that its operator can ask it at one time, for ``wanderbus check`` and ``top``."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from wanderbus.cli.connection_options import ConnectionOptions
from wanderbus.cli.domain.servers_asked import ServerAnswer, ask_all, ask_lone, is_lone
from wanderbus.cli.operator.local_login import NoServerRuns
from wanderbus.client.operator import Operator
from wanderbus.errors import AuthenticationError, Refused, StorageError, Unreachable
from wanderbus.operator_rows import (
    DomainInfo,
    EngineInfo,
    LimitInfo,
    MetricInfo,
    ProcessInfo,
    QueueInfo,
    ServerInfo,
    SessionInfo,
)
from wanderbus.runtime.files.domain_file import FILE_NAME
from wanderbus.runtime.net.resolver import target_in
from wanderbus.runtime.system_random import wall_us
from wanderbus.sip.message.targets import PORTS

ROWS_MAX: Final = 50_000
"""Most rows of one listing in a snapshot; ``is_cut`` tells that there are more."""

_TLS_S_MAX: Final = 5.0
"""Timeout of looking at the certificate of a server."""

Row = TypeVar("Row")


class ServerState(msgspec.Struct, frozen=True):
    """Answers of a server to its operator, at the time ``at_us``."""

    at_us: int
    process: ProcessInfo
    metrics: Sequence[MetricInfo] = ()
    sessions: Sequence[SessionInfo] = ()
    queues: Sequence[QueueInfo] = ()
    limits: Sequence[LimitInfo] = ()
    engines: Sequence[EngineInfo] = ()
    servers: Sequence[ServerInfo] = ()
    domains: Sequence[DomainInfo] = ()
    is_cut: bool = False
    """True if a listing had more than :data:`ROWS_MAX` rows."""

    def metric(self, name: str, *labels: str) -> float | None:
        """Return the value of a metric, None if the server has none of this name with these labels."""
        return next((each.value for each in self.metrics if (each.metric, each.labels) == (name, labels)), None)

    def metrics_of(self, name: str) -> Sequence[MetricInfo]:
        """Return a metric with all its labels."""
        return [each for each in self.metrics if each.metric == name]


class Snapshot(msgspec.Struct, frozen=True):
    """A server, and its state; or the reason why that is unknown.

    ``is_refused`` is true if the server answered, but not to this user. ``certificate_s`` is the time for which its
    certificate is still valid, None if it shows none. ``log_warnings`` are about the log on this computer.
    """

    server: str
    state: ServerState | None
    error: str = ""
    is_refused: bool = False
    certificate_s: float | None = None
    log_warnings: Sequence[str] = ()


async def state_of(operator: Operator) -> ServerState:
    """Return the state of the server that an operator is connected to; :class:`Refused` without that role."""
    process = await operator.process()
    sessions = await _rows(operator.sessions())
    queues = await _rows(operator.queues())
    limits = await _rows(operator.limits())
    return ServerState(
        at_us=wall_us(),
        process=process,
        metrics=await _rows(operator.metrics()),
        sessions=sessions[:ROWS_MAX],
        queues=queues[:ROWS_MAX],
        limits=limits[:ROWS_MAX],
        engines=await _rows(operator.engine()),
        servers=await _rows(operator.servers()),
        domains=await _rows(operator.foreign_domains()),
        is_cut=max(len(sessions), len(queues), len(limits)) > ROWS_MAX,
    )


async def _rows(listing: AsyncIterator[Row]) -> list[Row]:
    """Return the first rows of a listing, one more than :data:`ROWS_MAX`."""
    found: list[Row] = []
    async for row in listing:
        found.append(row)
        if len(found) > ROWS_MAX:
            break
    return found


async def snapshots(connection: ConnectionOptions, file: Path | None) -> Sequence[Snapshot]:
    """Return a snapshot of the server that the options name, or of each server of the domain in ``file``.

    It takes at most twice ``--timeout``.

    :raises ConfigurationError: the options cannot be used
    """
    directory = connection.data_dir
    if file is None and directory is not None and (directory / FILE_NAME).is_file():
        file = directory / FILE_NAME
    try:
        lone = is_lone(connection, file) or (file is None and directory is not None)
        answers = await (ask_lone(connection, state_of) if lone else ask_all(connection, file, state_of))
    except (Unreachable, NoServerRuns) as error:
        return [Snapshot(str(directory or "the server"), None, str(error))]
    except (AuthenticationError, Refused) as error:
        return [Snapshot(str(directory or "the server"), None, str(error), is_refused=True)]
    return await asyncio.gather(*(_snapshot(answer) for answer in answers.values()))


async def _snapshot(answer: ServerAnswer[ServerState]) -> Snapshot:
    if answer.found is None:
        is_refused = isinstance(answer.failure, AuthenticationError | Refused)
        return Snapshot(_name(answer), None, answer.error or "", is_refused=is_refused)
    options = answer.connection
    certificate_s = None if options is None else await asyncio.to_thread(certificate_left_s, options)
    warnings = () if options is None or options.data_dir is None else await asyncio.to_thread(_log, options.data_dir)
    return Snapshot(_name(answer), answer.found, certificate_s=certificate_s, log_warnings=warnings)


def _log(data_dir: Path) -> Sequence[str]:
    """Return the warnings about the log of a server that runs here; none for the directory of a domain."""
    from wanderbus.server.log_status import log_status  # it needs the packages of a server

    with suppress(StorageError):
        return log_status(data_dir, wall_us()).warnings
    return ()


def _name(answer: ServerAnswer[ServerState]) -> str:
    return answer.server if answer.server == answer.address else f"{answer.server} at {answer.address}"


def certificate_left_s(connection: ConnectionOptions) -> float | None:
    """Return the time for which the certificate of a server is still valid; None if it has none for this connection.

    The certificate is not verified: also that of a server that nobody trusts any more has to be seen.
    """
    settings = connection.settings()
    is_tls = settings.transport == "tls" or (settings.transport is None and settings.uri.lower().startswith("sips:"))
    if not is_tls:
        return None
    from cryptography import x509  # few servers use TLS

    host, port = target_in(settings.server, default_port=PORTS["TLS"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), _TLS_S_MAX) as plain, context.wrap_socket(plain) as secure:
            shown = secure.getpeercert(binary_form=True)
    except OSError:
        return None  # the connection of the agent reports it
    if shown is None:
        return None
    end = x509.load_der_x509_certificate(shown).not_valid_after_utc
    return end.timestamp() - time.time()
