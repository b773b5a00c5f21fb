"""Login without a password for whoever runs a server (SPEC U-11).

A command asks the server on a Unix socket in its data directory. The answer has digests that registrar and broker
accept. With them the command is an ordinary agent, so everything that it asks goes the way of all other requests.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from wanderbus.errors import AuthenticationError, NoResponse
from wanderbus.runtime.files.file_modes import check_own_directory
from wanderbus.runtime.services.caller import ServiceCaller
from wanderbus.runtime.services.frames import ServiceAbsent, ServiceAway
from wanderbus.runtime.services.places import places_of

NAME: Final = "login"

VERSION: Final = 1


class LoginWanted(msgspec.Struct, frozen=True):
    """Request for a login as ``user``, a name or a URI as it was typed; as operator of the server if it is None."""

    user: str | None


class Login(msgspec.Struct, frozen=True, tag="login"):
    """Login at a server: ``digests`` are the user's HA1 in the server's domain by algorithm (RFC 7616 3.4.2)."""

    user: str
    """Canonical URI."""
    digests: Mapping[str, str]
    server: str
    """SIP server, host:port."""
    transport: Literal["udp", "tcp", "tls"]
    broker: str
    encryption: bool
    ca_file: str | None = None
    """PEM file of the authorities to trust for ``server``; None without TLS, and for those of the system."""
    event_server: str | None = None
    """Name of the server in its event domain."""

    def __repr__(self) -> str:
        return f"Login(user={self.user!r}, server={self.server!r}, ...)"


class LoginDenied(msgspec.Struct, frozen=True, tag="denied"):
    """Refusal of a login: the user is ``foreign`` to the domain, ``unknown`` in it, or there is no ``operator``."""

    kind: Literal["foreign", "unknown", "operator"]
    reason: str


def request_login(data_dir: Path, wanted: LoginWanted, timeout_s: float) -> Login | LoginDenied | None:
    """Return the login at the server that runs in ``data_dir``, or its refusal; None if no server runs there.

    :raises AuthenticationError: the server belongs to another user of this computer
    :raises NoResponse: it does not answer within ``timeout_s``
    """
    if not _has_served(data_dir):
        return None
    caller = ServiceCaller(data_dir, NAME, timeout_s)
    try:
        return caller.ask("login", VERSION, wanted, Login | LoginDenied)  # type: ignore[arg-type]  # a union
    except ServiceAbsent:
        return None
    except ServiceAway as error:
        raise NoResponse(f"the server in {data_dir} does not answer: {error}") from None
    finally:
        caller.close()


def _has_served(data_dir: Path) -> bool:
    """Return whether a server of this user has ever run in ``data_dir``: a caller would make the key if it is missing.

    :raises AuthenticationError: the directory belongs to another user, who alone can read the key
    """
    try:
        check_own_directory(data_dir)
        os.close(os.open(places_of(data_dir, NAME).key, os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        raise AuthenticationError(
            f"{data_dir} belongs to another user of this computer; run the command as that user or as root, or give "
            "--user, --password and --server"
        ) from None
    except OSError:
        return False
    return True
