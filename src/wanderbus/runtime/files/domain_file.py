"""File of an event domain and the keys of its servers (SPEC J-01)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.errors import ConfigurationError
from wanderbus.rudp.keys import KeyPair
from wanderbus.runtime.files.config_files import read_text, settings_in
from wanderbus.runtime.files.disk import SYSTEM, make_directory, replace_file
from wanderbus.runtime.files.file_modes import warn_if_open
from wanderbus.runtime.files.kept_key import kept_key
from wanderbus.runtime.net.free_port import free_port
from wanderbus.settings.event_domain import (
    KEY_BYTES,
    ROLES,
    DomainServerSettings,
    EventDomain,
    EventDomainSettings,
    Role,
    address_in,
)
from wanderbus.settings.reading import make, read
from wanderbus.settings.writing import toml

FILE_NAME: Final = "domain.toml"
SIZE_MAX: Final = 250
SIP_PORT: Final = 5060
LINK_PORTS_ABOVE: Final = 541
"""Distance from the SIP port of a server to the port of its links to other servers, in a new domain."""

_PORT_MAX: Final = 2**16 - 1
_LOOPBACK: Final = "127.0.0."
_SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


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
        sip, address = _addresses(host, port)
        yield from ("", f"[servers.{server}]", f"sip = {toml(sip)}", f"address = {toml(address)}")
        yield f"public_key = {toml(key)}"
        yield f"roles = {toml(ROLES if number == 1 else ROLES[:2])}"


def _addresses(host: str, port: int) -> tuple[str, str]:
    """Return the addresses for agents and for other servers at ``host``; 0 chooses free ports."""
    return f"{host}:{port or free_port(host)}", f"{host}:{port + LINK_PORTS_ABOVE if port else free_port(host)}"


# Changes of the servers ----------------------------------------------------------------------------------------------


def add_server(
    file: Path, name: str, address: str | None = None, sip: str | None = None, roles: Sequence[Role] = ROLES[:2]
) -> DomainServerSettings:
    """Add a server to the domain's ``file``, and write its key beside it; return its entry.

    A key that exists is used. Without an ``address`` it gets free loopback addresses, if the others have some.

    :raises ConfigurationError: the server cannot be added, or a file cannot be written
    """
    domain = read_domain(file).settings
    if not _SERVER_NAME.fullmatch(name):
        raise ConfigurationError(f"{name!r} is no name of a server (expected letters, digits, - and _, at most 64)")
    if (known := domain.servers.get(name)) is not None:
        state = "has left the domain, and its name is not used again" if known.left else "is in the domain already"
        raise ConfigurationError(f"{name} {state}; choose another name")
    if len(domain.servers) >= SIZE_MAX:
        raise ConfigurationError(f"the domain has had {SIZE_MAX} servers, and more are not possible")
    if address is None:
        chosen_sip, address = _free_addresses(domain)
        sip = sip or chosen_sip
    try:
        make_directory(SYSTEM, key_file(file, name).parent, 0o700)
        public = KeyPair(kept_key(key_file(file, name))).public.hex()
    except OSError as error:
        raise ConfigurationError(f"{key_file(file, name)} cannot be written: {error.strerror}") from None
    joined = 1 + sum(each.joined is not None for each in domain.servers.values())
    lines = ["", f"[servers.{name}]", *([] if sip is None else [f"sip = {toml(sip)}"]), f"address = {toml(address)}"]
    lines += [f"public_key = {toml(public)}", f"roles = {toml(tuple(roles))}", f"joined = {joined}"]
    return _change(file, "\n".join([read_text(file).rstrip("\n"), *lines, ""])).servers[name]


def leave_domain(file: Path, name: str) -> None:
    """Write into the domain's ``file`` that a server has left; its entry stays.

    :raises ConfigurationError: the domain needs the server, or the file has another form, or cannot be written
    """
    lines = read_text(file).splitlines()
    headers = [place for place, line in enumerate(lines) if re.match(rf"\[servers\.{re.escape(name)}\]", line)]
    if len(headers) != 1:
        raise ConfigurationError(f"{file} has no line [servers.{name}]; write 'left = true' into its entry yourself")
    _change(file, "\n".join([*lines[: headers[0] + 1], "left = true", *lines[headers[0] + 1 :], ""]))


def without_server(domain: EventDomain, name: str) -> EventDomain:
    """Return the domain after a server has left; :class:`ConfigurationError` if it cannot go without that one."""
    settings = domain.settings
    left = msgspec.structs.replace(settings.servers[name], left=True)
    return EventDomain(msgspec.structs.replace(settings, servers={**settings.servers, name: left}))


def _free_addresses(domain: EventDomainSettings) -> tuple[str, str]:
    """Return addresses for agents and for servers at a loopback address that no server has had."""
    places = [(address_in(each.sip or ""), address_in(each.address)) for each in domain.servers.values()]
    hosts = [sip[0] for sip, _ in places if sip is not None]
    if len(hosts) < len(places) or not all(each.startswith(_LOOPBACK) for each in hosts):
        raise ConfigurationError("the servers have no addresses like 127.0.0.1; give --address and --sip")
    last = max(int(each.removeprefix(_LOOPBACK)) for each in hosts)
    if last > SIZE_MAX:
        raise ConfigurationError(f"{_LOOPBACK}{last} is the last loopback address in use; give --address and --sip")
    ports = {(sip[1], link[1] - LINK_PORTS_ABOVE) for sip, link in places if sip is not None and link is not None}
    (port, other), *more = ports
    return _addresses(f"{_LOOPBACK}{last + 1}", port if port == other and not more else 0)


def _change(file: Path, text: str) -> EventDomainSettings:
    """Replace the text of a domain's file if the changed domain can be used; return that."""
    try:
        settings = make(EventDomainSettings, read(EventDomainSettings, text, file))
        EventDomain(settings)
    except ConfigurationError as error:
        raise ConfigurationError(f"{file} stays as it is, the change cannot be used: {error}") from None
    try:
        replace_file(SYSTEM, file, text.encode())
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from None
    return settings
