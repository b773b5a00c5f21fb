"""Pasts of devices at servers where they were before: asked for, and sent to the servers where they are now.

See :mod:`wanderbus.broker.publish.former_servers`. A question is repeated on each new link until it is answered.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from wanderbus.broker.sessions.handover_messages import (
    FormerServerAsked,
    FormerServerSilent,
    PastFound,
    PastReported,
    PastWanted,
)
from wanderbus.broker.state.exported_session import decode_publishers
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
        self._asked: dict[tuple[str, str], FormerServerAsked] = {}
        """Questions without an answer, by user and device: the last one of each device."""

    def asked(self, given: FormerServerAsked) -> None:
        """Ask the former server of a device that is here now."""
        self._asked[given.user, given.device] = given
        if self._links.newest(given.server) is None:
            self._emit(FormerServerSilent(given.request))
        self._send(given.server, _question(given))

    def found(self, found: PastFound) -> None:
        """Answer the server to which a device has gone."""
        _, *answer = msgspec.structs.astuple(found)
        self._send(found.server, PastAnswered(*answer))

    def link_opened(self, server: str) -> None:
        """Repeat what a link that failed may have lost."""
        for each in self._asked.values():
            if each.server == server:
                self._send(server, _question(each))

    def link_closed(self, server: str) -> None:
        """Report the questions that cannot be answered now."""
        if self._links.newest(server) is None:
            for each in self._asked.values():
                if each.server == server:
                    self._emit(FormerServerSilent(each.request))

    def received(self, server: str, message: PastAsked | PastAnswered) -> None:
        """Take a message of another server; raise :class:`RemoteProtocolError` if it is not about what was asked."""
        if isinstance(message, PastAsked):
            self._emit(PastWanted(server, *msgspec.structs.astuple(message)))
            return
        asked = next((each for each in self._asked.values() if each.request == message.request), None)
        if asked is None or asked.server != server:
            return  # it was asked twice
        if any(each.device != asked.device or not each.decentralised for each in decode_publishers(message.publishers)):
            raise RemoteProtocolError("it tells what another device has published", None)
        del self._asked[asked.user, asked.device]
        self._emit(PastReported(server, *msgspec.structs.astuple(message)))

    def _send(self, server: str, message: Message) -> None:
        if (link := self._links.newest(server)) is not None:
            self._emit(SendOnServerLink(link, encode(message)))


def _question(asked: FormerServerAsked) -> PastAsked:
    return PastAsked(asked.request, asked.user, asked.session, asked.device, asked.named)
