"""Service of a server for logins without a password (SPEC U-11)."""

from __future__ import annotations

import hmac
import logging
import os
from pathlib import Path

import msgspec

from wanderbus.errors import WanderbusError
from wanderbus.runtime.files.disk import SYSTEM, make_directory
from wanderbus.runtime.files.kept_key import kept_key
from wanderbus.runtime.services.login import NAME, VERSION, Login, LoginDenied, LoginWanted
from wanderbus.runtime.services.places import places_of
from wanderbus.runtime.services.service import Service
from wanderbus.server.local_logins import LocalLogins, caller_refusal

_log = logging.getLogger("wanderbus.server")


def operator_password(data_dir: Path) -> str:
    """Return the password of the operator in ``data_dir``; a restart keeps it, a backup does not contain it.

    :raises OSError: its key can be neither read nor created
    :raises StateCorrupt: the key is damaged
    """
    key = places_of(data_dir, NAME).key
    make_directory(SYSTEM, key.parent, 0o700)
    return hmac.digest(kept_key(key), b"operator", "sha256").hex()


def start_login_service(data_dir: Path, logins: LocalLogins) -> Service | None:
    """Begin to answer callers on this computer; a server without this service serves nevertheless."""
    owner = os.geteuid()

    def answer(body: msgspec.Raw) -> Login | LoginDenied:
        return logins.answer(msgspec.msgpack.decode(body, type=LoginWanted))

    service = Service(
        data_dir, NAME, {("login", VERSION): answer}, refusal=lambda caller: caller_refusal(caller, owner)
    )
    try:
        service.start()
    except WanderbusError as error:
        _log.warning("commands on this computer need --user and --password: %s", error)
        return None
    return service
