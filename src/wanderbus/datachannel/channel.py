"""State of one session's data channel on one side: the agreement, and the decision for a new connection.

A side that has lost its connection offers or answers with a fresh id. A connection that is not alive on both sides is
replaced on both, so numbers of two connections never mix. Each fresh id has a fresh key pair, and all descriptions of
a live connection carry the same id and key (DESIGN 6.1, 6.5).

Methods that change the connection return the inputs for :class:`Transports`, which the owner passes on in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from wanderbus.datachannel.description import DISCARD_PORT, ChannelEnd, Place, Protocol, describe_end, read_end
from wanderbus.datachannel.transports import Transports
from wanderbus.datachannel.trust import Parties
from wanderbus.errors import RemoteProtocolError, SIPParseError
from wanderbus.hosts import is_single_host, may_be_peer
from wanderbus.machine import Address
from wanderbus.sip.message.sdp import MediaDescription
from wanderbus.transport import ChangePath, CloseConnection, ConnectionRequest, MovedHere, Probe, ValidatePath

if TYPE_CHECKING:
    from wanderbus.rudp.keys import KeyPair


class DataChannel:
    """This side's end and, while there is an agreement, the peer's end."""

    __slots__ = (
        "_encryption",
        "_generation",
        "_keys",
        "_paired",
        "_peer_generation",
        "_transports",
        "failed",
        "local",
        "parties",
        "protocol",
        "relayed",
        "remote",
    )

    def __init__(
        self,
        transports: Transports,
        parties: Parties,
        *,
        encryption: bool = True,
        protocol: Protocol = "UDP",
        relayed: bool = False,
    ) -> None:
        self.parties = parties
        self.protocol: Protocol = protocol
        self.relayed = relayed
        """True if proxies are asked for a relay: the agent decides, and the broker copies the agent's last choice."""
        self.local = 0
        """Own id of the live or offered connection, 0 before the first."""
        self.remote: ChannelEnd | None = None
        """End of the peer on the live connection, None while there is none."""
        self.failed = 0
        """Own id of the previous connection, whose sending failed; it can be probed. 0 if there is none."""
        self._transports = transports
        self._encryption = encryption
        self._keys: KeyPair | None = None
        self._generation = 0
        self._peer_generation = 0
        self._paired: tuple[int, ...] = ()
        """Ids of the peer that :attr:`local` was opened with; no pair is opened twice under the same keys."""

    def describe(self, address: Address) -> MediaDescription:
        """Return the signed SDP description of the own end at ``address``."""
        end = ChannelEnd(
            address=address,
            connection=self.local,
            generation=self._generation,
            protocol=self.protocol,
            relayed=self.relayed,
            key=self._keys.public if self._keys is not None else b"",
        )
        if self.protocol != "UDP":
            end = self._over_tcp(end)
        return describe_end(self.parties.signed(end))

    def read(self, media: MediaDescription, here: str) -> ChannelEnd:
        """Return the peer's end; :class:`SIPParseError` (488) if the description is refused.

        The MAC does not cover addresses, so the address must be a single host, and on loopback only if ``here``, the
        own host, is on loopback too. A description older than the last move, or with another key for the live
        connection, is refused as a replay, even with a valid MAC.
        """
        end = read_end(media)
        if not is_single_host(end.address[0]):
            raise SIPParseError(f"the data channel is described at {end.address[0]}, which is not a single host", 488)
        self.parties.check(end, encryption=self._encryption)
        if self.parties.role == "agent" and end.protocol != self.protocol:
            raise SIPParseError(f"the data channel must use {self.protocol}", 488)
        if end.generation < self._peer_generation:
            raise SIPParseError("the description of the data channel is older than its last move", 488)
        if self._lives(end) and _shown(end) != _shown(self.remote):
            raise SIPParseError("the description of the live data channel has another key", 488)
        if not may_be_peer(end.address[0], here):
            other = "agent" if self.parties.role == "broker" else "broker"
            raise SIPParseError(f"the data channel is described at {end.address[0]}, where the {other} cannot be", 488)
        return end

    def offer(self) -> list[ConnectionRequest]:
        """Set :attr:`local` to the id to offer: the live connection's, or a fresh one."""
        if self.remote is not None:
            return []
        former = self.local
        self.local, self._keys = self._fresh(self.protocol)
        return _closing(former)

    def agreed(self, remote: ChannelEnd) -> tuple[bool, list[ConnectionRequest]]:
        """Process the answer ``remote`` to our offer; return whether it is a new connection, and the inputs.

        :raises RemoteProtocolError: its key cannot be used, or there was no offer
        """
        if not self.local:
            raise SIPParseError("the answer has a data channel, but none was offered", 488)
        return self._settle(remote, self.local, self._keys)

    def accept(self, remote: ChannelEnd) -> tuple[bool, list[ConnectionRequest]]:
        """Accept the offer of ``remote``, to be answered with :attr:`local`; return and raise as :meth:`agreed`."""
        if self._lives(remote):
            return self._settle(remote, self.local, self._keys)
        fresh, keys = self._fresh(remote.protocol)
        try:
            return self._settle(remote, fresh, keys)
        except RemoteProtocolError:
            self._transports.release(fresh)
            raise

    def moved(self) -> list[ConnectionRequest]:
        """Report that this side has a new address."""
        self._generation += 1
        return [] if self.remote is None else [MovedHere(self.local, self._generation)]

    def place(self, address: Address) -> Place | None:
        """Return the signed place of this device at ``address``; None while nothing can be moved to it.

        A relay learns a new address only from an update of the session itself.
        """
        if self.remote is None or self.relayed:
            return None
        return self.parties.signed_place(Place(self.local, self._generation, address))

    def on_place(self, place: Place, here: str) -> list[ConnectionRequest]:
        """Check the place of the peer that another device has sent; return the inputs that lead there.

        The address is used only after the peer has answered from there, with the keys of the connection.

        :raises SIPParseError: the peer has not signed it, or cannot be there
        """
        host = place.address[0]
        self.parties.check_place(place)
        if not is_single_host(host) or not may_be_peer(host, here):
            raise SIPParseError(f"a device is described at {host}, where it cannot be", 488)
        if self.relayed or place.generation < self._peer_generation:
            raise SIPParseError("the place of a device is older than its last move, or behind a relay", 488)
        return [ValidatePath(self.local, place.address, place.generation)]

    def lost(self) -> None:
        """Record that sending failed: the next agreement is a new connection, and this one can be probed until then."""
        self.failed, self.local, self.remote, self._keys = self.local, 0, None, None

    def probe(self) -> list[ConnectionRequest]:
        """Check whether the peer answers on the failed connection again (SPEC D-10)."""
        return [Probe(self.failed)] if self.failed else []

    def begin(self, parties: Parties) -> None:
        """Bind the channel to another SIP session, after the previous one was abandoned."""
        self.parties, self._peer_generation = parties, 0

    def abandon(self) -> list[ConnectionRequest]:
        """Discard the agreement, since the SIP session has ended; a failed connection can still be probed."""
        former, self.local, self.remote, self._keys = self.local, 0, None, None
        return _closing(former)

    def use(self, protocol: Protocol, *, relayed: bool) -> list[ConnectionRequest]:
        """Choose the path of the next offer; if the ``protocol`` changes, discard the connection, and a failed one."""
        self.relayed = relayed
        if protocol == self.protocol:
            return []
        self.protocol = protocol
        return self.close()

    def close(self) -> list[ConnectionRequest]:
        """Discard the connection, and the failed one."""
        former, self.failed = self.failed, 0
        return [*self.abandon(), *_closing(former)]

    def _settle(self, remote: ChannelEnd, local: int, keys: KeyPair | None) -> tuple[bool, list[ConnectionRequest]]:
        if self.parties.role == "broker":
            self.relayed = remote.relayed
        if self._lives(remote):
            self.remote, self._peer_generation = remote, remote.generation
            return False, [ChangePath(local, remote.address, remote.generation)]
        paired = self._paired if local == self.local and self.remote is not None else ()
        if remote.connection in paired:
            raise SIPParseError("the description of the data channel is older than its new connection", 488)
        opening = self._transports.opening(local, remote, keys, self.parties)
        self._paired = (*paired, remote.connection)
        closing = _closing(*[former for former in (self.local, self.failed) if former != local])
        self.local, self._keys, self.failed, self.protocol = local, keys, 0, remote.protocol
        self.remote, self._peer_generation = remote, remote.generation
        return True, [*closing, opening, MovedHere(local, self._generation)]

    def _over_tcp(self, end: ChannelEnd) -> ChannelEnd:
        """Return our ``end`` with the attributes for TCP: the agent connects, and the broker shows its certificate."""
        existing = self.remote is not None
        if self.parties.role == "agent":
            place = (end.address[0], DISCARD_PORT)
            return msgspec.structs.replace(end, address=place, setup="active", existing=existing)
        fingerprint = self._transports.fingerprint
        return msgspec.structs.replace(end, setup="passive", existing=existing, fingerprint=fingerprint)

    def _lives(self, end: ChannelEnd) -> bool:
        return self.remote is not None and self.remote.connection == end.connection

    def _fresh(self, protocol: Protocol) -> tuple[int, KeyPair | None]:
        """Return an unused id, and keys for it if the protocol needs them."""
        sealed = protocol == "UDP" and self._encryption
        keys = self._transports.fresh_keys() if sealed else None
        return self._transports.allocate(protocol), keys


def _closing(*ids: int) -> list[ConnectionRequest]:
    return [CloseConnection(local_id) for local_id in ids if local_id]


def _shown(end: ChannelEnd | None) -> tuple[Protocol, bytes, bytes] | None:
    return None if end is None else (end.protocol, end.key, end.fingerprint)
