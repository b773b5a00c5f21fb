"""Login of a command at a server that runs on this computer under the same user, without a password (SPEC U-11)."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from wanderbus.errors import ConfigurationError, Refused, UnknownUser, WanderbusError
from wanderbus.runtime.services.login import Login, LoginDenied, LoginWanted, request_login

PLACES: Final = (Path("wanderbus-data"), Path("wanderbus-domain"))
"""Data directories of ``wanderbus up`` and ``wanderbus domain up`` unless others are given."""

PLACES_SHOWN: Final = " or ".join(map(str, PLACES))


class NoServerRuns(ConfigurationError):
    """No server runs in the directory that was given."""


def login_at(directory: Path, user: str | None, timeout_s: float) -> Login:
    """Return the login of ``user``, or of the operator, at the server in ``directory``, or the first of a domain there.

    :raises NoServerRuns: no server runs there
    :raises UnknownUser: the server has no such user
    :raises Refused: nobody is its operator
    """
    answer = _ask(directory, user, timeout_s)
    if answer is None:
        raise NoServerRuns(
            f"no server runs in {directory}; start it with 'wanderbus up --data-dir {directory}', or give the data "
            "directory of one that runs"
        )
    if isinstance(answer, LoginDenied):
        raise _error(answer)
    return answer


def login_nearby(user: str | None, timeout_s: float) -> Login | None:
    """Return the login at a server that runs in :data:`PLACES`; None if none runs there that could know ``user``.

    :raises UnknownUser: the server has no such user
    :raises Refused: nobody is its operator
    """
    for directory in PLACES:
        answer = _ask(directory, user, timeout_s)
        if isinstance(answer, Login):
            return answer
        if answer is not None and (answer.kind != "foreign" or user is None):
            raise _error(answer)
    return None


def login_at_server(places: tuple[Path, ...], server: str, user: str | None, timeout_s: float) -> Login | None:
    """Return the login at the ``server`` of a domain if it runs in one of ``places``; None if it runs elsewhere."""
    for directory in places:
        answer = request_login(directory, LoginWanted(user), timeout_s)
        if isinstance(answer, Login) and answer.event_server == server:
            return answer
        if isinstance(answer, LoginDenied):
            raise _error(answer)
    return None


def _ask(directory: Path, user: str | None, timeout_s: float) -> Login | LoginDenied | None:
    """Return the answer of the server in ``directory``, or of the first one that runs in a domain's directory."""
    for each in _data_directories(directory):
        if (answer := request_login(each, LoginWanted(user), timeout_s)) is not None:
            return answer
    return None


def _data_directories(directory: Path) -> list[Path]:
    # Every command that connects has this module; most are given a server elsewhere.
    from wanderbus.runtime.files.domain_file import FILE_NAME, data_directory, read_domain

    file = directory / FILE_NAME
    with contextlib.suppress(PermissionError):  # of another user's directory, which the request reports
        if file.is_file():
            return [data_directory(directory, server) for server in read_domain(file).settings.servers]
    return [directory]


def _error(denied: LoginDenied) -> WanderbusError:
    return Refused(denied.reason) if denied.kind == "operator" else UnknownUser(denied.reason)
