"""Pasts of devices at servers where they were before: asked for, and sent to the servers where they are now.

See :mod:`wanderbus.broker.publish.former_servers`. A question is repeated on each new link until it is answered.
"""

from __future__ import annotations

from collections.abc import Callable

from wanderbus.broker.sessions.handover_messages import (
    FormerServerAsked,
    FormerServerSilent,
    PastFound,
    PastReported,
    PastWanted,
)
from wanderbus.broker.state.exported_session import decode_publishers
from wanderbus.broker.state.rows import publisher_keys
from wanderbus.errors import RemoteProtocolError
from wanderbus.peers.handover.messages import Message, PastAnswered, PastAsked, encode
from wanderbus.peers.messages import SendOnServerLink
from wanderbus.peers.open_links import OpenLinks

PastsOutput = SendOnServerLink | FormerServerSilent | PastWanted | PastReported


class DevicePasts:
    """Carries the questions and answers; ``emit`` takes its outputs."""

    def __init__(self, links: OpenLinks, emit: Callable[[PastsOutput], None]) -> None:
        self._links = links
        self._emit = emit
        self._asked: dict[int, FormerServerAsked] = {}
        """Questions without an answer: the last one of each device."""
        self._requests: dict[tuple[str, str], int] = {}
        """Number of the question by user and device."""

    def asked(self, given: FormerServerAsked) -> None:
        """Ask the former server of a device that is here now."""
        key = given.question.user, given.question.device
        self._asked.pop(self._requests.get(key, given.request), None)
        self._asked[given.request], self._requests[key] = given, given.request
        if self._links.newest(given.server) is None:
            self._emit(FormerServerSilent(given.request))
        self._send(given.server, PastAsked(given.request, given.question))

    def found(self, found: PastFound) -> None:
        """Answer the server to which a device has gone."""
        self._send(found.server, PastAnswered(found.request, found.past))

    def link_opened(self, server: str) -> None:
        """Repeat what a link that failed may have lost."""
        for each in self._asked.values():
            if each.server == server:
                self._send(server, PastAsked(each.request, each.question))

    def link_closed(self, server: str) -> None:
        """Report the questions that cannot be answered now."""
        if self._links.newest(server) is None:
            for each in self._asked.values():
                if each.server == server:
                    self._emit(FormerServerSilent(each.request))

    def received(self, server: str, message: PastAsked | PastAnswered) -> None:
        """Take a message of another server; raise :class:`RemoteProtocolError` if it is not about what was asked."""
        if isinstance(message, PastAsked):
            self._emit(PastWanted(server, message.request, message.question))
            return
        asked = self._asked.get(message.request)
        if asked is None or asked.server != server:
            return  # it was asked twice
        user, device, publishers = asked.question.user, asked.question.device, message.past.publishers
        of_device = publisher_keys(user, device, decentralised=True)
        if publishers and not decode_publishers(publishers).keys() <= set(of_device):
            raise RemoteProtocolError("it tells what another device has published", None)
        del self._asked[message.request], self._requests[user, device]
        self._emit(PastReported(server, message.request, message.past))

    def _send(self, server: str, message: Message) -> None:
        self._links.send(server, encode(message), self._emit)
