"""Registrations of a running server: saved to disk, and restored at the next start."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from wanderbus.errors import StorageError
from wanderbus.machine import Output
from wanderbus.runtime.files.binding_store import BindingStore
from wanderbus.runtime.system_random import wall_us
from wanderbus.sip.proxy.bindings import Binding
from wanderbus.sip.proxy.sip_server import SIPServer

_log = logging.getLogger("wanderbus.registrations")


class Registrations:
    """A store, and the changes not yet written to it; made by :meth:`open` on a running loop."""

    def __init__(self, store: BindingStore) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._unsaved: dict[str, tuple[Binding, ...]] = {}
        self._turn: asyncio.Handle | None = None

    @classmethod
    def open(cls, path: Path) -> Registrations:
        """Open or create the file at ``path``; :class:`StorageError` if that fails."""
        return cls(BindingStore.open(path))

    def restore_into(self, machine: SIPServer, *, without: str) -> list[Output]:
        """Restore the stored registrations into ``machine``, except for those of the instance ``without``.

        Returns the outputs of the machine. Registrations that it does not accept are removed from the file.
        """
        now = self._loop.time()
        loaded = self._store.load(_wall_s(), now)
        kept = {aor: [each for each in bindings if each.instance != without] for aor, bindings in loaded.items()}
        outputs = machine.restore({aor: bindings for aor, bindings in kept.items() if bindings}, now)
        for aor in loaded.keys() - set(machine.location):
            self.note(aor, ())
        return outputs

    def note(self, aor: str, bindings: tuple[Binding, ...]) -> None:
        """Write ``bindings`` at the end of this turn of the loop, together with all others of the turn."""
        self._unsaved[aor] = bindings
        if self._turn is None:
            self._turn = self._loop.call_soon(self._save)

    def close(self) -> None:
        """Write pending changes and close the file."""
        if self._turn is not None:
            self._turn.cancel()
        self._save()
        self._store.close()

    def _save(self) -> None:
        """Write the changes. After a failure the registrar goes on: devices register again, which restores the loss."""
        self._turn = None
        unsaved, self._unsaved = self._unsaved, {}
        if not unsaved:
            return
        try:
            self._store.save(unsaved, _wall_s(), self._loop.time())
        except StorageError as error:
            _log.warning("cannot save registrations for the next start: %s", error)


def _wall_s() -> float:
    return wall_us() / 1e6
