"""The users file: read by servers, changed in place by ``wanderbus users``, and read again after each change.

A line is ``name:password``, or ``name:$HA1$domain$`` and digests of name, domain and password, which authenticate the
user (RFC 8760) without storing the password. The file is readable by its owner only, and replaced atomically.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import Final, NamedTuple

from wanderbus.errors import ConfigurationError, SIPParseError
from wanderbus.runtime.files.disk import SYSTEM, replace_file
from wanderbus.runtime.files.file_modes import warn_if_open
from wanderbus.runtime.files.users_reports import UsersReport, Version, version_of
from wanderbus.sip.authentication.digest import HASHED, Secret, ha1
from wanderbus.sip.message.uri import SIPUri

_log = logging.getLogger("wanderbus.users")

LOOK_S: Final = 1.0
"""Pause between two checks for a change of the file."""

_MARK: Final = "$HA1$"


_TO_ESCAPE: Final = re.compile(r"[^A-Za-z0-9\-_.!~*'()&=+$,;?/%]|%(?![0-9A-Fa-f]{2})")
"""Characters that the user part of a URI contains only as escapes (RFC 3261 25.1)."""


class StoredUser(NamedTuple):
    """A user in the file; ``domain`` is that of the digests, None for a password."""

    secret: Secret
    domain: str | None


class Users(Mapping[str, Secret]):
    """Secrets by name, as in the file now.

    If the file has become invalid, as in its last valid version, without the users that it no longer names.
    """

    def __init__(self, path: Path, *, domain: str, taken: str | None) -> None:
        self._path = path
        self._domain = domain
        self._taken = taken
        self._excluded: str | None = None
        self._version = version_of(path)
        self._secrets = read_users(path, domain=domain, taken=taken)
        self._refused: str | None = None
        """Error for which the present version of the file is not used."""
        warn_if_open(path, "secrets of users")
        self._warn_of_names()

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

    @property
    def path(self) -> Path:
        """Return the path of the file."""
        return self._path

    def look(self) -> None:
        """Read the file if it has changed."""
        version = version_of(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            self._secrets = read_users(self._path, domain=self._domain, taken=self._taken)
        except ConfigurationError as error:
            self._refused = str(error)
            self._keep_named()
        else:
            self._refused = None
            _log.warning("%s has changed: it now has %s users", self._path, len(self._secrets))
            self._warn_of_names()

    def report(self) -> tuple[str, Version | None, str | None]:
        """Return the domain of these users, the version of the file that was read last, and the error in it."""
        return self._domain, self._version, self._refused

    def _keep_named(self) -> None:
        """Keep the secrets of the users whom an invalid file still names: a removed user must not log in."""
        named = _named_in(self._path)
        removed = [] if named is None else [name for name in self._secrets if name not in named]
        self._secrets = {name: secret for name, secret in self._secrets.items() if name not in removed}
        _log.warning(
            "cannot read the changed users file; %s users stay as they were, and %s are removed that it does not name: "
            "%s",
            len(self._secrets),
            len(removed),
            self._refused,
        )

    def _warn_of_names(self) -> None:
        for name in self._secrets:
            if reason := why_no_login(name):
                _log.warning("%s: the user %r can never log in: %s", self._path, name, reason)


def follow(users: Mapping[str, Secret]) -> asyncio.Task[None] | None:
    """Start a task that reads a users file again after each change, until cancelled; None if ``users`` has no file.

    Beside the file it keeps a report, for who changes the file.
    """
    if not isinstance(users, Users):
        return None

    async def look_again() -> None:
        with UsersReport(users.path) as report:
            while True:
                report.write(*users.report())
                await asyncio.sleep(LOOK_S)
                users.look()

    return asyncio.create_task(look_again(), name="wanderbus-users")


def why_no_login(name: str) -> str | None:
    """Return why no device can log in under ``name``: it is not the user part of a SIP URI; None if one can."""
    try:
        known_as = SIPUri.parse(f"sip:{name}@localhost").address_of_record
    except SIPParseError:
        known_as = ""
    if known_as == f"sip:{name}@localhost":
        return None
    in_address = SIPUri.parse(f"sip:{_TO_ESCAPE.sub(_escaped, name)}@localhost").address_of_record
    return f"in a SIP address the name is {in_address.removeprefix('sip:').partition('@')[0]}"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode(errors="replace"))


def read_users(path: Path, *, domain: str | None = None, taken: str | None = "broker") -> Mapping[str, Secret]:
    """Return names and secrets; ``#`` begins a comment line, and digests must belong to ``domain``.

    Raises :class:`ConfigurationError` naming the invalid line, never its content; the name ``taken`` is invalid too.
    """
    return {name: user.secret for name, user in stored_users(path, domain=domain, taken=taken).items()}


def stored_users(path: Path, *, domain: str | None = None, taken: str | None = None) -> Mapping[str, StoredUser]:
    """Return the users in the file, each with the domain of the digests; errors are those of :func:`read_users`."""
    users: dict[str, StoredUser] = {}
    for number, line in enumerate(_lines(path), 1):
        name = _name_in(line)
        if name is None:
            continue
        secret = line.strip().partition(":")[2]
        where = f"{path}, line {number}"
        if not secret or name.split() != [name]:
            raise ConfigurationError(f"{where}: write name:password")
        if name in users or name == taken:
            raise ConfigurationError(f"{where}: the name {name!r} is taken")
        is_hashed = secret.startswith(_MARK)
        users[name] = _digests(secret, name, domain, where) if is_hashed else StoredUser(secret, None)
    return users


def names_in(path: Path) -> set[str]:
    """Return the names in the file, also those in invalid lines; :class:`ConfigurationError` if it is unreadable."""
    return {name for line in _lines(path) if (name := _name_in(line)) is not None}


def change_user(path: Path, name: str, domain: str, password: str | None) -> None:
    """Set the password of ``name``, or remove the user if it is None; other lines and comments are unchanged.

    :raises ConfigurationError: the file cannot be read or written, or the name is invalid
    """
    if name.split() != [name] or ":" in name or name.startswith("#"):
        raise ConfigurationError(f"{name!r} cannot be the name of a user; write one word without a colon")
    if password is not None and (reason := why_no_login(name)):
        raise ConfigurationError(f"{name!r} cannot be the name of a user: {reason}")
    path = path.resolve()
    lines = _lines(path) if path.exists() else []
    line = None if password is None else f"{name}:{_hashed(name, domain, password)}"
    places = [place for place, each in enumerate(lines) if _name_in(each) == name]
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


def _digests(text: str, name: str, domain: str | None, where: str) -> StoredUser:
    realm, dollar, listed = text.removeprefix(_MARK).partition("$")
    pairs = [each.partition("=") for each in listed.split(",")]
    digests = {algorithm.lower(): digest for algorithm, _, digest in pairs}
    if not dollar or digests.keys() != set(HASHED) or not all(map(_is_hex, digests.values())):
        raise ConfigurationError(f"{where}: the digests are damaged; run 'wanderbus users passwd {name}'")
    if domain is not None and realm.lower() != domain.lower():
        raise ConfigurationError(
            f"{where}: the digests are for domain {realm!r}, not {domain!r}; run 'wanderbus users passwd {name} "
            f"--domain {domain}'"
        )
    return StoredUser(digests, realm)


def _is_hex(text: str) -> bool:
    return len(text) in (32, 64) and set(text) <= set("0123456789abcdef")


def _name_in(line: str) -> str | None:
    """Return the name in a line of the file, None for a comment or an empty line."""
    line = line.strip()
    return line.partition(":")[0] if line and not line.startswith("#") else None


def _named_in(path: Path) -> set[str] | None:
    """Return the names in an invalid file; None if its text cannot be read, so that nobody counts as removed."""
    try:
        return names_in(path)
    except ConfigurationError:
        return None


def _lines(path: Path) -> list[str]:
    """Return the lines of the file; some editors write a byte order mark before the first."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"the users file {path} cannot be read: {reason}") from None
