"""Subscriptions that an agent could not end, because the broker could not be reached, until a later agent ends them.

They are stored in the state directory of the device. A device without one is a new device at its next start; then the
server ends them, when it removes the old device.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from wanderbus import protocol
from wanderbus.client.machine.messages import AgentProperties, RequestSettled
from wanderbus.client.readers import ReaderRequests
from wanderbus.runtime.files.disk import SYSTEM, replace_file

_log = logging.getLogger("wanderbus.agent")

LEFT_MAX: Final = 1_024
"""Largest number of remembered subscriptions; the oldest is forgotten first."""


class LeftSubscription(msgspec.Struct, frozen=True):
    """A subscription in the session of a user at a broker."""

    user: str
    broker: str
    session: str
    subscription: str


class LeftSubscriptions:
    """The subscriptions that a device has left without an end, in any session.

    :param properties: user, broker and session of the agent
    :param path: the file that stores them; None if the device has no state directory of its own
    """

    def __init__(self, requests: ReaderRequests, properties: AgentProperties, path: Path | None) -> None:
        self._requests = requests
        self._place = properties.uri, properties.broker, properties.session
        self._path = path

    def add(self, subscription: str) -> None:
        """Store a subscription of the agent's session."""
        left = LeftSubscription(*self._place, subscription)
        known = self._load()
        if left not in known:
            self._store([*known, left][-LEFT_MAX:])

    def remove(self, subscription: str) -> None:
        """Forget a subscription that has ended, or that the application reads again."""
        known = self._load()
        others = [each for each in known if each.subscription != subscription]
        if len(others) < len(known):
            self._store(others)

    def end_all(self) -> None:
        """Request the end of those in the agent's session; each is forgotten when the broker has confirmed it."""
        for each in self._load():
            if (each.user, each.broker, each.session) == self._place:
                request = protocol.Unsubscribe(self._requests.next_request(), each.subscription, abandon=True)
                self._requests.begin(request).add_done_callback(partial(self._ended, each.subscription))

    def _ended(self, subscription: str, answered: asyncio.Future[RequestSettled]) -> None:
        if not answered.cancelled() and answered.exception() is None:
            self.remove(subscription)

    def _load(self) -> list[LeftSubscription]:
        if self._path is None:
            return []
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[LeftSubscription])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.warning(
                "%s cannot be read (%s): subscriptions that were left without a network stay", self._path, error
            )
            return []

    def _store(self, left: list[LeftSubscription]) -> None:
        if self._path is None:
            return
        try:
            replace_file(SYSTEM, self._path, msgspec.json.encode(left))
        except OSError as error:
            _log.warning("%s cannot be written (%s): subscriptions that were left stay", self._path, error)
