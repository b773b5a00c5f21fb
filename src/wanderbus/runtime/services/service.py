"""The serving end: a socket in the data directory of a server, and a thread for each connection."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from wanderbus.errors import ConfigurationError, StorageError, WanderbusError
from wanderbus.runtime.files.disk import SYSTEM, make_directory
from wanderbus.runtime.files.file_modes import lock_file
from wanderbus.runtime.files.kept_key import kept_key
from wanderbus.runtime.services.frames import (
    AnswerFrame,
    RequestFrame,
    ServiceAway,
    admit,
    peer_user,
    receive,
    refuse,
    send,
)
from wanderbus.runtime.services.places import address_of, places_of

_log = logging.getLogger("wanderbus.service")

Handlers = Mapping[tuple[str, int], Callable[[msgspec.Raw], object]]
"""Functions by name and version of the request: each takes the body of a request and returns that of the answer.

A :class:`WanderbusError` refuses the request; :class:`ServiceAway` or any other error lets the caller ask again later.
"""

ADMISSION_S_MAX: Final = 5.0
"""Timeout for the proof of a caller."""

CONNECTIONS_MAX: Final = 64

_END_S_MAX: Final = 5.0
"""Time that a connection has to end when the service stops; what it computes then is of no use any more."""


def _admit_all(user: int) -> str:
    return ""


class Service:
    """A service of the server whose data directory is ``data_dir``, between :meth:`start` and :meth:`close`.

    :param refusal: returns why a caller whose process runs under this user id gets no answer, empty if it gets one
    """

    def __init__(
        self, data_dir: Path, name: str, handlers: Handlers, refusal: Callable[[int], str] = _admit_all
    ) -> None:
        self.name = name
        self.path = places_of(data_dir, name).socket
        """Path of the socket."""
        self.answered = 0
        """Number of requests that were answered."""
        self._data_dir = data_dir
        self._handlers = handlers
        self._refusal = refusal
        self._key = b""
        self._lock: int | None = None
        self._listener: socket.socket | None = None
        self._threads: dict[threading.Thread, socket.socket] = {}
        self._accepting: threading.Thread | None = None

    def __enter__(self) -> Service:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Begin to serve.

        :raises ConfigurationError: there is no such data directory, or another process serves it
        :raises StorageError: its files cannot be used
        """
        if not self._data_dir.is_dir():
            raise ConfigurationError(f"{self._data_dir} is not a directory; give the data directory of a server")
        try:
            self._open()
        except OSError as error:
            self.close()
            raise StorageError(f"{self.path} cannot be used: {error.strerror}") from None
        except BaseException:
            self.close()
            raise
        self._accepting = threading.Thread(target=self._accept, name=f"wanderbus-{self.name}", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """End the connections and remove the socket; the key stays."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        if self._accepting is not None:
            self._accepting.join()
            self._accepting = None
        for thread, connection in list(self._threads.items()):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(_END_S_MAX)
        if self._lock is not None:
            self.path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def _open(self) -> None:
        places = places_of(self._data_dir, self.name)
        make_directory(SYSTEM, places.socket.parent, 0o700)
        self._lock = lock_file(places.lock)
        if self._lock is None:
            raise ConfigurationError(f"another process is the service {self.name} of {self._data_dir}; stop it first")
        self._key = kept_key(places.key)
        places.socket.unlink(missing_ok=True)  # that of a process that was killed
        listener = self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with address_of(places.socket) as address:
            listener.bind(address)
        places.socket.chmod(0o600)
        listener.listen()

    def _accept(self) -> None:
        listener = self._listener
        assert listener is not None
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                if self._listener is None:
                    return
                continue
            if len(self._threads) >= CONNECTIONS_MAX:
                connection.close()
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads[thread] = connection
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(ADMISSION_S_MAX)
                if reason := self._refusal(peer_user(connection)):
                    refuse(connection, self.name, reason)
                    return
                admit(connection, self.name, self._key)
                connection.settimeout(None)
                while (request := receive(connection, RequestFrame)) is not None:
                    send(connection, self._answer(request))
                    self.answered += 1
            except (WanderbusError, OSError) as error:
                _log.info("a connection to the service %s has ended: %s", self.name, error)
            finally:
                self._threads.pop(threading.current_thread(), None)

    def _answer(self, request: RequestFrame) -> AnswerFrame:
        handler = self._handlers.get((request.name, request.version))
        if handler is None:
            reason = f"the service {self.name} has no request {request.name} in version {request.version}"
            return AnswerFrame(request.number, failure="unknown", reason=reason)
        try:
            return AnswerFrame(request.number, msgspec.Raw(msgspec.msgpack.encode(handler(request.body))))
        except ServiceAway as error:
            _log.warning("the service %s cannot answer %s now: %s", self.name, request.name, error)
            return AnswerFrame(request.number, failure="unavailable", reason=str(error))
        except WanderbusError as error:
            return AnswerFrame(request.number, failure="refused", reason=str(error))
        except Exception as error:
            _log.exception("the service %s failed to answer %s", self.name, request.name)
            return AnswerFrame(request.number, failure="unavailable", reason=f"{type(error).__name__}: {error}")
