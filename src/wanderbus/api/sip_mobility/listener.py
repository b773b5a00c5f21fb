"""Listeners for the events of SIPMobility: the Observer pattern of the paper (SPEC C-03, C-04).

Every module notifies through :class:`SIPMobilityListenerManager` only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from wanderbus.mobility.session.session import SIPSession

_log = logging.getLogger("wanderbus.sip_mobility")


class SIPMobilityListener:
    """Callbacks of an application; override the needed ones. Each callback must return at once and is not awaited.

    A session is given in its state at the time of the event; ``communication`` and ``media_status`` are its two states.
    """

    def registered(self, expires_s: float) -> None:
        """The registrar has a binding for our present address; later refreshes of it are not notified."""

    def unregistered(self, reason: str) -> None:
        """The binding was removed, or the registrar no longer accepts us."""

    def session_created(self, session: SIPSession) -> None:
        """A session began: we invite (INVITING) or are invited (RINGING_HERE)."""

    def session_removed(self, session: SIPSession, reason: str) -> None:
        """The session ended, for either side and whether or not it was ever connected."""

    def session_changed(self, session: SIPSession) -> None:
        """An update changed the media, the direction or the SIP address of either side (SPEC D-08 step 3).

        ``session.held`` is True while the peer has put us on hold: nothing must be sent to it (RFC 3264 8.4).
        """

    def session_connected(self, session: SIPSession) -> None:
        """The session was established."""

    def session_disconnected(self, session: SIPSession) -> None:
        """The communication status became DISCONNECTED: BYE, refusal, or timeout."""

    def session_reconnected(self, session: SIPSession) -> None:
        """A re-INVITE of either side was accepted: data may flow again (SPEC D-08 step 4)."""

    def remote_media_connected(self, session: SIPSession) -> None:
        """The remote media status became CONNECTED."""

    def remote_media_disconnected(self, session: SIPSession) -> None:
        """The remote media status became DISCONNECTED: set by the application (SPEC C-14), or the session ended."""

    def local_ip_changed(self, address: str) -> None:
        """This device now has the IP ``address``; REGISTER and re-INVITEs follow this callback."""


class SIPMobilityListenerManager:
    """Any number of listeners, notified in the order of addition; an exception of one does not affect the others."""

    def __init__(self) -> None:
        self._listeners: list[SIPMobilityListener] = []

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: SIPMobilityListener) -> None:
        """Add ``listener``; only once, however often it is added."""
        if not any(each is listener for each in self._listeners):
            self._listeners.append(listener)

    def remove(self, listener: SIPMobilityListener) -> None:
        """Remove ``listener``; ignored if it is not there."""
        self._listeners = [each for each in self._listeners if each is not listener]

    def notify(self, call: Callable[[SIPMobilityListener], None]) -> None:
        """Call ``call`` with each listener; log the exceptions of listeners."""
        for listener in tuple(self._listeners):
            try:
                call(listener)
            except Exception:
                _log.exception("the listener %s failed", type(listener).__name__)
