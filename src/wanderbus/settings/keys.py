"""Keys of a file of settings: name, type, default and meaning, read from the structs by introspection."""

from __future__ import annotations

import ast
import collections.abc
import inspect
import itertools
import re
import sys
import types
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from wanderbus.client.machine.messages import AgentProperties
from wanderbus.settings.agent import AgentSettings
from wanderbus.settings.server import ProxySettings, ServerSettings

OPTIONAL: Final = frozenset({"relay", "domains"})
"""Tables that switch a feature on: without the table, the feature is off."""

SECRETS: Final = frozenset({"password", "broker_password", "users", "hash_key"})
"""Keys whose values are never shown."""

_OWN: Final = {"consume_at_once", "ack_delay_s", "keepalive_s"}
_OF_NG: Final = {"ng_listen", "ng_from"}

NO_KEYS: Final[Mapping[tuple[Any, str], set[str]]] = {
    (AgentSettings, "rudp"): _OWN,
    (AgentSettings, "tcp_channels"): _OWN,
    (ServerSettings, "rudp"): {"consume_at_once", "ack_delay_s"},
    (ServerSettings, "tcp_channels"): {"consume_at_once"},
    (ServerSettings, "broker"): {"server", "domain", "federated"},
    (ServerSettings, "relay"): _OF_NG,
    (ProxySettings, "relay"): _OF_NG,
}
"""Fields of a table that are not keys, because the program sets them: how it consumes and acknowledges, ``keepalive_s``
of both transports (a top-level key), the server's name (part of its log) and domain, whether the domain is federated,
and the control of a relay in the same process."""

NUMBERS: Final = {int, float}
_UNITS: Final = (
    (r"_per_s(_|$)", "a second"),
    (r"_ms(_|$)", "milliseconds"),
    (r"_s(_|$)", "seconds"),
    (r"(^|_)bytes(_|$)", "bytes"),
    (r"_frames$", "frames"),
    (r"(^|_)packets(_|$)", "packets"),
)
_SOURCE: Final = re.compile(r"SPEC [A-Z]-?\d+(?:(?:, | to )[A-Z]-?\d+)*|RFC \d+(?: \d[\d.]*)?|DESIGN [\d.]+")


class Key(msgspec.Struct, frozen=True):
    """One key; ``path`` is its path from the top of the file, ``members`` are the types that its value may have."""

    path: tuple[str, ...]
    members: tuple[Any, ...]
    default: Any
    """Value unless given; ``msgspec.NODEFAULT`` if the key is required."""
    owner: Any
    """Struct that has the field."""

    @property
    def name(self) -> str:
        """Return the full name, with dots between tables."""
        return ".".join(self.path)

    @property
    def doc(self) -> str:
        """Return the meaning, in one line."""
        return _docs(self.owner)[self.path[-1]]

    @property
    def required(self) -> bool:
        """Return whether the key is required."""
        return self.default is msgspec.NODEFAULT

    def hides(self, value: Any) -> bool:
        """Return whether ``value`` is a secret that may not be shown; the path of a file with secrets may."""
        return self.path[0] in SECRETS and not (Path in self.members and isinstance(value, str))

    @property
    def entries(self) -> Any:
        """Return the type of the entries if the value is a table with free names, else None."""
        return next((get_args(each)[1] for each in self.members if plain(each) is collections.abc.Mapping), None)

    def entry(self, name: str) -> Key:
        """Return the key of one entry of such a table."""
        return Key((*self.path, name), (self.entries,), msgspec.NODEFAULT, self.owner)

    @property
    def struct(self) -> type[msgspec.Struct] | None:
        """Return the type of the value if that is a table with keys of its own, else None."""
        return next((each for each in self.members if inspect.isclass(each) and issubclass(each, msgspec.Struct)), None)

    def within(self, outer: Key) -> Key:
        """Return this key as one of the table that is the value of ``outer``."""
        return Key((*outer.path, *self.path), self.members, self.default, self.owner)

    @property
    def takes_none(self) -> bool:
        """Return whether the text "none" means no bound; TOML has no null value."""
        bare = {plain(member) for member in self.members}
        return types.NoneType in bare and bool(bare & NUMBERS)

    @property
    def unit(self) -> str:
        """Return the unit of the value, derived from the name; empty for none."""
        if not {plain(member) for member in self.members} & NUMBERS:
            return ""
        return next((unit for pattern, unit in _UNITS if re.search(pattern, self.path[-1])), "")

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the documents that the meaning cites."""
        return tuple(found.rstrip(".") for found in _SOURCE.findall(self.doc))

    @property
    def allowed(self) -> str:
        """Return the allowed values, as text."""
        words = [_words_of(member) for member in self.members if member is not types.NoneType]
        return " or ".join([*words, *(['"none"'] if self.takes_none else [])])


class KeyTable(msgspec.Struct, frozen=True):
    """One table, or the top level of the file: its struct, and the fields in their order."""

    path: tuple[str, ...]
    owner: Any
    """Struct that has the field; None at the top."""
    defaults: Any
    """Instance with the defaults; None at the top, which may have keys without a default."""
    keys: Mapping[str, Key]
    tables: Mapping[str, KeyTable]

    @property
    def doc(self) -> str:
        """Return the purpose, in one line."""
        return _docs(self.owner)[self.path[-1]]

    def all_keys(self) -> Iterator[Key]:
        """Yield the keys of this table and of its subtables."""
        yield from self.keys.values()
        for inner in self.tables.values():
            yield from inner.all_keys()


@cache
def table_of(kind: type[msgspec.Struct]) -> KeyTable:
    """Return the top-level table of a file of settings."""
    return _table(kind, (), kind, None, None)


def _table(top: Any, path: tuple[str, ...], kind: Any, owner: Any, defaults: Any) -> KeyTable:
    keys, tables = {}, {}
    for field in msgspec.structs.fields(kind):
        if path and field.name in NO_KEYS.get((top, path[-1]), ()):
            continue
        below = (*path, field.name)
        members = _members(field.type)
        inner = Key(below, members, None, kind).struct
        default = _default(field) if defaults is None else getattr(defaults, field.name)
        if inner is not None:
            tables[field.name] = _table(top, below, inner, kind, default or inner())
        else:
            keys[field.name] = Key(below, members, default, kind)
    return KeyTable(path, owner, defaults, keys, tables)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    """Return the default of a field, which msgspec makes by a function if it is an empty table."""
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def default_of(kind: type[msgspec.Struct], name: str) -> Any:
    """Return the default of the top-level key ``name``; None if it has no default, or is a table."""
    key = table_of(kind).keys.get(name)
    return None if key is None or key.required else key.default


def plain(member: Any) -> Any:
    """Return a type without its annotations and parameters."""
    return plain(get_args(member)[0]) if get_origin(member) is Annotated else (get_origin(member) or member)


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _words_of(member: Any) -> str:
    if get_origin(member) is Annotated:
        (bounds,) = (each for each in get_args(member)[1:] if isinstance(each, msgspec.Meta))
        return f"{_words_of(get_args(member)[0])} from {bounds.ge} to {bounds.le}"
    if get_origin(member) is Literal:
        return " or ".join(f'"{word}"' for word in get_args(member))
    words = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        Path: "a path",
        tuple: "a list of texts",
    }
    if (word := words.get(plain(member))) is not None:
        return word
    if inspect.isclass(member) and issubclass(member, msgspec.Struct):
        return f"a table with {', '.join(member.__struct_fields__)}"
    return f"a table of names with {_words_of(get_args(member)[1])} each"


@cache
def _docs(kind: Any) -> Mapping[str, str]:
    """Return the docstring of each field, in one line. It parses the source, so call it only to show documentation."""
    (body,) = (
        node.body
        for node in ast.parse(inspect.getsource(sys.modules[kind.__module__])).body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    above = AgentProperties if kind is AgentSettings else kind.__base__
    docs = {} if above is msgspec.Struct else dict(_docs(above))
    for field, doc in itertools.pairwise(body):
        match field, doc:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = " ".join(text.split())
    return docs
