"""Key by key: every setting of a file reaches the relay's parameters (SPEC Q-02)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from wanderbus.config import RelayLimits, RelaySettings
from wanderbus.errors import ConfigurationError
from wanderbus.runtime.files.config_files import settings_in
from wanderbus.server.relay_role import RelayRole
from wanderbus.settings.keys import table_of
from wanderbus.settings.writing import toml

KEYS: Final[dict[str, tuple[Any, Callable[[RelayRole], Any], Any]]] = {
    "address": ("127.0.0.9", lambda role: role.host, "127.0.0.9"),
    "advertise": ("192.0.2.1", lambda role: role.machine.address, "192.0.2.1"),
    "ports": ("40000-40003", lambda role: sorted(role.machine._ports._free), [40_000, 40_001, 40_002, 40_003]),
    "ng_listen": ("[::1]:2224", lambda role: role.ng_address, ("::1", 2_224)),
    "ng_from": (("192.0.2.2",), lambda role: role.machine._proxies, {"192.0.2.2"}),
    "loopback_peers": (True, lambda role: role.machine._loopback, True),
}
"""Another value, the attribute that holds it, and the expected value there."""


def made(file: Path, text: str) -> RelayRole:
    file.write_text(text)
    return RelayRole(RelaySettings(**settings_in(RelaySettings, file)))


def test_every_key_is_tried() -> None:
    table = table_of(RelaySettings)
    assert set(table.keys) == set(KEYS)
    assert set(table.tables["limits"].keys) == set(RelayLimits.__struct_fields__)


@pytest.mark.parametrize("name", KEYS)
def test_a_key_reaches_the_relay(name: str, tmp_path: Path) -> None:
    value, found, expected = KEYS[name]
    other = 'address = "192.0.2.9"\n' if name == "loopback_peers" else ""
    assert found(made(tmp_path / "relay.toml", f"{other}{name} = {toml(value)}")) == expected
    assert found(made(tmp_path / "relay.toml", other)) != expected


@pytest.mark.parametrize("name", RelayLimits.__struct_fields__)
def test_a_limit_reaches_the_relay(name: str, tmp_path: Path) -> None:
    value = getattr(RelayLimits(), name) + 1
    role = made(tmp_path / "relay.toml", f"[limits]\n{name} = {toml(value)}")
    assert role.machine._limits == msgspec.structs.replace(RelayLimits(), **{name: value})


@pytest.mark.parametrize("name", RelayLimits.__struct_fields__)
def test_no_limit_is_zero(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"limits: {name} must be above 0"):
        made(tmp_path / "relay.toml", f"[limits]\n{name} = 0")


@pytest.mark.parametrize("place", ["127.0.0.1:0", "127.0.0.1:65535", "[::1]:5"])
def test_places_for_commands(place: str, tmp_path: Path) -> None:
    made(tmp_path / "relay.toml", f"ng_listen = {toml(place)}")


@pytest.mark.parametrize("place", ["", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:\u0663", "h:5", "::1"])
def test_places_that_are_none(place: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="ng_listen: "):
        made(tmp_path / "relay.toml", f"ng_listen = {toml(place)}")
