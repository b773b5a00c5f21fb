"""File of a federation: made and changed by commands, and the cards that operators give each other (SPEC S-01)."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from wanderbus.errors import ConfigurationError, StateCorrupt
from wanderbus.federation.routing_messages import Method
from wanderbus.rudp.keys import KeyPair
from wanderbus.runtime.files.config_files import read_text
from wanderbus.runtime.files.disk import SYSTEM, make_directory, replace_file
from wanderbus.runtime.files.kept_key import kept_key
from wanderbus.settings.federation import DomainCard, Federation, FederationSettings, ForeignDomainSettings
from wanderbus.settings.reading import make, read
from wanderbus.settings.writing import toml

FILE_NAME: Final = "federation.toml"
CARD_BYTES_MAX: Final = 65_536

_KEY_SUFFIX: Final = ".key"
_SOME_KEY: Final = KeyPair(bytes(range(32))).public.hex()
_BARE_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")

_Path = tuple[str, ...]


def read_federation(file: Path) -> Federation:
    """Return the federation that ``file`` describes; :class:`ConfigurationError` if the file cannot be used."""
    return _federation(read_text(file), file)


def _federation(text: str, file: Path) -> Federation:
    given = read(FederationSettings, text, file)
    try:
        return Federation(make(FederationSettings, given))
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}: {error}") from None


def federation_key_file(file: Path) -> Path:
    """Return the file of the domain's private key, as :func:`create_federation` writes it beside ``file``."""
    return file.with_suffix(_KEY_SUFFIX)


def domain_key(path: Path) -> KeyPair:
    """Return the key pair of a domain from its file; :class:`ConfigurationError` if it cannot be read."""
    if not path.exists():
        raise ConfigurationError(
            f"federation_key: {path} does not exist; 'wanderbus federation init' makes it, for all gateways of a domain"
        )
    try:
        return KeyPair(kept_key(path))
    except StateCorrupt:
        raise ConfigurationError(f"federation_key: {path} is damaged; copy it from another gateway") from None
    except OSError as error:
        raise ConfigurationError(f"federation_key: {path} cannot be read: {error.strerror}") from None


def create_federation(file: Path, name: str, gateways: Mapping[str, str]) -> Federation:
    """Write the file of a domain without foreign domains, and its private key; return the federation.

    Only the owner can read the files.

    :raises ConfigurationError: one of the files exists or cannot be written, or an argument cannot be used
    """
    key = federation_key_file(file)
    if key == file:
        raise ConfigurationError(f"{file} has the name of the key that is written beside it; choose another suffix")
    for path in (file, key):
        if path.exists():
            raise ConfigurationError(f"{path} exists and is not overwritten; choose another file")
    # The arguments are checked with another key first: nothing is written if they cannot be used.
    Federation(FederationSettings(name=name, public_key=_SOME_KEY, gateways=gateways))
    try:
        make_directory(SYSTEM, file.parent, 0o700)
        public = KeyPair(kept_key(key)).public.hex()
        text = "".join(f"{line}\n" for line in _lines(name, public, gateways))
        replace_file(SYSTEM, file, text.encode())
    except OSError as error:
        raise ConfigurationError(f"{error.filename or file} cannot be written: {error.strerror}") from None
    return read_federation(file)


def _lines(name: str, public: str, gateways: Mapping[str, str]) -> Iterator[str]:
    yield "# Federation of a domain: the same file for all its servers; docs/federation.md describes it."
    yield from (f"name = {toml(name)}", f"public_key = {toml(public)}", "", "[gateways]")
    yield from (f"{_toml_name(gateway)} = {toml(address)}" for gateway, address in gateways.items())


# Cards ---------------------------------------------------------------------------------------------------------------


def card_of(federation: Federation) -> DomainCard:
    """Return the card of the own domain."""
    settings = federation.settings
    return DomainCard(name=settings.name, public_key=settings.public_key, gateways=settings.gateways)


def card_text(card: DomainCard) -> str:
    """Return a card in TOML."""
    lines = [
        f"# Card of the domain {card.name}: 'wanderbus federation add' reads it.",
        f"name = {toml(card.name)}",
        f"public_key = {toml(card.public_key)}",
        "",
        "[gateways]",
        *(f"{_toml_name(gateway)} = {toml(address)}" for gateway, address in card.gateways.items()),
    ]
    return "".join(f"{line}\n" for line in lines)


def read_card(text: str, file: Path) -> DomainCard:
    """Return the card in ``text``, TOML or JSON, from ``file``; :class:`ConfigurationError` if it is unusable.

    Its values are checked once it is added to a federation.
    """
    if len(text.encode()) > CARD_BYTES_MAX:
        raise ConfigurationError(f"{file} is longer than a card (expected at most {CARD_BYTES_MAX} bytes)")
    if not text.lstrip().startswith("{"):
        given = read(DomainCard, text, file)
        try:
            return make(DomainCard, given)
        except ConfigurationError as error:
            raise ConfigurationError(f"{file}: {error}") from None
    try:
        return msgspec.json.decode(text, type=DomainCard)
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{file}: not a card: {error}") from None


# Changes of the foreign domains --------------------------------------------------------------------------------------


def put_domain(file: Path, name: str, domain: ForeignDomainSettings) -> Federation:
    """Write a foreign domain into ``file``, in place of its former settings; return the changed federation.

    Comments stay, those within the entry at its beginning.

    :raises ConfigurationError: the changed federation cannot be used, or the file has another form or cannot be written
    """
    settings = read_federation(file).settings
    changed = msgspec.structs.replace(settings, domains={**settings.domains, name: domain})
    return _change(file, ("domains", name), _entry(domain), changed)


def remove_domain(file: Path, name: str) -> Federation:
    """Remove a foreign domain from ``file``; return the changed federation.

    :raises ConfigurationError: the file has no such domain, or has another form, or cannot be written
    """
    settings = read_federation(file).settings
    check_known(settings, name)
    domains = {other: domain for other, domain in settings.domains.items() if other != name}
    return _change(file, ("domains", name), None, msgspec.structs.replace(settings, domains=domains))


def put_method(file: Path, subject: str, method: Method | None) -> Federation:
    """Write the method of a type into ``file``, None for that of all types; return the changed federation.

    :raises ConfigurationError: the type cannot be used, or the file has another form or cannot be written
    """
    settings = read_federation(file).settings
    methods = {each: known for each, known in settings.methods.items() if each != subject}
    if method is not None:
        methods[subject] = method
    lines = [f"{_toml_name(each)} = {toml(known)}" for each, known in methods.items()]
    changed = msgspec.structs.replace(settings, methods=methods)
    return _change(file, ("methods",), lines or None, changed)


def check_known(settings: FederationSettings, name: str) -> None:
    """Raise :class:`ConfigurationError` if the federation has no foreign domain ``name``."""
    if name not in settings.domains:
        known = f"expected {' or '.join(settings.domains)}" if settings.domains else "it has none"
        raise ConfigurationError(f"the federation has no foreign domain {name!r} ({known})")


def _entry(domain: ForeignDomainSettings) -> list[str]:
    """Return the lines of a foreign domain, without those that have the default, but with its gateways."""
    values = msgspec.structs.asdict(domain)
    defaults = {field.name: field.default for field in msgspec.structs.fields(ForeignDomainSettings)}
    return [f"{key} = {_value(value)}" for key, value in values.items() if value != defaults[key] or key == "gateways"]


def _value(value: Any) -> str:
    """Return a value in TOML, a table in one line."""
    return toml(dict(value)) if isinstance(value, Mapping) else toml(value)


def _change(file: Path, path: _Path, lines: Sequence[str] | None, expected: FederationSettings) -> Federation:
    """Put ``lines`` into the table at ``path``, or remove it; write the file if it then reads as ``expected``."""
    Federation(expected)  # reported without the advice below
    text = _with_table(read_text(file), path, lines)
    header = _header(path)
    try:
        found = _federation(text, file)
    except ConfigurationError:
        found = None
    if found is None or found.settings != expected:
        raise ConfigurationError(
            f"{file} stays as it is: it has no table of its own with the line {header}; change it in an editor"
        )
    try:
        replace_file(SYSTEM, file, text.encode())
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from None
    return found


def _with_table(text: str, path: _Path, lines: Sequence[str] | None) -> str:
    """Return ``text`` with ``lines`` as the content of the table at ``path``, at the end if there is none yet.

    Tables below it are removed with its former content; with None, so is the table itself.
    """
    kept: list[str] = []
    is_put = lines is None
    for table in _tables(text.splitlines()):
        if table.path[: len(path)] != path:
            kept += table.rows
        elif lines is not None and not is_put:
            kept += [_header(path), *table.comments, *lines]
            is_put = True
        elif kept and not kept[-1].strip():
            kept.pop()  # else two empty lines would follow each other
        kept += table.rest
    if lines is not None and not is_put:
        kept += ["", _header(path), *lines]
    return "".join(f"{row}\n" for row in kept)


class _Table(NamedTuple):
    """Rows of a table in a file."""

    path: _Path
    """Path of the table; empty for the rows before the first one."""
    rows: list[str]
    """Header and content."""
    rest: list[str]
    """Comments and empty rows at the end, which belong to what follows."""

    @property
    def comments(self) -> list[str]:
        """Return the comments among the content."""
        return [row for row in self.rows if row.lstrip().startswith("#")]


def _tables(rows: Sequence[str]) -> Iterator[_Table]:
    headers = [(place, path) for place, row in enumerate(rows) if (path := _path_in(row)) is not None]
    places = [(0, ()), *headers, (len(rows), ())]
    for (start, path), (end, _) in itertools.pairwise(places):
        last = max((place + 1 for place in range(start, end) if rows[place].split("#")[0].strip()), default=start)
        yield _Table(path, [*rows[start:last]], [*rows[last:end]])


def _path_in(row: str) -> _Path | None:
    """Return the path of the table whose header is ``row``, None if it is no header."""
    if not row.lstrip().startswith("["):
        return None
    try:
        value: Any = tomllib.loads(row)
    except tomllib.TOMLDecodeError:
        return None
    path: list[str] = []
    while isinstance(value, dict) and value:
        ((name, value),) = value.items()
        path.append(name)
    return tuple(path) if isinstance(value, dict) else None


def _header(path: _Path) -> str:
    return f"[{'.'.join(map(_toml_name, path))}]"


def _toml_name(name: str) -> str:
    return name if _BARE_NAME.fullmatch(name) else toml(name)
