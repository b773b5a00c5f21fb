"""Parsing of a file of settings; every error is one line: the file, the key, what is wrong, what is allowed."""

from __future__ import annotations

import difflib
import math
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar, Union

import msgspec

from wanderbus.errors import ConfigurationError
from wanderbus.settings.keys import Key, KeyTable, table_of

Settings = TypeVar("Settings", bound=msgspec.Struct)


def read(kind: type[msgspec.Struct], text: str, file: Path) -> dict[str, Any]:
    """Return the settings in ``text`` as arguments of ``kind``; its paths are relative to the directory of ``file``.

    :raises ConfigurationError: ``text`` is not TOML, or has a key or value that ``kind`` does not accept
    """
    return _Reading(kind, file).table(table_of(kind), parse(text, file))


def parse(text: str, file: Path) -> dict[str, Any]:
    """Return the tables of a TOML text; :class:`ConfigurationError` if it is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file}: not TOML: {error}") from None
    except RecursionError:
        raise ConfigurationError(f"{file}: not a file of settings: its values are nested too deeply") from None


def make(kind: type[Settings], given: Mapping[str, Any]) -> Settings:
    """Return the settings from arguments; :class:`ConfigurationError` names missing keys."""
    keys = table_of(kind).keys
    if missing := [key.name for key in keys.values() if key.required and key.name not in given]:
        raise ConfigurationError(f"{' and '.join(missing)} must be given; 'wanderbus config sample' shows how")
    return kind(**{name: _as_path(keys, name, value) for name, value in given.items()})


def _as_path(keys: Mapping[str, Key], name: str, value: Any) -> Any:
    is_path = isinstance(value, str) and name in keys and Path in keys[name].members
    return Path(value) if is_path else value


class _Reading:
    """Conversion of one file."""

    def __init__(self, kind: type[msgspec.Struct], file: Path) -> None:
        self._file = file
        self._known = [key.name for key in table_of(kind).all_keys()]

    def table(self, table: KeyTable, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a table; subtables are structs."""
        values: dict[str, Any] = {}
        for name, value in given.items():
            path = ".".join((*table.path, name))
            if name in table.keys:
                values[name] = self._value(table.keys[name], value)
            elif name not in table.tables:
                self._refuse(path, f"unknown key; {self._nearest(path, value)}")
            elif isinstance(value, dict):
                values[name] = self._struct(table.tables[name], value)
            else:
                self._refuse(path, f"invalid value {_shown(value)} (expected a table: write [{path}])")
        return values

    def _struct(self, table: KeyTable, given: Mapping[str, Any]) -> Any:
        values = self.table(table, given)
        try:
            return msgspec.structs.replace(table.defaults, **values)
        except ValueError as error:
            self._refuse(".".join(table.path), str(error))

    def _value(self, key: Key, value: Any) -> Any:
        if value == "none" and key.takes_none:
            return None
        if isinstance(value, str) and Path in key.members:
            return self._file.parent / value
        if isinstance(value, dict) and key.entries is not None:
            return {name: self._value(key.entry(name), each) for name, each in value.items()}
        if isinstance(value, dict) and key.struct is not None:
            return self._entry(key, key.struct, value)
        members = tuple(member for member in key.members if member not in (Path, types.NoneType))
        wrong = f"invalid value {'(hidden)' if key.hides(value) else _shown(value)} (expected {key.allowed})"
        try:
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError
            converted = msgspec.convert(value, Union[members or (None,)])  # noqa: UP007
        except ValueError:
            self._refuse(key.name, wrong)
        if type(converted) in (int, float) and converted < 0:
            self._refuse(key.name, f"{converted} is below 0")
        return converted

    def _entry(self, key: Key, kind: type[msgspec.Struct], given: Mapping[str, Any]) -> Any:
        """Return an entry of a table with free names; its fields are keys, and errors name them."""
        fields = table_of(kind).keys
        for name in given:
            if name not in fields:
                self._refuse(f"{key.name}.{name}", f"unknown key (expected {', '.join(fields)})")
        for name, field in fields.items():
            if field.required and name not in given:
                self._refuse(f"{key.name}.{name}", f"must be given (expected {field.allowed})")
        return kind(
            **{name: self._value(field.within(key), given[name]) for name, field in fields.items() if name in given}
        )

    def _nearest(self, path: str, value: Any) -> str:
        """Return a hint: a key of that name in another table, or the most similar key."""
        if isinstance(value, dict) and value:
            path += f".{next(iter(value))}"
        elsewhere = [name for name in self._known if name.endswith(f".{path}")]
        alike = elsewhere or difflib.get_close_matches(path, self._known, 1, 0.75)
        return f"did you mean {alike[0]}?" if alike else "'wanderbus config sample' shows all keys"

    def _refuse(self, path: str, reason: str) -> NoReturn:
        raise ConfigurationError(f"{self._file}: {path}: {reason}") from None


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    return str(value).lower() if isinstance(value, bool) else repr(value)
