"""What an agent keeps between its lives: the UUID of its device, under a lock (DESIGN 5.4)."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path

from wanderbus.errors import StorageError
from wanderbus.runtime.locks import lock_file


def default_state_dir(uri: str) -> Path:
    """Return where the agent of ``uri`` keeps its state unless told otherwise (XDG Base Directory)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "wanderbus" / re.sub(r"[^A-Za-z0-9@._+-]", "_", uri.removeprefix("sip:"))


class Device:
    """This device's identity. Ephemeral where the directory is in use by another agent: then another device."""

    def __init__(self, directory: Path) -> None:
        self.uuid = str(uuid.uuid4())
        self.ephemeral = True
        self._lock: int | None = None
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = lock_file(directory / "device")
        except OSError as error:
            raise StorageError(
                f"the agent's state directory {directory} cannot be used ({error.strerror}); give another as state_dir"
            ) from None
        if self._lock is not None:
            self.ephemeral = False
            self._load(directory)

    def close(self) -> None:
        """Let another agent have the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _load(self, directory: Path) -> None:
        assert self._lock is not None
        stored = os.pread(self._lock, 64, 0).decode("ascii", "replace").strip()
        if not stored:
            os.pwrite(self._lock, self.uuid.encode() + b"\n", 0)
            os.fsync(self._lock)
            return
        try:
            self.uuid = str(uuid.UUID(stored))
        except ValueError:
            self.close()
            raise StorageError(
                f"{directory / 'device'} does not hold a UUID; delete it to become a new device"
            ) from None
