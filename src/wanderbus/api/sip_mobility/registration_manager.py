"""Registers the user, and watches the address of the device (SPEC C-06, D-02 to D-05).

The machine refreshes, retries and authenticates (:mod:`wanderbus.mobility.registration_manager`); this module has the
futures, the callbacks and the address monitor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from wanderbus.api.sip_mobility.helper import SIPHelper
from wanderbus.api.sip_mobility.listener import SIPMobilityListenerManager
from wanderbus.api.sip_mobility.properties_manager import SIPMobilityProperties
from wanderbus.errors import (
    AuthenticationError,
    Closed,
    ConfigurationError,
    NoResponse,
    UnknownUser,
    WanderbusError,
    WrongPassword,
)
from wanderbus.machine import Address, Output
from wanderbus.mobility.messages import Registered, RegistrationFailed, Unregistered
from wanderbus.runtime.net.addresses import AddressMonitor

_log = logging.getLogger("wanderbus.sip_mobility")


class RegistrationManager:
    """The binding of one user; ``moved`` is called right after each REGISTER caused by a change of address."""

    def __init__(self, helper: SIPHelper, listeners: SIPMobilityListenerManager, moved: Callable[[], object]) -> None:
        self._helper = helper
        self._listeners = listeners
        self._moved = moved
        self._values: SIPMobilityProperties | None = None
        self._monitor: AddressMonitor | None = None
        self._bound: Address | None = None
        self._failure = "the registrar does not respond"
        self._registering: list[asyncio.Future[float]] = []
        self._unregistering: list[asyncio.Future[None]] = []

    @property
    def registered(self) -> bool:
        """True if the registrar had a binding for our present address at its last response."""
        return self._bound is not None and self._bound == self._helper.contact

    async def register(self) -> float:
        """Register and stay registered; return the granted time in seconds after the registrar's response.

        Raises WrongPassword, UnknownUser or AuthenticationError if the registrar refuses us, and NoResponse if it does
        not respond within ``wait_s_max``; the attempts then continue in the background until :meth:`unregister`.
        """
        values = self._watching()
        self._helper.register()
        granted: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._registering.append(granted)
        try:
            async with asyncio.timeout(values.wait_s_max):
                return await granted
        except WanderbusError:
            raise
        except TimeoutError:
            raise NoResponse(
                f"{values.uri} could not be registered at {values.server} in {values.wait_s_max:g} s: {self._failure}"
            ) from None
        finally:
            if granted in self._registering:
                self._registering.remove(granted)

    async def unregister(self) -> None:
        """Remove the binding; return after the registrar's response or a timeout. Sessions continue (SPEC D-04)."""
        self._helper.unregister()
        removed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unregistering.append(removed)
        await removed

    def rebind(self, address: str) -> None:
        """Use the local IP ``address`` and stop following the route (SPEC D-08).

        The listeners are notified first, then REGISTER is sent, then a re-INVITE for each session. Raises
        ConfigurationError if the address is unusable; the previous one then remains.
        """
        address = self._helper.check_address(address)
        self._move(address)
        self._stop_following()

    # What the facade and the message listener call -------------------------------------------------------------------

    def watch(self, values: SIPMobilityProperties, server: Address) -> None:
        """Start: follow the local address that routes to ``server``, unless one was given."""
        self._values = values
        self._bound = None
        if values.local_address is None:
            on_change: Callable[[str], Any] = self._followed
            self._monitor = AddressMonitor(server, on_change, poll_s=values.poll_s)

    def stop(self) -> None:
        """Stop: follow no more, and fail all pending requests."""
        self._stop_following()
        self._values = None
        self._bound = None
        self._fail(Closed("SIPMobility was terminated"))
        self._settle_unregistering()

    def report(self, output: Output) -> None:
        """Handle a report of the stack on the registration."""
        match output:
            case Registered(expires_s=expires_s):
                self._granted(expires_s)
            case RegistrationFailed(status=status, reason=reason):
                self._refused(status, reason)
            case Unregistered():
                self._unbound("unregistered")
                self._fail(Closed("the registration was ended"))
                self._settle_unregistering()

    def _granted(self, expires_s: float) -> None:
        new = not self.registered
        self._bound = self._helper.contact
        waiting, self._registering = self._registering, []
        for granted in waiting:
            if not granted.done():
                granted.set_result(expires_s)
        if new:
            self._listeners.notify(lambda listener: listener.registered(expires_s))

    def _refused(self, status: int | None, reason: str) -> None:
        self._failure = reason if status is None else f"{status} {reason}"
        error = self._refusal(status)
        if error is None:
            _log.warning("not registered (%s %s), retrying", status, reason)
            return
        self._unbound(self._failure)
        if self._registering:
            self._fail(error)
        else:
            _log.warning("the registrar refuses this user now: %s", error)

    def _refusal(self, status: int | None) -> AuthenticationError | None:
        """Return the error for a permanent refusal, None if the stack retries."""
        values = self._watching()
        match status:
            case 404:
                return UnknownUser(f"the server {values.server} has no user {values.uri}")
            case 401 | 403 | 407:
                return WrongPassword(
                    f"the server {values.server} does not accept the password of {values.uri}, or has no such user"
                )
        return None

    def _unbound(self, reason: str) -> None:
        if self._bound is not None:
            self._bound = None
            self._listeners.notify(lambda listener: listener.unregistered(reason))

    def _fail(self, error: WanderbusError) -> None:
        waiting, self._registering = self._registering, []
        for granted in waiting:
            if not granted.done():
                granted.set_exception(error)

    def _settle_unregistering(self) -> None:
        waiting, self._unregistering = self._unregistering, []
        for removed in waiting:
            if not removed.done():
                removed.set_result(None)

    def _watching(self) -> SIPMobilityProperties:
        if self._values is None:
            raise Closed("SIPMobility is not initialised; use it inside its async with block")
        return self._values

    def _followed(self, address: str) -> bool:
        """Move to the address from the monitor; return whether that succeeded, as it may need a retry."""
        try:
            self._move(address)
        except ConfigurationError as error:
            _log.warning("could not follow a change of address: %s", error)
            return False
        return True

    def _move(self, address: str) -> None:
        """Change the address (SPEC D-08): send REGISTER without waiting, then update the sessions.

        Requests made here are sent together at the end of this turn of the loop, so the listeners are notified of the
        new address before anybody else, and may set in their callback where they receive data.
        """
        former, _ = self._helper.contact
        contact = self._helper.rebind(address, self._watching().sip_port)
        self._helper.register_at(contact)
        if address != former:
            self._listeners.notify(lambda listener: listener.local_ip_changed(address))
        self._moved()

    def _stop_following(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
