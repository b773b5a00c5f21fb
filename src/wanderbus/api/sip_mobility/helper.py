"""Builds and sends SIP messages from their main parameters, and checks these (SPEC C-09).

This is the only module of SIPMobility that uses the stack (:mod:`.stack`): the managers call it with requests such as
"invite this user with these media". It can be used without them too::

    helper = SIPHelper()
    helper.open(SIPHelper.properties("alice@localhost", "127.0.0.1:5060", password="secret"))
    answer = await helper.request("OPTIONS", "sip:bob@localhost")
    await helper.close()
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from wanderbus.api.sip_mobility.ports import Transport
from wanderbus.api.sip_mobility.stack import SIPStack
from wanderbus.errors import Closed, ConfigurationError, LocalProtocolError, NoResponse, SIPParseError, Unreachable
from wanderbus.machine import Address, Output, shown
from wanderbus.mobility.messages import (
    AcceptOffer,
    AddressChanged,
    ChangeMedia,
    CreateSession,
    Refuse,
    Ring,
    SetMediaStatus,
    Start,
    TerminateSession,
    Unregister,
    UpdateSession,
)
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.request_handlers import OWNER_TRANSACTION_PREFIX, OutgoingHandler, ReplyHandler, RequestHandler
from wanderbus.mobility.session.offer_answer import lines_of
from wanderbus.mobility.session.session import RemoteMediaStatus, SIPSession
from wanderbus.runtime.net.addresses import address_towards
from wanderbus.runtime.net.resolver import resolve, resolved, target_in
from wanderbus.runtime.system_random import SystemRandom
from wanderbus.sip.authentication.digest import DigestClient
from wanderbus.sip.message.message import Request, Response, encode_message, make_response
from wanderbus.sip.message.sdp import MediaDescription, SessionDescription
from wanderbus.sip.message.targets import Target
from wanderbus.sip.message.uri import bracketed, canonical_uri
from wanderbus.sip.transaction.transaction_layer import ResponseReceived, SendRequest, TransactionTimedOut

_log = logging.getLogger("wanderbus.sip_mobility")

CLOSE_S_MAX: Final = 5.0
"""Time for which :meth:`SIPHelper.close` waits for the responses to its BYEs and its REGISTER, in seconds."""

CHALLENGES_MAX: Final = 3
"""Largest number of repetitions of one request because of digest challenges."""

SESSION_METHODS: Final = ("INVITE", "ACK", "CANCEL", "BYE", "UPDATE", "PRACK")
"""Methods of sessions, which :meth:`SIPHelper.request` never sends."""


class SIPHelper:
    """Interface from SIPMobility to the SIP stack; ``on_report`` receives the stack's reports."""

    def __init__(self, on_report: Callable[[Output], None] | None = None) -> None:
        self._on_report = on_report
        self._random = SystemRandom()
        self._stack = SIPStack(self._report)
        self._properties: Properties | None = None
        self._digest: DigestClient | None = None
        self._exchanges: dict[str, asyncio.Future[Response]] = {}
        self._sent = 0

    # Checking and converting -----------------------------------------------------------------------------------------

    @staticmethod
    def check_uri(text: str) -> str:
        """Return the user URI as ``sip:user@domain``; ConfigurationError if it is invalid (SPEC X2)."""
        try:
            return canonical_uri(text)
        except SIPParseError as error:
            raise ConfigurationError(f"{text!r} is not a user's URI, write sip:user@domain: {error}") from None

    @staticmethod
    def check_address(text: str) -> str:
        """Return the IP address ``text``; ConfigurationError if it is invalid, or means all addresses."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            raise ConfigurationError(f"{text!r} is not an IP address") from None
        if address.is_unspecified:
            raise ConfigurationError(f"{text} is not an address that others can reach: give one address of this device")
        return str(address)

    @staticmethod
    def properties(
        uri: str,
        server: str,
        *,
        username: str = "",
        password: str | None = None,
        instance: str | None = None,
        register_expires_s: int = 60,
        transport: Transport = "UDP",
        session_expires_s: int | None = None,
        keep_alive_s: float | None = None,
    ) -> Properties:
        """Return checked properties for :meth:`open`; ConfigurationError names the wrong one (SPEC C-07).

        Without ``instance`` a new device id is created, so that its registrations replace each other when it moves.
        """
        if register_expires_s < 1:
            raise ConfigurationError(f"a registration of {register_expires_s} s is too short: use 1 or more")
        user = SIPHelper.check_uri(uri)
        try:
            return Properties(
                uri=user,
                server=target_in(server),
                username=username,
                password=password,
                instance=instance or f"<{uuid.uuid4().urn}>",
                register_expires_s=register_expires_s,
                transport=transport,
                session_expires_s=session_expires_s,
                keep_alive_s=keep_alive_s,
                any_media=True,
                takes_offerless=True,
            )
        except LocalProtocolError as error:
            raise ConfigurationError(str(error)) from None

    @staticmethod
    def describe(user: str, session_id: int, version: int, media: MediaDescription) -> bytes:
        """Return the SDP of ``media`` and its ``beside``; LocalProtocolError for a part that would break a line."""
        return SessionDescription(user, session_id, version, media.address, lines_of(media)).encode()

    # The stack -------------------------------------------------------------------------------------------------------

    @staticmethod
    async def located(properties: Properties, wait_s_max: float) -> Properties:
        """Return ``properties`` with the server's address in place of its name, resolved outside the event loop.

        Raises ConfigurationError if the host is unknown, NoResponse if no name server responds in time.
        """
        return msgspec.structs.replace(properties, server=await resolved(properties.server, wait_s_max))

    def open(self, properties: Properties, local_address: str | None = None, sip_port: int = 0) -> None:
        """Bind a socket and listen, by default at the address that routes to the server.

        A server's name is resolved here, which blocks, unless :meth:`located` has done so. Raises ConfigurationError if
        that or the binding fails, Unreachable without a route.
        """
        properties = msgspec.structs.replace(properties, server=resolve(shown(properties.server)))
        local = local_address or address_towards(properties.server)
        if local is None:
            raise Unreachable(f"there is no route to {properties.server[0]}; check the network")
        self._stack.open(properties, (local, sip_port))
        self._properties = properties
        secret = properties.password
        self._digest = None if secret is None else DigestClient(properties.username, secret, self._random)

    async def close(self, wait_s_max: float = CLOSE_S_MAX) -> None:
        """End every session and the registration, and close the socket; ignored while closed."""
        await self._stack.close(wait_s_max)
        for waiting in self._exchanges.values():
            if not waiting.done():
                waiting.set_exception(Closed("SIPMobility was terminated"))
        self._exchanges.clear()

    @property
    def contact(self) -> Address:
        """Our SIP address; :class:`Closed` while not open."""
        return self._stack.contact

    @property
    def sessions(self) -> Mapping[str, SIPSession]:
        """Every session by id; a live view."""
        return self._stack.sessions

    def rebind(self, local_address: str, sip_port: int = 0) -> Address:
        """Listen at ``local_address`` instead; return our new address; ConfigurationError on failure."""
        return self._stack.rebind((local_address, sip_port))

    # Registration ----------------------------------------------------------------------------------------------------

    def register(self) -> None:
        """Send REGISTER and keep the binding alive."""
        self._stack.feed(Start())

    def register_at(self, contact: Address) -> None:
        """Send REGISTER for our new address ``contact``, without waiting for any response (SPEC D-08, X12)."""
        self._stack.feed(AddressChanged(contact))

    def unregister(self) -> None:
        """Send REGISTER with Expires 0."""
        self._stack.feed(Unregister())

    # Sessions --------------------------------------------------------------------------------------------------------

    def invite(self, uri: str, media: MediaDescription) -> str:
        """Send INVITE to the user ``uri``; return the id of the new session."""
        session = self.fresh_id()
        self._stack.feed(CreateSession(session, self.check_uri(uri), media))
        return session

    def reinvite(self, session: str, media: MediaDescription) -> None:
        """Send re-INVITE in ``session``."""
        self._stack.feed(UpdateSession(session, media))

    def change_media(self, media: MediaDescription) -> None:
        """Send re-INVITE with ``media`` in every session."""
        self._stack.feed(ChangeMedia(media))

    def bye(self, session: str) -> None:
        """Send BYE in ``session``, CANCEL if it is not established yet, 480 if we were invited."""
        self._stack.feed(TerminateSession(session))

    def ring(self, session: str) -> None:
        """Respond 180 to the INVITE that waits in ``session``, while our user decides."""
        self._stack.feed(Ring(session))

    def accept(self, session: str, media: MediaDescription) -> None:
        """Respond 200 to the INVITE that waits in ``session``, or 488 if it offers nothing like ``media``."""
        self._stack.feed(AcceptOffer(session, media))

    def refuse(self, session: str, status: int) -> None:
        """Respond ``status`` to the INVITE that waits in ``session``; LocalProtocolError unless that refuses."""
        if not 300 <= status <= 699:
            raise LocalProtocolError(f"an INVITE cannot be refused with {status}: use a status from 300 to 699")
        self._stack.feed(Refuse(session, status))

    def set_media_status(self, session: str, status: RemoteMediaStatus) -> None:
        """Store the application's status of its data (SPEC C-14)."""
        self._stack.feed(SetMediaStatus(session, status))

    # Messages of any method ------------------------------------------------------------------------------------------

    def build(
        self,
        method: str,
        uri: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        content_type: str = "text/plain",
        cseq: int = 1,
    ) -> Request:
        """Return a request outside of any dialog from us to ``uri`` (RFC 3261 8.1.1); the stack adds Via."""
        properties = self._opened()
        host, port = self.contact
        transport = "" if properties.transport == "UDP" else f";transport={properties.transport.lower()}"
        typed = (("Content-Type", content_type),) if body else ()
        fields = (
            ("Max-Forwards", "70"),
            ("From", f"<{properties.uri}>;tag={self.fresh_id()}"),
            ("To", f"<{uri}>"),
            ("Call-ID", self.fresh_id()),
            ("CSeq", f"{cseq} {method}"),
            ("Contact", f"<sip:{properties.user}@{bracketed(host)}:{port}{transport}>"),
        )
        request = Request(method, uri, (*fields, *headers, *typed), body)
        encode_message(request)
        return request

    def reply(
        self, request: Request, status: int, *, headers: Sequence[tuple[str, str]] = (), body: bytes = b""
    ) -> Response:
        """Return a reply to ``request``, for a handler of :meth:`serve` (RFC 3261 8.2.6)."""
        return make_response(request, status, to_tag=self.fresh_id(), headers=headers, body=body)

    async def request(
        self,
        method: str,
        uri: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        content_type: str = "text/plain",
        destination: Address | None = None,
    ) -> Response:
        """Send a request outside any session and return the final response; challenges are answered.

        It is sent through the home server unless ``destination`` is given. Raises NoResponse on a timeout, and
        LocalProtocolError for methods that create or end sessions.
        """
        if method in SESSION_METHODS:
            raise LocalProtocolError(f"{method} belongs to a session: use the methods for sessions")
        request = self.build(method, uri, headers=headers, body=body, content_type=content_type)
        for attempt in range(CHALLENGES_MAX):
            proven = request if self._digest is None else self._digest.authorize(request)
            response = await self._exchange(proven, destination or self._opened().server_target)
            challenged = response.status in (401, 407) and self._digest is not None
            if not challenged or self._digest is None or not self._digest.learn(response):
                break
            request = request.replacing("CSeq", f"{attempt + 2} {method}")
        return response

    def serve(self, method: str, handler: RequestHandler | None) -> None:
        """Call ``handler`` for the reply to each request of ``method`` before the stack serves it (SPEC C-08).

        A reply that accepts an INVITE is logged and not sent: sessions belong to the stack. Raises LocalProtocolError
        for ACK and CANCEL, to which no handler can reply.
        """
        self._stack.replies.serve(method, handler)

    def alter(self, method: str, handler: ReplyHandler | None) -> None:
        """Let ``handler`` change each reply to a request of ``method`` just before it is sent (SPEC C-08).

        This includes replies of the stack's transactions (100, the response to CANCEL, 400). A forbidden change, of the
        outcome or of the parts that identify transactions and dialogs, is logged with its name, and the reply is sent
        unchanged. Raises LocalProtocolError for ACK, which has no reply.
        """
        self._stack.replies.alter(method, handler)

    def alter_requests(self, method: str, handler: OutgoingHandler | None) -> None:
        """Let ``handler`` change each request of ``method`` just before it is sent, also ACK and CANCEL (SPEC C-08).

        The handler receives the request with the Via of the stack. The forbidden changes are those of :meth:`alter`.
        """
        self._stack.replies.alter_requests(method, handler)

    def fresh_id(self) -> str:
        """Return an unpredictable word, fit for a tag or a Call-ID (RFC 3261 19.3, 8.1.1.4)."""
        return self._random.token(12).hex()

    async def _exchange(self, request: Request, destination: Address | Target) -> Response:
        self._sent += 1
        name = f"{OWNER_TRANSACTION_PREFIX}{self._sent}"
        answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._exchanges[name] = answered
        try:
            self._stack.feed(SendRequest(name, request, destination))
            return await answered
        finally:
            self._exchanges.pop(name, None)

    def _opened(self) -> Properties:
        if self._properties is None:
            raise Closed("SIPMobility is not initialised; use it inside its async with block")
        return self._properties

    def _report(self, output: Output) -> None:
        match output:
            case ResponseReceived(transaction=name, response=response):
                waiting = self._exchanges.get(name)
                if waiting is not None and not waiting.done() and response.status >= 200:
                    waiting.set_result(response)
            case TransactionTimedOut(transaction=name):
                waiting = self._exchanges.get(name)
                if waiting is not None and not waiting.done():
                    waiting.set_exception(NoResponse("the request had no response"))
            case _ if self._on_report is not None:
                self._on_report(output)
