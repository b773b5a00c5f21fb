"""``wanderbus domain up``: all servers of a domain as processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from wanderbus.cli.connection_options import AsJson
from wanderbus.cli.domain.options import FormerFile, SIPPort
from wanderbus.cli.domain.servers_asked import RESTART_ADVICE
from wanderbus.cli.domain.supervisor import Ready, ServerCannotRunError, Supervisor, SupervisorReports
from wanderbus.cli.output import (
    EndedBySignal,
    OutputClosed,
    OutputFailed,
    print_json,
    print_line,
    print_progress,
    print_progress_json,
    print_unchanged,
    run_async,
)
from wanderbus.cli.up import Admin, Users, check_admins
from wanderbus.errors import ConfigurationError, StorageError, WanderbusError
from wanderbus.runtime.files.disk import SYSTEM, make_directory
from wanderbus.runtime.files.domain_file import (
    FILE_NAME,
    SIP_PORT,
    SIZE_MAX,
    add_server,
    create_domain,
    data_directory,
    read_domain,
)
from wanderbus.runtime.files.file_modes import lock_file
from wanderbus.runtime.files.users_file import read_users
from wanderbus.runtime.process_arguments import arguments_of, parent_of
from wanderbus.settings.event_domain import EventDomainSettings

_DATA_DIR: Final = Path("wanderbus-domain")
_LOCK: Final = "running"
_PER_SERVER: Final = ("--host", "--port", "--data-dir", "--event-domain", "--event-server", "--event-key")
_FOR_ALL: Final = ("--users", "--admin", "--domain", "--json")
_NAME: Final = "localhost"

_LOOK_S: Final = 1.0
"""Pause until the file of the domain is looked at again."""

Commands = Callable[[EventDomainSettings], dict[str, list[str]]]
"""Returns the command lines of the servers of a domain."""

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Directory of the domain and of the data of its servers; created if missing.",
        show_default=f"that of --event-domain, else {_DATA_DIR}",
    ),
]
File = Annotated[
    Path | None,
    typer.Option("--event-domain", help="File of an existing domain.", show_default=f"{FILE_NAME} in --data-dir"),
]
Size = Annotated[
    int | None,
    typer.Option(min=1, max=SIZE_MAX, help="Number of servers; a domain with fewer grows.", show_default="1"),
]
Name = Annotated[str | None, typer.Option(help="SIP domain name of a new domain.", show_default=_NAME)]
Options = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- OPTION", help="Options of 'wanderbus up' for every server, behind --.", show_default=False
    ),
]


def up(
    options: Options = None,
    size: Size = None,
    name: Name = None,
    port: SIPPort = None,
    data_dir: DataDir = None,
    event_domain: File = None,
    config: FormerFile = None,
    users: Users = None,
    admin: Admin = None,
    json: AsJson = False,
) -> None:
    """Run all servers of a domain on this machine, and start a server again when it ends.

    Makes a new domain unless --data-dir has one already, or --event-domain names one. Prints "ready NAME
    sip:HOST:PORT" for each server, and a last line when all are ready; agents can connect to any of them. Warnings of
    the servers have their names in front. A line on standard error names the process of each server: 'kill PID'
    restarts it, and 'kill -STOP PID' suspends it until 'kill -CONT PID'. Ends on SIGINT or SIGTERM with all servers;
    the second signal kills them, which loses nothing. A domain on several machines needs 'wanderbus up --event-domain'
    on each instead.

    Example: wanderbus domain up --size 4 --users users.txt --admin alice

    Example: wanderbus domain up --event-domain mydomain/domain.toml --users users.txt -- --relay --verbose
    """
    _check_options(options or [])
    if users is None:
        raise ConfigurationError(
            "no users given; give --users FILE (lines of name:password, or written by 'wanderbus users add')"
        )
    check_admins(admin or [], users)
    given = event_domain or config
    directory = data_dir or (_DATA_DIR if given is None else given.parent)
    with _lock(directory):
        file = given or directory / FILE_NAME
        if given is None and not file.exists():
            create_domain(directory, name or _NAME, size or 1, SIP_PORT if port is None else port)
        domain = read_domain(file).settings
        _check_domain(domain, file, size, name, port)
        read_users(users, domain=domain.name)
        domain = _grown(domain, file, size or 0)
        for_all = ["--users", str(users), *(word for each in admin or [] for word in ("--admin", each))]

        def commands(domain: EventDomainSettings) -> dict[str, list[str]]:
            return {
                server: [
                    *(sys.executable, "-m", "wanderbus", "up", "--event-domain", str(file), "--event-server", server),
                    *("--data-dir", str(data_directory(directory, server)), "--json", *for_all, *(options or [])),
                ]
                for server in domain.present
            }

        try:
            run_async(_run(Supervisor(commands(domain), _Printed(domain, as_json=json)), file, commands))
        except ServerCannotRunError as error:
            raise WanderbusError(f"{error}; servers.{error.server} in {file} has its addresses") from None


def _grown(domain: EventDomainSettings, file: Path, size: int) -> EventDomainSettings:
    """Return the domain in ``file`` with at least ``size`` servers; add those that are missing."""
    while len(domain.present) < size:
        names = (f"s{number}" for number in range(1, len(domain.servers) + 2))
        added = next(name for name in names if name not in domain.servers)
        add_server(file, added)
        print_progress(f"{added} joins the domain")
        domain = read_domain(file).settings
    return domain


def _check_options(options: Sequence[str]) -> None:
    if options and not options[0].startswith("-"):
        raise ConfigurationError(f"unexpected argument {options[0]!r}; options of every server follow --")
    for option in options:
        name = option.partition("=")[0]
        if name in _PER_SERVER:
            raise ConfigurationError(f"{name} behind -- is set by 'domain up' for each server; leave it out")
        if name in _FOR_ALL:
            raise ConfigurationError(f"{name} behind -- is set by 'domain up' itself; give it in front of --")


def _check_domain(
    domain: EventDomainSettings, file: Path, size: int | None, name: str | None, port: int | None
) -> None:
    """Raise :class:`ConfigurationError` if the domain differs from the options, or a server has no place."""
    other = "leave the option out, or give another --data-dir for another domain"
    if size is not None and size < len(domain.present):
        raise ConfigurationError(
            f"{file} describes {len(domain.present)} server(s), not {size}; {other}. 'domain remove' removes a server"
        )
    if name not in (None, domain.name):
        raise ConfigurationError(f"{file} describes the domain {domain.name}, not {name}; {other}")
    places: dict[str, str] = {}
    for server, described in domain.present.items():
        if described.sip is None:
            raise ConfigurationError(f"{file}: servers.{server}.sip is missing; add the address for agents, host:port")
        if (twin := places.setdefault(described.sip, server)) != server:
            raise ConfigurationError(f"{file}: servers.{server}.sip: {twin} has that address too; change one of them")
        if port and not described.sip.endswith(f":{port}"):
            raise ConfigurationError(f"{file}: servers.{server}.sip: {described.sip} has not the port {port}; {other}")


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Hold the lock of a domain's directory: one command at a time runs its servers."""
    try:
        make_directory(SYSTEM, directory, 0o700)
        descriptor = lock_file(directory / _LOCK)
    except OSError as error:
        raise StorageError(f"{directory} cannot be used: {error.strerror}; give another --data-dir") from None
    if descriptor is None:
        raise StorageError(
            f"the domain in {directory} runs already, by another 'domain up'; end that one, or give another --data-dir"
        )
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def runs_here(directory: Path) -> bool:
    """Return whether ``domain up`` runs the domain in ``directory``."""
    lock = directory / _LOCK
    try:
        descriptor = lock_file(lock) if lock.exists() else -1
    except OSError:
        return False
    if descriptor is not None and descriptor >= 0:
        os.close(descriptor)
    return descriptor is None


def is_supervised(directory: Path, server: str, pid: int) -> bool:
    """Return whether ``domain up`` runs the domain in ``directory``, and process ``pid`` here is its ``server``.

    The id that a server in a container names may be that of another process here, and somebody may have started the
    server by itself.
    """
    try:
        is_parent = runs_here(directory) and (directory / _LOCK).read_text() == str(parent_of(pid))
    except OSError:
        return False
    return is_parent and server in arguments_of(pid)


async def _run(supervisor: Supervisor, file: Path, commands: Commands) -> None:
    """Run the servers until SIGINT, SIGTERM or SIGHUP; end them and return, after SIGHUP with its status."""
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        supervisor.stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A signal that the shell ignores (nohup, background job) stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, end, number)
    following = asyncio.create_task(_follow(supervisor, file, commands))
    try:
        await supervisor.run()
    finally:
        following.cancel()
    if received[:1] == [signal.SIGHUP]:
        raise EndedBySignal(signal.SIGHUP)


async def _follow(supervisor: Supervisor, file: Path, commands: Commands) -> None:
    """Run the servers that are in the file of the domain: some join, and some leave."""
    known = _content(file)
    while True:
        await asyncio.sleep(_LOOK_S)
        if (content := _content(file)) in (known, None):
            continue
        known = content
        try:
            domain = read_domain(file).settings
            _check_domain(domain, file, None, None, None)
        except WanderbusError as error:
            print_progress(f"{error}; the servers go on as before")
        else:
            supervisor.follow(commands(domain), domain.servers.keys() - domain.present.keys())


def _content(file: Path) -> bytes | None:
    """Return the content of a file, None as long as it cannot be read."""
    try:
        return file.read_bytes()
    except OSError:
        return None


class _Printed(SupervisorReports):
    """Prints ready lines on standard output, and everything else on standard error."""

    def __init__(self, domain: EventDomainSettings, *, as_json: bool) -> None:
        self._domain = domain
        self._as_json = as_json

    def ready(self, server: str, line: Ready) -> None:
        if self._as_json:
            self._print_json({"server": server, **line})
        else:
            places = (str(each) for key, each in line.items() if key not in ("broker", "pid"))
            self._print(" ".join(("ready", server, *places)))
            print_progress(f"{server} is process {line['pid']}; 'kill {line['pid']}' restarts it")

    def all_ready(self) -> None:
        servers = tuple(self._domain.present)
        if self._as_json:
            self._print_json({"all_ready": servers, "domain": self._domain.name})
        else:
            self._print(f"all servers of {self._domain.name} are ready: {', '.join(servers)}")

    def restarting(self, server: str, why: str, pause_s: float) -> None:
        self._note("restarting", f"server {server} {why}; it is started again in {pause_s:g} s")

    def joins(self, server: str) -> None:
        self._note("joins", f"{server} joins the domain; {RESTART_ADVICE}")

    def leaves(self, server: str) -> None:
        self._note("leaves", f"{server} has left the domain, and ends")

    def line(self, server: str, line: str) -> None:
        print_unchanged(f"{server}: {line}")

    def _note(self, word: str, line: str) -> None:
        if self._as_json:
            print_progress_json(word, line)
        else:
            print_progress(line)

    # The servers go on when nobody reads the output any more, or its disk is full.

    def _print(self, line: str) -> None:
        with contextlib.suppress(OutputClosed, OutputFailed):
            print_line(line)

    def _print_json(self, value: object) -> None:
        with contextlib.suppress(OutputClosed, OutputFailed):
            print_json(value)
