"""Simulated party of the SIP layer: a user agent and an owner that calls, answers, moves and stores its sessions.

The owner is as simple as an application can be: it wants one session with each peer it calls, announces its address to
every session after a move (SPEC D-08), replaces a session that failed, answers every offer, and keeps one session with
each caller. Its disk holds the established sessions (:meth:`SIPSession.snapshot`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal

import msgspec

from wanderbus.machine import Address, Input, Output
from wanderbus.mobility.checked_admission import checked
from wanderbus.mobility.messages import (
    AcceptOffer,
    AddressChanged,
    CreateSession,
    Refuse,
    RegistrationFailed,
    Ring,
    SessionEstablished,
    SessionFailed,
    SessionOffered,
    SessionRemoved,
    Start,
    StopUserAgent,
    TerminateSession,
    UpdateFailed,
    UpdateSession,
)
from wanderbus.mobility.properties import Properties
from wanderbus.mobility.session.session import SIPCommunicationStatus, SIPSession
from wanderbus.mobility.user_agent import UserAgent
from wanderbus.simulation.host import SimulatedHost
from wanderbus.simulation.network import Network
from wanderbus.simulation.node import Node
from wanderbus.simulation.server import password_of
from wanderbus.simulation.sip.site import Home
from wanderbus.simulation.world import SeededRandom, World
from wanderbus.sip.authentication.digest import Authenticator
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.sip.message.targets import PORTS, Transport

SOCKET: Final = "sip"
SIP_PORT: Final = 5060
DATA_PORT: Final = 40_000
AUTHENTICATION_FAILURES: Final = (401, 403, 407)
"""Statuses that a client with the right password must never get."""


class Manner(msgspec.Struct, frozen=True):
    """Behaviour of a party and its owner."""

    register_expires_s: int = 60
    session_expires_s: int = 90
    """Session interval (RFC 4028): without it a lost BYE leaves the other side's session open for ever."""
    authenticates: bool = False
    """True if callers have to authenticate."""
    answer_s_max: float = 0.0
    """Longest time that the owner thinks about an offer."""
    rings: bool = False
    refusal: float = 0.0
    """Chance that the owner is busy when called."""
    pause_s_min: float = 0.2
    pause_s_max: float = 2.0
    """Time that the owner waits before it calls again after a failure."""
    method: Literal["INVITE", "UPDATE"] = "INVITE"
    """Method that announces moves."""
    transport: Transport = "UDP"
    """Transport to the server, and in the Contact."""


class SIPParty(SimulatedHost[UserAgent]):
    """One user of ``home`` on one device, across restarts.

    ``on_established`` is called with each session that both sides agreed on, and whether it was an update.
    """

    def __init__(
        self, name: str, ip: str, manner: Manner, world: World, network: Network, home: Home | None = None
    ) -> None:
        super().__init__(UserAgent)
        self.name = name
        self.home = home or Home()
        self.uri = f"sip:{name}@{self.home.domain}"
        self.ip = ip
        self.manner = manner
        self.wanted: dict[str, str | None] = {}
        """URI of each wanted peer, and the id of the present session with it."""
        self.disk: dict[str, bytes] = {}
        self.problems: list[str] = []
        self.on_established: Callable[[SIPParty, str, bool], None] = lambda party, id, update: None
        self._world = world
        self._network = network
        self._random = SeededRandom(world)
        self._instance = f"<urn:uuid:{self._random.token(16).hex()}>"
        self._calls = 0
        self._life = 0

    @property
    def contact(self) -> Address:
        """Return the party's contact address."""
        return self.ip, SIP_PORT

    @property
    def media(self) -> MediaDescription:
        """Return the address at which the party receives data."""
        return MediaDescription(address=self.ip, port=DATA_PORT)

    @property
    def streams(self) -> Mapping[str, Address]:
        """Return the addresses for streams; over TLS a party has no certificate, and accepts no connections."""
        ports = {"TCP": SIP_PORT, "TLS": 0}
        transport = self.manner.transport
        return {SOCKET: (self.ip, ports[transport])} if transport in ports else {}

    @property
    def sessions(self) -> Mapping[str, SIPSession]:
        """Return the sessions of the user agent, none while it is down."""
        return self.machine.sessions if self.running else {}

    def start(self, *, forgetful: bool = False) -> None:
        """Start with the contents of the disk, or without if ``forgetful``."""
        self._life += 1
        if forgetful:
            self.disk.clear()
        agent = self._new_agent()
        adopted = [agent.adopt(snapshot) for snapshot in self.disk.values()]
        self.node = Node(
            self.name,
            agent,
            {SOCKET: self.contact},
            self._world,
            self._network,
            self._report_later,
            streams=self.streams,
        )
        ours = {agent.sessions[id].remote_uri: id for id in adopted if agent.sessions[id].created_here}
        self.wanted = {uri: ours.get(uri) for uri in self.wanted}
        self.feed(Start(), *self._updates())
        for id in adopted:
            if agent.sessions[id].created_here and self.wanted.get(agent.sessions[id].remote_uri) != id:
                self._terminate(id)
        for uri in [uri for uri in self.wanted if uri not in ours]:
            self._call_later(uri)

    def move(self, ip: str) -> None:
        """Change the address to ``ip``; update the registration and every session (SPEC D-08)."""
        self.ip = ip
        if self.running:
            self.node.rebind({SOCKET: self.contact}, self.streams)
            self.feed(AddressChanged(self.contact), *self._updates())

    def call(self, uri: str) -> None:
        """Want a session with ``uri`` from now on."""
        if self.wanted.setdefault(uri, None) is None:
            self._create(uri)

    def end(self, uri: str) -> None:
        """Stop wanting a session with ``uri``."""
        self.wanted.pop(uri, None)
        for session in list(self.sessions.values()):
            if session.remote_uri == uri and session.created_here:
                self._terminate(session.id)

    def hang_up(self) -> None:
        """End all sessions that others called; they may call again."""
        for session in list(self.sessions.values()):
            if not session.created_here:
                self._terminate(session.id)

    def retire(self) -> None:
        """End every session and the registration, and want nothing more."""
        self.wanted.clear()
        self.disk.clear()
        self.feed(StopUserAgent())

    def talks_to(self, peer: SIPParty, id: str) -> bool:
        """Return whether session ``id`` is CONNECTED here and leads to the address of ``peer``."""
        session = self.sessions.get(id)
        return (
            session is not None
            and session.communication is SIPCommunicationStatus.CONNECTED
            and session.remote_media is not None
            and (session.remote_media.address, session.remote_media.port) == (peer.ip, DATA_PORT)
        )

    def _new_agent(self) -> UserAgent:
        properties = Properties(
            uri=self.uri,
            server=(self.home.address[0], PORTS[self.manner.transport]),
            server_is_local=bool(self.home.vouches_for) and self.manner.transport == "UDP",
            vouched_domains=self.home.vouches_for,
            password=password_of(self.name),
            instance=self._instance,
            transport=self.manner.transport,
            register_expires_s=self.manner.register_expires_s,
            session_expires_s=self.manner.session_expires_s,
        )
        asks = self.manner.authenticates
        authenticator = Authenticator(self.home.domain, password_of, self._random.token(16)) if asks else None
        return UserAgent(properties, self._random, contact=self.contact, admission=checked(authenticator))

    def _updates(self) -> list[Input]:
        return [UpdateSession(id, self.media, self.manner.method) for id in self.sessions]

    def _create(self, uri: str) -> None:
        if self.running:
            self._calls += 1
            self.wanted[uri] = id = f"{self.name}-{self._life}-{self._calls}"
            self.feed(CreateSession(id, uri, self.media))

    def _call_later(self, uri: str) -> None:
        life = self._life

        def call() -> None:
            if life == self._life and uri in self.wanted and self.wanted[uri] is None:
                self._create(uri)

        self._world.after(self._world.random.uniform(self.manner.pause_s_min, self.manner.pause_s_max), call)

    def _terminate(self, id: str) -> None:
        self.disk.pop(id, None)
        self.feed(TerminateSession(id))

    def _report_later(self, output: Output) -> None:
        """Call the owner after the machine's outputs are performed: its reply must not overtake them."""
        life = self._life

        def report() -> None:
            if self.running and life == self._life:
                self._report(output)

        self._world.after(0.0, report)

    def _report(self, output: Output) -> None:
        match output:
            case SessionOffered(id=id, update=update):
                self._consider(id, update=update)
            case SessionEstablished(id=id, update=update):
                self._established(id, update=update)
            case SessionFailed(id=id, status=status) | UpdateFailed(id=id, status=status):
                if status in AUTHENTICATION_FAILURES:
                    self.problems.append(f"session {id} failed with {status} despite the right password")
                self._on_ended(id)
            case SessionRemoved(id=id):
                self._on_ended(id)
            case RegistrationFailed(status=int(status)) if status in AUTHENTICATION_FAILURES:
                self.problems.append(f"registering failed with {status} despite the right password")

    def _consider(self, id: str, *, update: bool) -> None:
        """Answer an offer, at once or after a delay; the offer may be withdrawn by then."""
        draw = self._world.random
        life = self._life

        def answer() -> None:
            if life != self._life:
                return
            if not update and draw.random() < self.manner.refusal:
                self.feed(Refuse(id, 486))
            else:
                self.feed(AcceptOffer(id, self.media))

        if self.manner.answer_s_max == 0.0:
            answer()
            return
        if self.manner.rings and not update:
            self.feed(Ring(id))
        self._world.after(draw.uniform(0.0, self.manner.answer_s_max), answer)

    def _established(self, id: str, *, update: bool) -> None:
        """Store the session; a caller that calls again has given up its old one (one session with each caller)."""
        session = self.sessions.get(id)
        if session is None or session.dialog is None:
            return
        self.disk[id] = session.snapshot()
        if not session.created_here and not update:
            for other in list(self.sessions.values()):
                if other.remote_uri == session.remote_uri and not other.created_here and other.id != id:
                    self._terminate(other.id)
        self.on_established(self, id, update)

    def _on_ended(self, id: str) -> None:
        self.disk.pop(id, None)
        for uri, present in self.wanted.items():
            if present == id:
                self.wanted[uri] = None
                self._call_later(uri)
