"""One connection: a pair of ids, a path, and its sender and receiver (SPEC F, DESIGN 6.1 and 6.2).

The endpoint passes a whole batch of datagrams and requests first and then calls :meth:`Connection.flush` once. Every
ACK of a batch thus shares datagrams with its data, small messages share datagrams, and an ACK in the same batch as a
late timer is processed before the timer.
"""

from __future__ import annotations

from typing import Final

from wanderbus.detection import Detection, Detectors, Observed
from wanderbus.machine import Address, CancelTimer, RandomSource, SetTimer
from wanderbus.parameters.transports import RudpConfig
from wanderbus.rudp.bundle import Bundle
from wanderbus.rudp.frames import (
    ACK_BYTES,
    CHALLENGE,
    CHALLENGE_BYTES,
    RESPONSE,
    TOKEN,
    WINDOW,
    AckFrame,
    ControlFrame,
    DataFrame,
    Frames,
    Header,
    encode_carrying,
    encode_numbered,
)
from wanderbus.rudp.interface import (
    ConnectionFailed,
    Counters,
    GapDetected,
    MessageReceived,
    OpenConnection,
    PathChanged,
    PeerFinished,
)
from wanderbus.rudp.packets import Packets, take_fitting
from wanderbus.rudp.paths import PathValidation
from wanderbus.rudp.probing import Probing
from wanderbus.rudp.receiving import Receiver
from wanderbus.rudp.sealing import Awake
from wanderbus.rudp.sending import Sender
from wanderbus.transport import Outputs

OVERFULL: Final = "too much waits for the other side"
"""Reason of a failure because of ``send_queue_bytes_max``."""

_GENERATION_MASK: Final = 0xFFFF
_PATH_FRAMES: Final = (CHALLENGE, RESPONSE)
"""Frames that only probe a path (RFC 9000 9.1): their senders repeat them, so they are never acknowledged."""


class Connection:
    """State of one pair of ids; it sends only to :attr:`remote`, except for challenges and responses.

    ``token`` is announced to the peer and authenticates our RESET; empty for none.
    """

    __slots__ = (
        "_acked",
        "_active_at",
        "_arrivals",
        "_arrived_at",
        "_config",
        "_counters",
        "_detection",
        "_detectors",
        "_holds_ack",
        "_incomplete",
        "_packets",
        "_path",
        "_path_changed",
        "_path_number",
        "_peer_generation",
        "_probing",
        "_random",
        "_response",
        "_timer_at",
        "_timer_fired",
        "_token",
        "local_id",
        "peer_token",
        "reached",
        "receiver",
        "remote",
        "remote_id",
        "sender",
    )

    def __init__(
        self,
        opened: OpenConnection,
        config: RudpConfig,
        socket: str,
        counters: Counters,
        random: RandomSource,
        token: bytes,
        detectors: Detectors,
        awake: Awake | None = None,
    ) -> None:
        self.local_id = opened.local_id
        self.remote_id = opened.remote_id
        self.remote = opened.remote
        self.peer_token: bytes | None = None
        """Token that a RESET of the peer must carry; None until it is announced."""
        self._config = config
        self._counters = counters
        self._random = random
        self._token = token
        self._packets = Packets(opened, config, socket, counters, awake)
        self._arrivals = self._packets.arrivals
        self.sender = Sender(config, self._packets.frame_bytes_max, counters)
        self.receiver = Receiver(config, counters)
        self.reached = False
        """True if the peer has acknowledged a packet that was sent on the current path."""
        self._path_number = 0
        """First packet number of the current path."""
        self._path = PathValidation()
        self._peer_generation = opened.generation
        self._response: tuple[Address, bytes] | None = None
        self._probing: Probing | None = None
        self._incomplete = False
        self._timer_at: float | None = None
        self._timer_fired = False
        self._path_changed = False
        self._acked = False
        self._holds_ack = False
        self._active_at = 0.0
        self._arrived_at: float | None = None
        self._detectors = detectors
        self._detection: Detection

    @property
    def failed(self) -> bool:
        """Return whether the connection has failed and can only be probed."""
        return self._probing is not None

    @property
    def all_confirmed(self) -> bool:
        """Return whether the peer has acknowledged everything that was sent or queued."""
        return not (self._incomplete or self.sender.unconfirmed_bytes)

    @property
    def all_acknowledged(self) -> bool:
        """Return whether every packet that needs an ACK was sent and acknowledged, including PINGs."""
        return not (self._incomplete or self.sender.wants_to_send or self.sender.packets_in_flight)

    def start(self, now: float, outputs: Outputs) -> None:
        """Start the keepalive, if configured, and the detector; nothing is sent yet."""
        self._active_at = now
        self._detection = Detection(self._detectors, outputs.append)
        self._judge(now, outputs, [])
        self._update_timer(None, outputs)

    def close(self, outputs: Outputs) -> None:
        """Cancel the timer and discard the ciphers."""
        self._packets.rest()
        if self._timer_at is not None:
            outputs.append(CancelTimer(self.local_id))
            self._timer_at = None

    # Requests of the owner.

    def change_path(self, remote: Address, generation: int) -> None:
        """Send to ``remote`` from now on and repeat unacknowledged packets there; older generations are ignored."""
        if generation >= self._peer_generation:
            self._peer_generation = generation
            self._switch_path(remote)

    def _switch_path(self, remote: Address) -> None:
        self.remote = remote
        self._path.stop()
        self._path_changed = True
        self._leave_path()

    def _leave_path(self) -> None:
        self.reached, self._path_number = False, self._packets.next_number

    def validate_path(self, remote: Address, generation: int, now: float) -> None:
        """Challenge the peer at ``remote``, where signalling of another party has it; ignore older generations."""
        if generation >= self._peer_generation and remote != self.remote and self._probing is None:
            data = self._random.token(CHALLENGE_BYTES)
            self._path.start_signalled(remote, data, now, generation, self._challenge_bytes)

    @property
    def _challenge_bytes(self) -> int:
        return self._packets.overhead_bytes + 1 + CHALLENGE_BYTES

    def moved_here(self, generation: int) -> None:
        """Use our ``generation`` in packets from now on."""
        self._packets.moved_here(generation)
        self._leave_path()

    def probe(self) -> None:
        """Send an ack-eliciting packet at the end of this batch."""
        (self._probing.probe if self._probing else self.sender.ping)()

    def timer_fired(self) -> None:
        """Check deadlines at the end of this batch."""
        self._timer_fired = True

    # Input from the network.

    def receive(self, header: Header, packet: bytes, source: Address, now: float, outputs: Outputs) -> None:
        """Process a packet of this pair; an invalid or unacceptable one changes nothing and gets no ACK."""
        frames = self._packets.open(header, packet)
        if frames is None:
            return
        number = header[5]
        if self._probing is not None:
            self._probing.receive(number, frames, outputs)
            return
        data, acks, controls = frames
        if data and not self.receiver.has_room(data):
            self._counters.refused += 1
            return
        self._counters.received += 1
        self._arrived_at = now
        gap = self._arrivals.take(number)
        if gap is not None:
            self._counters.gaps += 1
            outputs.append(GapDetected(self.local_id, *gap))
        if acks:
            self._take_acks(acks, now)
        if data:
            self._take_data(data, outputs)
        if source != self.remote or self._path.candidate is not None:
            self._check_path(header, source, len(packet), frames, now)
        eliciting = bool(controls) and self._take_controls(controls, source, outputs)
        if data or eliciting:
            self._arrivals.acknowledge(number)
            if self.sender.is_backing_off(now):
                # The peer is there, perhaps again: a relay may have found it, which is not visible here. The ACK of a
                # PING shows what it lacks.
                self.sender.ping()

    def _take_acks(self, acks: list[AckFrame], now: float) -> None:
        """Process ACK frames; one for a packet that was never sent is ignored (RFC 9000 13.1)."""
        for ack in acks:
            if ack[0] < self._packets.next_number:
                self._acked = True
                self.reached |= ack[0] >= self._path_number
                self.sender.acknowledged(ack, now)
                self._packets.confirmed(ack[0])
            else:
                self._counters.unsent += 1

    def _take_data(self, data: list[DataFrame], outputs: Outputs) -> None:
        receiver, local_id = self.receiver, self.local_id
        finished = receiver.finished
        outputs += [MessageReceived(local_id, message) for message in receiver.take(data)]
        if receiver.finished and not finished:
            outputs.append(PeerFinished(local_id))
            if self.sender.finished:
                self.sender.ping()  # its ACK proves that the peer has the ACK of its FINISH

    def _take_controls(self, controls: list[ControlFrame], source: Address, outputs: Outputs) -> bool:
        """Process control frames; return whether the packet is to be acknowledged."""
        for kind, carried in controls:
            if isinstance(carried, int):
                self.sender.granted = max(self.sender.granted, carried)
            elif kind == TOKEN:
                self.peer_token = carried
            elif kind == CHALLENGE:
                self._response = (source, carried)
            elif kind == RESPONSE and self._path.answers(source, carried):
                self._counters.paths += 1
                outputs.append(PathChanged(self.local_id, source))
                self._peer_generation = max(self._peer_generation, self._path.generation or 0)
                self._switch_path(source)
        return any(kind not in _PATH_FRAMES for kind, _ in controls)

    def _check_path(self, header: Header, source: Address, size_bytes: int, frames: Frames, now: float) -> None:
        """Challenge the source of the newest packet if the peer seems to be there now (RFC 9000 9.3)."""
        *_, generation, number = header
        path = self._path
        if number == self._arrivals.newest:
            if source == self.remote:
                if path.generation is None:
                    path.stop()
            elif self._learns_from(generation, frames) and path.prefers(source):
                path.start(source, self._random.token(CHALLENGE_BYTES), now)
        path.received(source, size_bytes)

    def _learns_from(self, generation: int, frames: Frames) -> bool:
        """Return whether a packet may lead to another path.

        It may not if the peer has announced a newer path (DESIGN 6.1), or if the packet only probes a path.
        """
        if generation != self._peer_generation & _GENERATION_MASK:
            return False
        return bool(frames.data or frames.acks) or any(kind not in _PATH_FRAMES for kind, _ in frames.controls)

    # Output to the network.

    def flush(self, now: float, outputs: Outputs) -> None:
        """Send due packets, and set the timer; the connection fails without retries or room left (SPEC F-06)."""
        if self._probing is not None:
            self._probing.flush(self.remote, outputs)
            return
        sender = self.sender
        look = self._timer_fired or self._path_changed
        if self._acked:
            look |= sender.settle(now, self._packets.next_number)
        alive = True
        if self._path_changed:
            sender.restart(self._packets.next_number, now)
            self._arrivals.acknowledge_again()  # the last one may have gone to the previous address of the peer
        elif self._timer_fired:
            alive = self._check_timers(now, outputs)
        holds_ack = self._may_hold_ack()
        if self._timer_fired:
            self._timer_at = None
        self._timer_fired = self._path_changed = self._acked = False
        if not alive or sender.unconfirmed_bytes > self._config.send_queue_bytes_max:
            self._fail(OVERFULL if alive else None, outputs)
            return
        self._holds_ack = holds_ack
        if holds_ack:
            self._update_timer(now + (self._config.ack_delay_s or 0.0), outputs)
            return
        sent = self._transmit(now, outputs)
        self._validate_paths(now, outputs)
        deadline = sender.next_deadline() if look else now + sender.round_trip.timeout_s if sent else None
        self._update_timer(deadline, outputs)

    def _check_timers(self, now: float, outputs: Outputs) -> bool:
        """Give up overdue packets, and keep the path alive; return False if the detector says that the peer is gone."""
        keepalive_at = self._keepalive_at()
        if keepalive_at is not None and now >= keepalive_at:
            self.sender.ping()
        self.sender.detect_lost(now, self._packets.next_number)
        sender, detection = self.sender, self._detection
        expired = sender.expired(now)
        if expired:
            detection.waits(sender.waiting_since())
        is_due = (expired and detection.at_retries) or (detection.ask_at is not None and now >= detection.ask_at)
        if is_due and not self._judge(now, outputs, expired):
            return False
        sender.repeat(expired)
        return True

    def _judge(self, now: float, outputs: Outputs, expired: list[Bundle]) -> bool:
        """Ask the detector, and probe if it wants that; return False if the peer is gone (SPEC G-26)."""
        sender, detection = self.sender, self._detection
        waiting_since = sender.waiting_since()
        observed = Observed(
            protocol="UDP",
            now=now,
            arrived_at=self._arrived_at,
            waiting_since=waiting_since,
            retries=sender.most_retries(expired),
            round_trip_s=sender.round_trip.smoothed_s,
        )
        judgement = detection.judge(observed, outputs.append)
        detection.waits(waiting_since)
        if judgement == "probe":
            sender.ping()
        return judgement != "gone"

    def _may_hold_ack(self) -> bool:
        """Return whether only one ACK is due, which may wait for the owner's answer until the timer fires.

        It may not after the peer's FINISH, which gets no answer: the owner may be gone before the timer fires.
        """
        if self._config.ack_delay_s is None or self._holds_ack or self._timer_fired or self._path_changed:
            return False
        if self.receiver.finished:
            return False
        others = self.sender.wants_to_send or self._response is not None or self._path.candidate is not None
        return self._arrivals.due == 1 and not others

    def _transmit(self, now: float, outputs: Outputs) -> bool:
        """Send bundles, repeated ones first, and ACKs; return whether any bundle was sent."""
        sender, packets = self.sender, self._packets
        both_finished = sender.finished and self.receiver.finished
        acks = packets.take_acks()
        grant = self.receiver.next_grant()
        if grant is not None:
            sender.control(WINDOW, encode_numbered(WINDOW, grant))
        if self._token and (acks or sender.wants_to_send):
            sender.control(TOKEN, encode_carrying(TOKEN, self._token))
            self._token = b""
        most = sender.mtu.size_bytes
        sent = False
        while (bundle := sender.next_bundle(min((len(acks) or both_finished) * ACK_BYTES, most // 2), now)) is not None:
            sent = True
            frames = bundle.payload
            if both_finished and not (acks or sender.unsent_bytes):
                # This side may close once this packet is acknowledged, so the packet carries all that the peer needs.
                self._arrivals.acknowledge_again()
                acks = packets.take_acks()
            sender.sent(bundle, packets.next_number, now)
            if acks:
                frames = take_fitting(acks, max(most - len(frames), 0)) + frames
            packets.send(frames, self.remote, outputs)
        if sent:
            self._active_at = now
        packets.send_acks(acks, self.remote, outputs)
        return sent

    def _validate_paths(self, now: float, outputs: Outputs) -> None:
        """Answer a challenge to its source, and challenge the candidate (RFC 9000 8.2)."""
        path = self._path
        if self._response is None and path.candidate is None:
            return
        size_bytes = self._challenge_bytes
        if self._response is not None:
            destination, data = self._response
            self._response = None
            self._packets.send(encode_carrying(RESPONSE, data), destination, outputs)
            path.answered(destination, size_bytes)
        if path.candidate is None:
            return
        candidate = path.candidate
        challenge = path.next_challenge(size_bytes, now, self.sender.round_trip.backed_off_s(path.tries))
        if challenge is not None:
            self._counters.challenges += 1
            self._packets.send(encode_carrying(CHALLENGE, challenge), candidate, outputs)

    def _keepalive_at(self) -> float | None:
        """Return when to send a PING if nothing else is sent; None while an ACK is due anyway."""
        if self._config.keepalive_s is None or self.sender.packets_in_flight:
            return None
        return self._active_at + self._config.keepalive_s

    def _update_timer(self, deadline: float | None, outputs: Outputs) -> None:
        """Set the timer if it would fire too late; if it fires too early, nothing is due and it is set again.

        A busy connection thus sets a timer about once per timeout instead of once per packet.
        """
        at = deadline
        sender = self.sender
        for other in (
            sender.loss_at,
            sender.pace.resumes_at,
            self._path.due_at,
            self._detection.ask_at,
            self._keepalive_at(),
        ):
            if other is not None and (at is None or other < at):
                at = other
        if at is not None and (self._timer_at is None or at < self._timer_at):
            self._timer_at = at
            outputs.append(SetTimer(self.local_id, at))

    def _fail(self, reason: str | None, outputs: Outputs) -> None:
        """Discard everything except what probes need."""
        self._incomplete = not self.all_confirmed
        self.sender = Sender(self._config, self._packets.frame_bytes_max, self._counters)
        self.sender.close()
        self.receiver = Receiver(self._config, self._counters)
        self._path.stop()
        self._response = None
        self._probing = Probing(self.local_id, self._packets, self._counters)
        self.close(outputs)
        outputs.append(ConnectionFailed(self.local_id, reason) if reason else ConnectionFailed(self.local_id))
