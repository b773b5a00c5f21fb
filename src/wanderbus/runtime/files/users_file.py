"""The users file: read by servers, changed in place by ``wanderbus users``, and read again after each change.

A line is ``name:password``, or ``name:$HA1$domain$`` and digests of name, domain and password, which authenticate the
user (RFC 8760) without storing the password. The file is readable by its owner only, and replaced atomically.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import Final

from wanderbus.errors import ConfigurationError
from wanderbus.runtime.files.disk import SYSTEM, replace_file
from wanderbus.runtime.files.file_modes import warn_if_open
from wanderbus.sip.authentication.digest import HASHED, Secret, ha1

_log = logging.getLogger("wanderbus.users")

LOOK_S: Final = 1.0
"""Pause between two checks for a change of the file."""

_MARK: Final = "$HA1$"


class Users(Mapping[str, Secret]):
    """Secrets by name, as in the file now; if the file has become unreadable, as in its last readable version."""

    def __init__(self, path: Path, *, domain: str, taken: str | None) -> None:
        self._path = path
        self._domain = domain
        self._taken = taken
        self._excluded: str | None = None
        self._version = _version_of(path)
        self._secrets = read_users(path, domain=domain, taken=taken)
        warn_if_open(path, "secrets of users")

    def __getitem__(self, name: str) -> Secret:
        if name == self._excluded:
            raise KeyError(name)
        return self._secrets[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._secrets if name != self._excluded)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def but(self, name: str) -> Users:
        """Return these users without ``name``; call :func:`follow` for only one of the two."""
        others = copy(self)
        others._excluded = name
        return others

    def look(self) -> None:
        """Read the file if it has changed."""
        version = _version_of(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            self._secrets = read_users(self._path, domain=self._domain, taken=self._taken)
        except ConfigurationError as error:
            _log.warning("cannot read the changed users file, the previous users stay valid: %s", error)
        else:
            _log.warning("%s has changed: it now has %s users", self._path, len(self._secrets))


def follow(users: Mapping[str, Secret]) -> asyncio.Task[None] | None:
    """Start a task that reads a users file again after each change, until cancelled; None if ``users`` has no file."""
    if not isinstance(users, Users):
        return None

    async def look_again() -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            users.look()

    return asyncio.create_task(look_again(), name="wanderbus-users")


def read_users(path: Path, *, domain: str | None = None, taken: str | None = "broker") -> Mapping[str, Secret]:
    """Return names and secrets; ``#`` begins a comment line, and digests must belong to ``domain``.

    Raises :class:`ConfigurationError` naming the invalid line, never its content; the name ``taken`` is invalid too.
    """
    users: dict[str, Secret] = {}
    for number, line in enumerate(_lines(path), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, secret = line.strip().partition(":")
        where = f"{path}, line {number}"
        if not colon or not secret or name.split() != [name]:
            raise ConfigurationError(f"{where}: write name:password")
        if name in users or name == taken:
            raise ConfigurationError(f"{where}: the name {name!r} is taken")
        users[name] = _digests(secret, name, domain, where) if secret.startswith(_MARK) else secret
    return users


def change_user(path: Path, name: str, domain: str, password: str | None) -> None:
    """Set the password of ``name``, or remove the user if it is None; other lines and comments are unchanged.

    :raises ConfigurationError: the file cannot be read or written, or the name is invalid
    """
    if name.split() != [name] or ":" in name or name.startswith("#"):
        raise ConfigurationError(f"{name!r} cannot be the name of a user; write one word without a colon")
    path = path.resolve()
    lines = _lines(path) if path.exists() else []
    line = None if password is None else f"{name}:{_hashed(name, domain, password)}"
    places = [place for place, each in enumerate(lines) if each.strip().partition(":")[0] == name]
    for place in places:
        lines[place] = line or ""
    kept = [each for place, each in enumerate(lines) if place not in places or line is not None]
    if line is not None and not places:
        kept.append(line)
    try:
        replace_file(SYSTEM, path, "".join(f"{each}\n" for each in kept).encode())
    except OSError as error:
        raise ConfigurationError(f"the users file {path} cannot be written: {error.strerror}") from None


def _hashed(name: str, domain: str, password: str) -> str:
    digests = ",".join(f"{algorithm}={ha1(name, domain, password, algorithm)}" for algorithm in HASHED)
    return f"{_MARK}{domain}${digests}"


def _digests(text: str, name: str, domain: str | None, where: str) -> Mapping[str, str]:
    realm, dollar, listed = text.removeprefix(_MARK).partition("$")
    pairs = [each.partition("=") for each in listed.split(",")]
    digests = {algorithm.lower(): digest for algorithm, _, digest in pairs}
    if not dollar or digests.keys() != set(HASHED) or not all(map(_is_hex, digests.values())):
        raise ConfigurationError(f"{where}: the digests are damaged; run 'wanderbus users passwd {name}'")
    if domain is not None and realm.lower() != domain.lower():
        raise ConfigurationError(
            f"{where}: the digests are for domain {realm!r}, not {domain!r}; run 'wanderbus users passwd {name}'"
        )
    return digests


def _is_hex(text: str) -> bool:
    return len(text) in (32, 64) and set(text) <= set("0123456789abcdef")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"the users file {path} cannot be read: {reason}") from None


def _version_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
