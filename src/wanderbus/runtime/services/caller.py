"""The calling end: a server asks a service. One thread uses a caller at a time."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import TypeVar

import msgspec

from wanderbus.errors import RemoteProtocolError, StateCorrupt, StorageError
from wanderbus.runtime.files.kept_key import kept_key
from wanderbus.runtime.services.frames import (
    AnswerFrame,
    RequestFrame,
    ServiceAbsent,
    ServiceAway,
    introduce,
    receive,
    send,
)
from wanderbus.runtime.services.places import address_of, places_of

Body = TypeVar("Body")


class ServiceCaller:
    """A connection to the service ``name``, opened when it is needed; an answer may take ``timeout_s``."""

    def __init__(self, data_dir: Path, name: str, timeout_s: float) -> None:
        self._places = places_of(data_dir, name)
        self._name = name
        self._timeout_s = timeout_s
        self._connection: socket.socket | None = None
        self._is_closed = False
        self._number = 0

    @property
    def is_known(self) -> bool:
        """Return whether this server has had such a service, so that waiting for it makes sense."""
        return self._places.key.exists()

    def ask(self, name: str, version: int, body: msgspec.Struct, kind: type[Body]) -> Body:
        """Return the answer to a request, which has to be one that may be repeated.

        :raises StorageError: the service refuses the request
        :raises ServiceAway: the service does not answer, or not now; :class:`ServiceAbsent` if it does not run
        :raises AuthenticationError: the service refuses the user of this process
        """
        # An open connection may have ended with its service, which has been started again since.
        is_old = self._connection is not None
        answer = self._exchange(name, version, body, is_last=not is_old) or self._exchange(name, version, body)
        assert answer is not None
        if answer.failure == "refused":
            raise StorageError(answer.reason)
        if answer.failure:
            raise ServiceAway(answer.reason)
        try:
            return msgspec.msgpack.decode(answer.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ServiceAway(f"the service {self._name} answers {name} in another form: {error}") from None

    def close(self) -> None:
        """End the connection, also while another thread waits for an answer; then every request fails."""
        self._is_closed = True
        self._drop()

    def _exchange(self, name: str, version: int, body: msgspec.Struct, *, is_last: bool = True) -> AnswerFrame | None:
        """Return the answer, None if the connection has ended and this attempt is not the last one."""
        try:
            connection = self._connection or self._connect()
            self._number += 1
            send(connection, RequestFrame(self._number, name, version, msgspec.Raw(msgspec.msgpack.encode(body))))
            answer = receive(connection, AnswerFrame)
        except TimeoutError:
            self._drop()
            raise ServiceAway(f"the service {self._name} has not answered for {self._timeout_s:g} s") from None
        except (StateCorrupt, RemoteProtocolError) as error:
            self._drop()
            raise ServiceAway(str(error)) from None
        except OSError as error:
            self._drop()
            if is_last:
                if isinstance(error, FileNotFoundError | ConnectionRefusedError):
                    raise ServiceAbsent(f"the service {self._name} does not run") from None
                raise ServiceAway(f"the service {self._name} does not answer: {error.strerror}") from None
            return None
        if answer is None or answer.number != self._number:
            self._drop()
            if is_last:
                raise ServiceAway(f"the service {self._name} ended before it answered")
            return None
        return answer

    def _connect(self) -> socket.socket:
        if self._is_closed:
            raise ServiceAway("the server stops")
        connection = self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self._timeout_s)
        with address_of(self._places.socket) as address:
            connection.connect(address)
        introduce(connection, self._name, kept_key(self._places.key))
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits
            connection.close()
