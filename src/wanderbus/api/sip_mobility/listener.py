"""Who hears of what happens in SIPMobility: the Observer pattern of the paper (SPEC C-03, C-04).

Every module notifies through :class:`SIPMobilityListenerManager` and through nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from wanderbus.mobility.session.session import SIPSession

_log = logging.getLogger("wanderbus.sip_mobility")


class SIPMobilityListener:
    """What an application may hear of; override what matters. Each callback returns at once and is not awaited.

    A session is given as it was when the thing happened; ``communication`` and ``media_status`` are its two states.
    """

    def registered(self, expires_s: float) -> None:
        """The registrar holds a binding for our present address; later refreshes of it are silent."""

    def unregistered(self, reason: str) -> None:
        """The binding was removed, or the registrar no longer accepts us."""

    def session_created(self, session: SIPSession) -> None:
        """A session began: we invite (INVITING) or are invited (RINGING_HERE)."""

    def session_removed(self, session: SIPSession, reason: str) -> None:
        """The session is gone, whoever ended it and whether or not it was ever connected."""

    def session_changed(self, session: SIPSession) -> None:
        """An update gave either side other media, another direction or another SIP address (SPEC D-08 step 3).

        ``session.held`` is True while the other side has put us on hold: nothing is to be sent to it (RFC 3264 8.4).
        """

    def session_connected(self, session: SIPSession) -> None:
        """The session was established."""

    def session_disconnected(self, session: SIPSession) -> None:
        """The communication status became DISCONNECTED: BYE, refusal, or nobody answers."""

    def session_reconnected(self, session: SIPSession) -> None:
        """A re-INVITE of either side was accepted: data may flow again (SPEC D-08 step 4)."""

    def remote_media_connected(self, session: SIPSession) -> None:
        """The remote media status became CONNECTED."""

    def remote_media_disconnected(self, session: SIPSession) -> None:
        """The remote media status became DISCONNECTED: as the application said (SPEC C-14), or the session ended."""

    def local_ip_changed(self, address: str) -> None:
        """This device is reached at the IP ``address`` now; REGISTER and re-INVITEs follow this callback."""


class SIPMobilityListenerManager:
    """Any number of listeners, told in the order in which they were added; one that raises does not stop the others."""

    def __init__(self) -> None:
        self._listeners: list[SIPMobilityListener] = []

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: SIPMobilityListener) -> None:
        """Tell ``listener`` from now on; once, however often it is added."""
        if not any(each is listener for each in self._listeners):
            self._listeners.append(listener)

    def remove(self, listener: SIPMobilityListener) -> None:
        """Tell ``listener`` no more; no harm if it was not told."""
        self._listeners = [each for each in self._listeners if each is not listener]

    def notify(self, tell: Callable[[SIPMobilityListener], None]) -> None:
        """Let ``tell`` call one callback of each listener; what a listener raises goes to the log."""
        for listener in tuple(self._listeners):
            try:
                tell(listener)
            except Exception:
                _log.exception("the listener %s failed", type(listener).__name__)
