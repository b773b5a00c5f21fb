"""SIPMobility: facade for applications that keep sessions while their device moves (SPEC C-01, C-02).

::

    properties = SIPMobilityProperties(uri="alice@localhost", password="secret", media=(SDPMediaDescriptionData(4000),))
    async with SIPMobility(properties) as mobility:
        mobility.add_listener(MyListener())
        await mobility.register()
        session = await mobility.create_session("sip:bob@localhost")
        print(remote_media(session)[0].destination)      # send data there

The five groups of methods are those of the paper; each call is forwarded to the responsible module. The application
sends its data itself: SIPMobility provides the destination, and the application reports whether data arrive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from types import TracebackType
from typing import Self

from wanderbus.api.sip_mobility.helper import SIPHelper
from wanderbus.api.sip_mobility.listener import SIPMobilityListener, SIPMobilityListenerManager
from wanderbus.api.sip_mobility.media import SDPMediaDescriptionData
from wanderbus.api.sip_mobility.message_listener import SIPMessageListener
from wanderbus.api.sip_mobility.properties_manager import PropertiesManager, SIPMobilityProperties
from wanderbus.api.sip_mobility.registration_manager import RegistrationManager
from wanderbus.api.sip_mobility.session_manager import OfferHandler, SessionManager
from wanderbus.machine import Address
from wanderbus.mobility.request_handlers import OutgoingHandler, ReplyHandler, RequestHandler
from wanderbus.mobility.session.session import RemoteMediaStatus, SIPSession


class SIPMobility:
    """One user on one device. Raises ConfigurationError for unusable properties (SPEC C-07)."""

    def __init__(self, properties: SIPMobilityProperties) -> None:
        self.helper = SIPHelper(lambda output: self._message_listener.report(output))
        self.listener_manager = SIPMobilityListenerManager()
        self.properties_manager = PropertiesManager(
            self.helper, properties, changed=lambda: self.session_manager.update_all()
        )
        self.session_manager = SessionManager(self.helper, self.listener_manager, self.properties_manager.description)
        self.registration_manager = RegistrationManager(
            self.helper, self.listener_manager, moved=self.session_manager.update_all
        )
        self._message_listener = SIPMessageListener(self.session_manager, self.registration_manager)

    async def __aenter__(self) -> Self:
        await self.initialise()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.terminate()

    @property
    def address(self) -> Address:
        """Our SIP address; :class:`~wanderbus.errors.Closed` while not initialised."""
        return self.helper.contact

    # Initialisation and termination ----------------------------------------------------------------------------------

    async def initialise(self) -> None:
        """Start: bind a SIP port and watch the local address; ConfigurationError or Unreachable on failure."""
        await self.properties_manager.initialise()
        self.registration_manager.watch(self.properties_manager.values, self.properties_manager.stack.server)

    async def terminate(self) -> None:
        """End every session and the registration, then stop everything else; ignored before :meth:`initialise`."""
        try:
            await self.properties_manager.terminate()
        finally:
            self.registration_manager.stop()
            self.session_manager.stop()

    # Registration ----------------------------------------------------------------------------------------------------

    async def register(self) -> float:
        """Register this device: see :meth:`RegistrationManager.register`."""
        return await self.registration_manager.register()

    async def unregister(self) -> None:
        """Remove the registration: see :meth:`RegistrationManager.unregister`."""
        await self.registration_manager.unregister()

    async def rebind(self, address: str) -> None:
        """Use another local IP address: see :meth:`RegistrationManager.rebind`."""
        self.registration_manager.rebind(address)

    # Sessions --------------------------------------------------------------------------------------------------------

    @property
    def sessions(self) -> Mapping[str, SIPSession]:
        """Every session by id; a live, read-only view."""
        return self.session_manager.sessions

    async def create_session(self, uri: str) -> SIPSession:
        """Invite a user: see :meth:`SessionManager.create_session`."""
        return await self.session_manager.create_session(uri)

    async def terminate_session(self, session: str) -> None:
        """End a session: see :meth:`SessionManager.terminate_session`."""
        await self.session_manager.terminate_session(session)

    async def update_session(self, session: str) -> SIPSession:
        """Send our address to the peer again: see :meth:`SessionManager.update_session`."""
        return await self.session_manager.update_session(session)

    def set_media_status(self, session: str, status: RemoteMediaStatus) -> None:
        """Set whether data reach the peer: see :meth:`SessionManager.set_media_status`."""
        self.session_manager.set_media_status(session, status)

    def set_offer_handler(self, handler: OfferHandler | None) -> None:
        """Set the handler of incoming sessions: see :meth:`SessionManager.set_offer_handler`."""
        self.session_manager.set_offer_handler(handler)

    # Listeners -------------------------------------------------------------------------------------------------------

    def add_listener(self, listener: SIPMobilityListener) -> None:
        """Notify ``listener`` of all events: see :meth:`SIPMobilityListenerManager.add`."""
        self.listener_manager.add(listener)

    def remove_listener(self, listener: SIPMobilityListener) -> None:
        """Stop notifying ``listener``: see :meth:`SIPMobilityListenerManager.remove`."""
        self.listener_manager.remove(listener)

    # Local media -----------------------------------------------------------------------------------------------------
    # These take effect at once. Awaiting the result waits until every session has the change.

    def add_media_description(self, data: SDPMediaDescriptionData) -> Awaitable[None]:
        """Offer one more medium: see :meth:`PropertiesManager.add_media_description`."""
        return self.properties_manager.add_media_description(data)

    def media_descriptions(self) -> tuple[SDPMediaDescriptionData, ...]:
        """Return the local media: see :meth:`PropertiesManager.media_descriptions`."""
        return self.properties_manager.media_descriptions()

    def remove_media_description(self, data: SDPMediaDescriptionData) -> Awaitable[None]:
        """Stop offering a medium: see :meth:`PropertiesManager.remove_media_description`."""
        return self.properties_manager.remove_media_description(data)

    def change_media_description(
        self, former: SDPMediaDescriptionData, data: SDPMediaDescriptionData
    ) -> Awaitable[None]:
        """Replace a medium: see :meth:`PropertiesManager.change_media_description`."""
        return self.properties_manager.change_media_description(former, data)

    # The stack below (SPEC C-08) -------------------------------------------------------------------------------------

    def set_request_handler(self, method: str, handler: RequestHandler | None) -> None:
        """Reply to requests of ``method`` in place of the stack: see :meth:`SIPHelper.serve`."""
        self.helper.serve(method, handler)

    def set_reply_handler(self, method: str, handler: ReplyHandler | None) -> None:
        """Change each reply to requests of ``method``: see :meth:`SIPHelper.alter`."""
        self.helper.alter(method, handler)

    def set_outgoing_handler(self, method: str, handler: OutgoingHandler | None) -> None:
        """Change each request of ``method`` before it is sent: see :meth:`SIPHelper.alter_requests`."""
        self.helper.alter_requests(method, handler)
