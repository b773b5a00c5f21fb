"""File of an event domain and the keys of its servers (SPEC J-01)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from wanderbus.errors import ConfigurationError
from wanderbus.rudp.keys import KeyPair
from wanderbus.runtime.files.config_files import settings_in
from wanderbus.runtime.files.disk import SYSTEM, make_directory, replace_file
from wanderbus.runtime.files.file_modes import warn_if_open
from wanderbus.runtime.files.kept_key import kept_key
from wanderbus.runtime.net.free_port import free_port
from wanderbus.settings.event_domain import KEY_BYTES, ROLES, EventDomain, EventDomainSettings
from wanderbus.settings.reading import make
from wanderbus.settings.writing import toml

FILE_NAME: Final = "domain.toml"
SIZE_MAX: Final = 250
SIP_PORT: Final = 5060
LINK_PORTS_ABOVE: Final = 541
"""Distance from the SIP port of a server to the port of its links to other servers, in a new domain."""

_PORT_MAX: Final = 2**16 - 1


def read_domain(file: Path) -> EventDomain:
    """Return the domain that ``file`` describes; :class:`ConfigurationError` if the file cannot be used."""
    settings = make(EventDomainSettings, settings_in(EventDomainSettings, file))
    warn_if_open(file, "the hash key of a domain")
    try:
        return EventDomain(settings)
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}: {error}") from None


def key_file(file: Path, server: str) -> Path:
    """Return the file of a server's private key, as :func:`create_domain` writes it beside the domain's ``file``."""
    return file.parent / "keys" / f"{server}.key"


def data_directory(directory: Path, server: str) -> Path:
    """Return the data directory of a server whose domain runs on one machine, in ``directory``."""
    return directory / "data" / server


def create_domain(directory: Path, name: str, size: int, port: int = SIP_PORT) -> Path:
    """Write the file of a new domain of ``size`` servers on loopback, with a key file for each; return its path.

    Only the owner can read the files.

    :param port: SIP port of all servers, each at an address of its own; 0 chooses a free port for each
    :raises ConfigurationError: one of the files exists or cannot be written, or the port cannot be used
    """
    if not 0 <= port <= _PORT_MAX - LINK_PORTS_ABOVE:
        raise ConfigurationError(
            f"the SIP port {port} is out of range (expected 0 to {_PORT_MAX - LINK_PORTS_ABOVE}: the links between "
            f"servers have the port {LINK_PORTS_ABOVE} above)"
        )
    file = directory / FILE_NAME
    keys = {name: key_file(file, name) for name in (f"s{number}" for number in range(1, size + 1))}
    for path in (file, *keys.values()):
        if path.exists():
            raise ConfigurationError(f"{path} exists and is not overwritten; choose another directory")
    try:
        make_directory(SYSTEM, directory / "keys", 0o700)
        public = {server: KeyPair(kept_key(path)).public.hex() for server, path in keys.items()}
        replace_file(SYSTEM, file, "".join(f"{line}\n" for line in _lines(name, public, port)).encode())
    except OSError as error:
        raise ConfigurationError(f"{directory} cannot be written: {error.strerror}") from None
    return file


def _lines(name: str, public: dict[str, str], port: int) -> Iterator[str]:
    yield "# Event domain: the same file for all its servers; docs/domains.md describes it."
    yield f"name = {toml(name)}"
    yield f"hash_key = {toml(secrets.token_hex(KEY_BYTES))}"
    for number, (server, key) in enumerate(public.items(), 1):
        host = f"127.0.0.{number}"
        yield from ("", f"[servers.{server}]", f"sip = {toml(f'{host}:{port or free_port(host)}')}")
        yield f"address = {toml(f'{host}:{port + LINK_PORTS_ABOVE if port else free_port(host)}')}"
        yield f"public_key = {toml(key)}"
        yield f"roles = {toml(ROLES if number == 1 else ROLES[:2])}"
