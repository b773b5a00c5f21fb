"""Server side of the original ECI: users are addresses, and the broker's links are datagrams (SPEC A-09, X36).

::

    datagrams, idle timer ───────▶ ┌──────────┐ ──▶ datagrams, idle timer
    SendOnLink, LinkDropped ─────▶ │ Baseline │ ──▶ LinkOpened, MessageArrived: inputs of the broker
                                   └──────────┘

For the broker an address is a user with one device in the session ``default``. A notification counts as acknowledged
when it is sent, so no queue waits for an address, and the broker does not detect whether an address is reachable.
Messages are accepted only from attached addresses; a device that moves to another address is another user.

There is no authentication: anyone who reaches the port can publish and subscribe. To attach, an address must prove that
it receives datagrams, so that a forged source address cannot direct events to a third party. A sender that forges the
address of an attached user can still send messages in that user's name. Use it for measurements in a private network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from wanderbus import protocol
from wanderbus.access.attached_address import AttachedAddress
from wanderbus.access.messages import BaselineOutput, DevicesRestored
from wanderbus.broker.messages import LinkDropped, LinkOpened, MessageArrived, SendOnLink
from wanderbus.broker.state.state import DeviceRow
from wanderbus.errors import RemoteProtocolError
from wanderbus.hosts import is_loopback, network_of
from wanderbus.machine import Address, DatagramReceived, Input, Output, SendDatagram, SetTimer, TimerFired
from wanderbus.parameters.eci import BaselineConfig
from wanderbus.parameters.signalling import FloodLimits
from wanderbus.protocol.eci_address import AddressChallenges, address_of, has_challenge, user_at
from wanderbus.refusal_table import Tally
from wanderbus.sip.transaction.flood_limits import DEFAULT_LIMITS, FloodGuard
from wanderbus.sip.transaction.transaction_states import Judgement

ECI_SOCKET: Final = "eci"

_DEVICE: Final = "eci"
_SESSION: Final = "default"
_IDLE: Final = "idle"


class Baseline:
    """Translates between datagrams and the broker's links.

    Its link numbers are negative, to distinguish them from links over data channels.

    :param key: secret key of the challenges
    :param flood: bounds on datagrams and attachments of addresses that are not attached, except on loopback
    """

    def __init__(self, config: BaselineConfig | None = None, *, key: bytes, flood: FloodLimits | None = None) -> None:
        self.dropped = 0
        """Dropped datagrams: malformed, or from an address that is not attached."""
        self.refused = 0
        """Addresses that were refused by ``identities_max`` or ``source_identities_max``."""
        self._config = config or BaselineConfig()
        self._challenges = AddressChallenges(key)
        self._flood = FloodGuard(flood or DEFAULT_LIMITS, refused="datagram of the original ECI dropped")
        self._identities: dict[Address, AttachedAddress] = {}
        """Attached addresses, in the order of their last message."""
        self._of_source: Counter[str] = Counter()
        """Attached addresses by :func:`wanderbus.hosts.network_of`."""
        self._addresses: dict[int, Address] = {}
        """Address of each link, including leaving links whose last answer is not sent yet."""
        self._links_opened = 0
        self._tally = Tally()
        self._outputs: list[BaselineOutput] = []

    def step(self, inputs: Iterable[Input | Output], now: float) -> list[BaselineOutput]:
        """Process datagrams, the idle timer, the broker's outputs for these links, and its devices after a restart."""
        for given in inputs:
            match given:
                case DatagramReceived(source=source, data=payload):
                    self._on_datagram(source, payload, now)
                case SendOnLink(link=link, payload=payload):
                    self._send(link, payload)
                case LinkDropped(link=link):
                    self._drop(link)
                case TimerFired():
                    self._forget_idle(now)
                case DevicesRestored(devices=devices):
                    self._restore(devices, now)
        self._outputs += [*self._tally.take(now), *self._flood.take_limited(now)]
        outputs, self._outputs = self._outputs, []
        return outputs

    def _restore(self, devices: Iterable[DeviceRow], now: float) -> None:
        """Attach the addresses of the broker's log again; their users do not notice the restart."""
        for device in devices:
            if (address := address_of(device.user)) is not None:
                self._attach(address, protocol.Attach(device.epoch, _SESSION, None, keep=True), now)

    def _on_datagram(self, source: Address, payload: bytes, now: float) -> None:
        answers = has_challenge(payload)
        if (answers or source not in self._identities) and self._is_flood(source, payload, now):
            self.dropped += 1
            return
        proved = self._challenges.proved(source, payload, now) if answers else None
        try:
            message = protocol.decode_from_agent(payload if proved is None else proved)
        except RemoteProtocolError:
            self.dropped += 1
            return
        identity = self._identities.pop(source, None)
        if identity is not None:
            identity = self._identities[source] = identity._replace(last_message_at=now)
        match message:
            case protocol.Attach(epoch=epoch):
                if identity is not None and identity.epoch == epoch:
                    return
                if proved is None:
                    self._challenge(source, payload, now)
                else:
                    self._admit(source, message, now)
            case _ if identity is None or proved is not None:
                self.dropped += 1
            case protocol.Leave(request=request):
                self._forget(source, request)
            case _:
                self._outputs.append(MessageArrived(identity.link, payload))

    def _is_flood(self, source: Address, payload: bytes, now: float) -> bool:
        """Count a datagram that may attach; return whether it exceeds the limits. Loopback is not bounded."""
        host = source[0]
        if is_loopback(host):
            return False
        return self._flood.judge(host, now, len(payload), known=False) is not Judgement.ADMITTED

    def _challenge(self, source: Address, asked: bytes, now: float) -> None:
        """Send a challenge: an address must prove that it receives datagrams before anything is stored about it."""
        challenge = self._challenges.make(source, asked, now)
        if challenge is None:
            self.dropped += 1
        else:
            self._outputs.append(SendDatagram(ECI_SOCKET, source, challenge))

    def _admit(self, source: Address, message: protocol.Attach, now: float) -> None:
        if source not in self._identities and (limit := self._exceeded(source[0])):
            self.refused += 1
            self._tally.note(f"eci.{limit}", network_of(source[0]), "an address of the original ECI refused")
            reason = f"{limit} is {getattr(self._config, limit)}, and it is reached"
            refusal = protocol.RequestRefused(0, reason, limit=limit)
            self._outputs.append(SendDatagram(ECI_SOCKET, source, protocol.encode(refusal)))
            return
        self._attach(source, protocol.Attach(message.epoch, _SESSION, None, message.keep), now)

    def _exceeded(self, host: str) -> str:
        """Return the bound that another address of ``host`` would exceed, empty if none."""
        if len(self._identities) >= self._config.identities_max:
            return "identities_max"
        is_many = self._of_source[network_of(host)] >= self._config.source_identities_max
        return "source_identities_max" if is_many and not is_loopback(host) else ""

    def _attach(self, address: Address, message: protocol.Attach, now: float) -> None:
        """Open a link for an address, in place of its previous link; its subscriptions stay."""
        if address in self._identities:
            del self._addresses[self._remove(address).link]
        if not self._identities:
            self._outputs.append(SetTimer(_IDLE, now + self._config.identity_idle_s))
        link = self._open(address, message)
        self._identities[address] = AttachedAddress(link, message.epoch, now)
        self._of_source[network_of(address[0])] += 1

    def _remove(self, address: Address) -> AttachedAddress:
        network = network_of(address[0])
        self._of_source[network] -= 1
        if not self._of_source[network]:
            del self._of_source[network]
        return self._identities.pop(address)

    def _open(self, address: Address, message: protocol.Attach) -> int:
        self._links_opened += 1
        link = -self._links_opened
        self._addresses[link] = address
        self._outputs += [
            LinkOpened(link, user_at(address), _DEVICE, unattended=True),
            MessageArrived(link, protocol.encode(message)),
        ]
        return link

    def _forget(self, address: Address, request: int) -> None:
        """Remove an address with all its subscriptions: nobody can return as the same user."""
        identity = self._remove(address)
        del self._addresses[identity.link]
        link = self._open(address, protocol.Attach(identity.epoch, _SESSION, None, keep=False))
        self._outputs.append(MessageArrived(link, protocol.encode(protocol.Leave(request))))

    def _forget_idle(self, now: float) -> None:
        idle_s = self._config.identity_idle_s
        while self._identities:
            address, identity = next(iter(self._identities.items()))
            if identity.last_message_at + idle_s > now:
                self._outputs.append(SetTimer(_IDLE, identity.last_message_at + idle_s))
                return
            self._forget(address, 0)

    def _drop(self, link: int) -> None:
        """Detach an address; its messages are dropped until it attaches again."""
        address = self._addresses.pop(link, None)
        if address is not None and not self._is_leaving(link, address):
            self._remove(address)

    def _send(self, link: int, payload: bytes) -> None:
        """Send a datagram; the broker counts a notification as acknowledged when it is sent."""
        address = self._addresses.get(link)
        if address is None:
            return
        self._outputs.append(SendDatagram(ECI_SOCKET, address, payload))
        if self._is_leaving(link, address):
            answer = protocol.decode_from_broker(payload)
            if isinstance(answer, protocol.Done) and not answer.more:
                del self._addresses[link]

    def _is_leaving(self, link: int, address: Address) -> bool:
        identity = self._identities.get(address)
        return identity is None or identity.link != link
