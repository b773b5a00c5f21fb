"""UUID of an agent's device, kept over restarts in a locked file with a checksum (DESIGN 5.4)."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import uuid
import zlib
from pathlib import Path
from typing import Final

from wanderbus.errors import StorageError
from wanderbus.runtime.files.file_modes import lock_file, make_own_directory, warn_if_others_write

_log = logging.getLogger("wanderbus.agent")


SERVER_FILE: Final = "server"
"""Name of the file, in the directory of a device, with the server of a domain that knows what it has published."""

SERVER_NAME_MAX: Final = 256


def default_state_dir(uri: str) -> Path:
    """Return the default directory for the state of the agent of ``uri`` (XDG Base Directory)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "wanderbus" / re.sub(r"[^A-Za-z0-9@._+-]", "_", uri.removeprefix("sip:"))


class Device:
    """Identity of this device; an ephemeral one if another agent uses the directory, so the two remain distinct."""

    def __init__(self, directory: Path) -> None:
        self.uuid = str(uuid.uuid4())
        self.ephemeral = True
        self._directory = directory
        self._lock: int | None = None
        try:
            make_own_directory(directory)
            warn_if_others_write(directory, "the identity of a device")
            is_new = not (directory / "device").exists()
            self._lock = lock_file(directory / "device")
        except OSError as error:
            raise StorageError(
                f"the agent's state directory {directory} cannot be used ({error.strerror}); set another state_dir"
            ) from None
        if self._lock is not None:
            self.ephemeral = False
            try:
                self._load(directory / "device", is_new=is_new)
            except OSError as error:
                self.close()
                if is_new:
                    with contextlib.suppress(OSError):
                        (directory / "device").unlink()
                raise StorageError(f"{directory / 'device'} cannot be written: {error.strerror}") from None

    @property
    def server(self) -> str:
        """Return the server of a domain that :meth:`keep_server` was given last; "" if there is none."""
        if self.ephemeral:
            return ""
        with contextlib.suppress(OSError):
            return (self._directory / SERVER_FILE).read_text("utf-8", "replace")[:SERVER_NAME_MAX].strip()
        return ""

    def keep_server(self, name: str) -> None:
        """Note the server that knows what this device has published, for its later agents.

        Without a sync: only after a power cut it may be an earlier one, to which the server leads back.
        """
        if self.ephemeral:
            return
        fresh = self._directory / f"{SERVER_FILE}.new"
        try:
            fresh.write_text(name, "utf-8")
            fresh.replace(self._directory / SERVER_FILE)
        except OSError as error:
            _log.warning("%s cannot be written: %s", self._directory / SERVER_FILE, error.strerror)

    def close(self) -> None:
        """Unlock the directory for other agents."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _load(self, path: Path, *, is_new: bool) -> None:
        assert self._lock is not None
        stored = os.pread(self._lock, 128, 0).decode("ascii", "replace").split()
        if not stored:
            if not is_new:
                _log.warning("%s is empty: this becomes a new device, without the events of the old one", path)
            self._write()
            return
        try:
            identity = str(uuid.UUID(stored[0]))
        except ValueError:
            self.close()
            raise StorageError(f"{path} does not hold a UUID; delete it, and the agent becomes a new device") from None
        # Earlier versions wrote the UUID alone.
        if stored[1:] not in ([], [_checksum(identity)]):
            self.close()
            raise StorageError(f"{path} is damaged; delete it, and the agent becomes a new device")
        self.uuid = identity
        if stored == [identity]:
            self._write()

    def _write(self) -> None:
        assert self._lock is not None
        os.pwrite(self._lock, f"{self.uuid}\n{_checksum(self.uuid)}\n".encode(), 0)
        os.fsync(self._lock)


def _checksum(identity: str) -> str:
    return f"{zlib.crc32(identity.encode()):08x}"
