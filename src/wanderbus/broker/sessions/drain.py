"""Drain of this server, as its operator sees it: requested, cancelled, and how far it is (SPEC L-06; decision 0142)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from wanderbus import protocol, records
from wanderbus.broker.basics import Basics
from wanderbus.broker.readers import Link
from wanderbus.broker.sessions.handover_messages import DrainingSet, SessionMoveEnded
from wanderbus.broker.state.rows import SessionRow, device_key, session_key
from wanderbus.broker.state.state import BrokerState
from wanderbus.errors import Refused


class Drain:
    """Answers requests about the drain of this server; the layer below moves the sessions."""

    def __init__(self, basics: Basics) -> None:
        self._state = basics.state
        self._journal = basics.journal
        self._links = basics.links
        self._servers = basics.servers
        self._channels = basics.channels
        self._stuck: dict[str, str] = {}
        """Sessions whose last move has failed, with the reason."""

    def answer(self, link: Link, request: protocol.Drain) -> None:
        """Begin or end a drain, if that is requested; answer how far it is."""
        if self._channels is None:
            raise Refused("this server is alone, there is no other one for its sessions")
        if request.on is not None and request.on != self._state.is_draining:
            changed = records.DrainingChanged(at_us=self._state.wall_us, is_draining=request.on)
            self._journal.write(changed, urgent=True)
            self._journal.emit(DrainingSet())
            self._stuck.clear()
        left = self._left()
        self._stuck = {key: reason for key, reason in self._stuck.items() if key in left}
        row = {
            "server": self._state.server,
            "is_draining": self._state.is_draining,
            "sessions": len(left),
            "stuck": dict(Counter(self._stuck.values())),
        }
        self._links.send(link, protocol.Listing(request.request, (row,)))

    def move_ended(self, ended: SessionMoveEnded) -> None:
        """Note why a session is still here."""
        key = session_key(ended.user, ended.session)
        if ended.reason:
            self._stuck[key] = ended.reason
        else:
            self._stuck.pop(key, None)

    def _left(self) -> set[str]:
        """Return the keys of the sessions that still have to move, or are on their way."""
        state, reserves = self._state, self._servers.reserves
        left = {each.key for each in state.sessions.values() if moves_in_drain(each, reserves)}
        for table in (state.exports, state.rests):
            left.update(key for key, _ in table.items())
        return left


def is_used(state: BrokerState, session: SessionRow) -> bool:
    """Return whether a device of a session is connected."""
    rows = (state.devices.get(device_key(session.user, device)) for device in session.devices)
    return any(row is not None and row.status == "CONNECTED" for row in rows)


def moves_in_drain(session: SessionRow, is_server: Callable[[str], bool]) -> bool:
    """Return whether a draining server still has to move a session.

    The users that ``is_server`` names stand for the other servers.
    """
    stays = session.is_fenced or session.is_over or session.is_visit
    return not stays and not is_server(session.user)
