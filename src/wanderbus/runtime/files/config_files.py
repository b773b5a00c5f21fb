"""Settings files, and the sources of a password outside the settings file (SPEC Q-01)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from wanderbus.errors import ConfigurationError
from wanderbus.runtime.files.file_modes import warn_if_open
from wanderbus.settings.agent import AgentSettings
from wanderbus.settings.keys import SECRETS
from wanderbus.settings.reading import make, read

PASSWORD_VARIABLE: Final = "WANDERBUS_PASSWORD"


def load_agent(file: Path | str | None, given: Mapping[str, Any]) -> AgentSettings:
    """Return the settings in ``given``, completed from ``file``, with the password resolved.

    The password comes from the first of: ``given``, the environment, the file. Without a file the environment is not
    read.

    :raises ConfigurationError: a file cannot be read, or a setting is invalid or missing
    """
    from_file = {} if file is None else settings_in(AgentSettings, Path(file))
    if {"password", "password_file"} <= from_file.keys():
        raise ConfigurationError(f"{file}: password: password_file is set too; remove one of them")
    if {"password", "password_file"} & given.keys():
        from_file = {name: value for name, value in from_file.items() if not name.startswith("password")}
    elif file is not None and (password := os.environ.get(PASSWORD_VARIABLE)):
        from_file = {**from_file, "password": password, "password_file": None}
    settings = make(AgentSettings, {**from_file, **given})
    if settings.password is None and settings.password_file is not None:
        return msgspec.structs.replace(settings, password=password_in(settings.password_file))
    return settings


def settings_in(kind: type[msgspec.Struct], file: Path) -> dict[str, Any]:
    """Return the settings in ``file``; log a warning if it holds secrets and others can read it."""
    given = read(kind, read_text(file), file)
    if any(not isinstance(given[name], Path) for name in SECRETS & given.keys()):
        warn_if_open(file, "a password")
    return given


def read_text(file: Path) -> str:
    """Return the text of a file; :class:`ConfigurationError` if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"{file} cannot be read: {reason}") from None


def password_in(file: Path) -> str:
    """Return the first line of a file; :class:`ConfigurationError` if it is empty."""
    password = read_text(file).partition("\n")[0].rstrip("\r")
    if not password:
        raise ConfigurationError(f"{file}: the first line is empty; write the password there")
    warn_if_open(file, "a password")
    return password
