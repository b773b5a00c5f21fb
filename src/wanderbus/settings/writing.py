"""Sample files and the reference of all keys, generated from the structs so that they always agree with the code."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from wanderbus.settings.keys import OPTIONAL, Key, KeyTable, table_of

_COLUMNS: Final = 120

_EXAMPLES: Final = {
    "uri": "sip:alice@localhost",
    "password": "secret",
    "password_file": "password",
    "transport": "tls",
    "ca_file": "ca.pem",
    "broker": "sip:broker@localhost",
    "state_dir": "state",
    "local_address": "192.0.2.7",
    "domain": "localhost",
    "users": "users.txt",
    "data_dir": "wanderbus-data",
    "tls_certificate": "server.pem",
    "tls_key": "server.key",
    "tls_port": 5061,
    "eci_port": 5070,
    "http": "127.0.0.1:8080",
    "light": "127.0.0.1:5080",
    "sip_trace": "sip.trace",
    "sip_server": "sip:192.0.2.1",
    "broker_password": "secret",
    "broker_password_file": "password",
    "relay.address": "192.0.2.1",
    "relay.advertise": "192.0.2.1",
    "address": "127.0.0.1",
    "advertise": "192.0.2.1",
    "broker.roles": {"alice": "operator"},
    "domains.routes": {"example.net": ["192.0.2.7:5061"]},
    "domains.ca_file": "peers.pem",
    "access.user": "broker",
    "access.nearest": {"192.0.2.0/24": "192.0.2.7"},
}
"""Example values of required keys, and of keys whose default cannot be written in TOML."""


_CITATION: Final = re.compile(r" \((?:SPEC|DESIGN) [^)]*\)")


def sample(kind: type[msgspec.Struct]) -> str:
    """Return a sample file with every key, its default and its meaning."""
    return "\n".join(_lines(table_of(kind))) + "\n"


def _lines(table: KeyTable) -> Iterator[str]:
    # In TOML, lines after the heading of a table belong to it, so keys that are tables come last.
    for key in sorted(table.keys.values(), key=lambda key: key.default == {}):
        yield from ("", *_comment(key.doc), *_setting(key))
    for inner in table.tables.values():
        lines = f"[{'.'.join(inner.path)}]", *_lines(inner)
        yield from ("", *_comment(inner.doc))
        yield from map(_commented, lines) if inner.path[-1] in OPTIONAL else lines


def _commented(line: str) -> str:
    return line if line[:1] in ("", "#") else f"#{line}"


def _setting(key: Key) -> Iterator[str]:
    """Yield the line that sets a key: to its default, or commented out to an example."""
    example = _EXAMPLES.get(key.name, "none")
    if isinstance(example, dict):
        yield f"#[{key.name}]"
        yield from (f'#"{name}" = {toml(value)}' for name, value in example.items())
    else:
        comment, value = ("#", example) if key.default is None else ("", example if key.required else key.default)
        yield f"{comment}{key.path[-1]} = {toml(value)}"


def reference(kind: type[msgspec.Struct]) -> str:
    """Return the reference of all keys, as Markdown tables."""
    return "\n".join(_reference(table_of(kind)))


def _reference(table: KeyTable) -> Iterator[str]:
    if table.path:
        yield from (f"### [{'.'.join(table.path)}]", "", table.doc, "")
    if table.keys:
        yield "| key | values | default | unit | meaning | source |"
        yield "|---|---|---|---|---|---|"
    for key in table.keys.values():
        cells = [f"`{key.name}`", key.allowed, _default(key), key.unit, key.doc, ", ".join(key.sources)]
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
    yield ""
    for inner in table.tables.values():
        yield from _reference(inner)


def _default(key: Key) -> str:
    if key.required:
        return "must be given"
    if key.default is None:
        return '`"none"`' if key.takes_none else "not given"
    return "none" if key.default == {} else f"`{toml(key.default)}`"


def set_in(kind: type[msgspec.Struct], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of ``given`` by the full names of their keys, with secrets hidden."""
    values: dict[str, Any] = {}
    for key in table_of(kind).all_keys():
        value: Any = given
        for name in key.path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            values[key.name] = "(hidden)" if key.hides(value) else value
    return values


def toml(value: Any) -> str:
    """Return a value in TOML syntax."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return f"{value:_}" if value >= 10_000 else str(value)
        case float():
            return repr(value)
        case None:
            return '"none"'
        case str() | Path():
            return msgspec.json.encode(str(value)).decode()
        case tuple() | list():
            return f"[{', '.join(toml(each) for each in value)}]"
        case dict():
            return f"{{{', '.join(f'{toml(name)} = {toml(each)}' for name, each in value.items())}}}"
    raise TypeError(f"{value!r} is not a value of a file of settings")


def _comment(doc: str) -> list[str]:
    """Return the first sentence of a docstring as a comment, without the requirements that it cites."""
    doc = _CITATION.sub("", doc)
    sentence = re.split(r"\.(?= [A-Z])", doc)[0].rstrip(".").replace("``", "") + "."
    return textwrap.wrap(sentence, _COLUMNS, initial_indent="# ", subsequent_indent="# ")
