"""One connection: a pair of ids, its sender and receiver, and the TCP connection in use (SPEC F-07, X37).

The endpoint passes a whole batch of frames and requests first and then calls :meth:`Connection.flush` once, so that
the ACK and all messages of a batch share one write.
"""

from __future__ import annotations

import msgspec

from wanderbus.detection import Detection, Detectors, Observed
from wanderbus.errors import RemoteProtocolError
from wanderbus.machine import Address, CancelTimer, SetTimer
from wanderbus.parameters.transports import TcpConfig
from wanderbus.tcp.frames import ACK, DATA, FINISH, PING, PONG, decode_grant, encode, encode_ack
from wanderbus.tcp.interface import Counters, OpenConnection, Phase, TcpTarget
from wanderbus.tcp.receiving import Receiver
from wanderbus.tcp.sending import Sender
from wanderbus.tcp.stream import TcpStream
from wanderbus.transport import (
    ConnectionFailed,
    MessageReceived,
    Outputs,
    PeerFinished,
    ProbeAnswered,
)


class Connection:
    """State of one pair of ids. With a ``target`` this side connects (active), otherwise the peer does (passive)."""

    def __init__(
        self,
        opened: OpenConnection,
        config: TcpConfig,
        counters: Counters,
        detectors: Detectors,
        now: float,
        outputs: Outputs,
    ) -> None:
        self.local_id = opened.local_id
        self.remote_id = opened.remote_id
        self.secret = opened.secret
        self.generation = 0
        self.peer_generation = opened.generation
        self.target = _own_target(opened)
        self.failed = False
        self.stream: TcpStream | None = None
        """TCP connection in use."""
        self.attempt: TcpStream | None = None
        """TCP connection that is being opened and may become the one in use."""
        self.sender = Sender(config)
        self.receiver = Receiver(config)
        self._config = config
        self._counters = counters
        self._resuming = False
        self._pieces: list[bytes] = []
        self._ack_due = self._pong_due = self._ping_due = False
        self._pinged_at: float | None = None
        self._asked_at = now
        self._waiting_since: float | None = None
        self._overdue_at: float | None = None
        """Time when the detector is asked because of this wait."""
        self._broken = ""
        self._dial_at = now
        self._pause_s = 0.0
        self._timer_at: float | None = None
        self._arrived_at: float | None = None
        self._detection = Detection(detectors, outputs.append)
        self._judge(now, outputs)

    def dial_due(self, now: float) -> bool:
        """Return whether to open a TCP connection now; a failed connection needs one only for its probe."""
        if self.target is None or self.stream is not None or self.attempt is not None:
            return False
        return self._ping_due if self.failed else now >= self._dial_at

    def dialled(self, attempt: TcpStream) -> None:
        """Store a TCP connection that is being opened."""
        self.attempt = attempt
        self._pause_s = min(max(2 * self._pause_s, self._config.reconnect_min_s), self._config.reconnect_max_s)

    def adopt(self, stream: TcpStream, expected: int, grant: int, now: float, outputs: Outputs) -> None:
        """Continue over ``stream``, which is authenticated; the peer expects message ``expected`` and grants ``grant``.

        :raises RemoteProtocolError: the numbers of the peer are impossible; nothing has changed then.
        """
        if not self.failed:
            self._counters.repeated += self.sender.resume(expected, grant, now)
        if self.attempt is stream:
            self.attempt = None
        self.drop_path(now, outputs)
        stream.phase = Phase.PROVEN
        stream.reader.message_bytes_max = self._config.message_bytes_max
        stream.connection = self
        self.stream = stream
        self.receiver.grant()
        self._ack_due = self.target is None  # the grant has risen since the WELCOME; a PROOF contains it
        self._counters.resumed += self._resuming
        self._resuming = True
        self._asked_at = self._arrived_at = now
        self._waiting_since = None

    def send_first(self, frame: bytes) -> None:
        """Send ``frame`` with the next write, before everything else."""
        self._pieces.append(frame)

    def take(self, kind: int, number: int, body: bytes, now: float, outputs: Outputs) -> None:
        """Process a frame of the TCP connection in use.

        :raises RemoteProtocolError: it is not allowed now.
        """
        self._arrived_at = now
        if kind == PING:
            self._pong_due = True
        elif kind == PONG:
            self._take_pong(now, outputs)
        elif kind not in (DATA, FINISH, ACK):
            raise RemoteProtocolError(f"frame type {kind:#04x} came too late", status=None)
        elif self.failed:
            return
        elif kind == ACK:
            if self.sender.confirm(number, decode_grant(body), now):
                self._progressed()
        else:
            self._ack_due = True
            if not self.receiver.take(number, len(body), kind == FINISH):
                self._counters.duplicates += 1
            elif kind == DATA:
                self._counters.received += 1
                outputs.append(MessageReceived(self.local_id, body))
            else:
                outputs.append(PeerFinished(self.local_id))

    def probe(self, now: float, outputs: Outputs) -> None:
        """Send a PING; a failed connection whose last probe got no answer tries another TCP connection."""
        if self.failed and (self.attempt or self._pinged_at is not None):
            if now < self._asked_at + self._config.probe_s_max:
                return
            self.drop_path(now, outputs)
        self._ping_due = self._pinged_at is None
        if self.failed and self.stream is None:
            self._asked_at = now

    def change_path(self, remote: Address, generation: int, now: float, outputs: Outputs) -> None:
        """Set the peer's address to ``remote``, and connect there if this side is active; ignore older generations."""
        if generation < self.peer_generation or self.failed:
            return
        known = self.target is None or (generation == self.peer_generation and remote == self.target.address)
        self.peer_generation = generation
        self._waiting_since = None
        if self.target is not None:
            self.target = msgspec.structs.replace(self.target, address=remote)
            self._redial(now, outputs, keep=known)

    def moved_here(self, generation: int, now: float, outputs: Outputs) -> None:
        """Record that this side moved: an active side closes its TCP connection, which uses the old address."""
        if generation <= self.generation:
            return
        self.generation = generation
        if self.target is not None and not self.failed:
            self._waiting_since = None
            self._redial(now, outputs, keep=False)

    def _redial(self, now: float, outputs: Outputs, *, keep: bool) -> None:
        if not keep:
            self.drop_path(now, outputs)
        self._broken = ""
        self._pause_s = 0.0
        self._dial_at = now

    def drop_path(self, now: float, outputs: Outputs) -> None:
        """Close the TCP connection in use and the one being opened."""
        for stream in (self.stream, self.attempt):
            if stream is not None:
                self._left(stream, now)
                stream.close(outputs)

    def lost(self, stream: TcpStream, reason: str, now: float) -> None:
        """Record the end of a TCP connection; the connection fails if data waits and none can be opened (SPEC F-07)."""
        if stream is self.attempt and not self.failed and (self._ping_due or not self.sender.all_confirmed):
            self._broken = f"the other side cannot be reached: {reason}"
        self._left(stream, now)

    def _left(self, stream: TcpStream, now: float) -> None:
        if stream is self.stream:
            self.stream = None
            self.sender.rtt_s = None
            self._pieces.clear()
            self._ack_due = self._pong_due = False
            self._ping_due = not self.failed and (self._ping_due or self._pinged_at is not None)
            self._pinged_at = None
        elif stream is self.attempt:
            self.attempt = None
            self._ping_due = self._ping_due and not self.failed
        else:
            return
        self._dial_at = now + self._pause_s

    def timer_fired(self) -> None:
        """Check deadlines at the end of this batch."""
        self._timer_at = None

    def flush(self, now: float, outputs: Outputs) -> None:
        """Send due frames in one write, set the timer, and fail if the detector says that the peer is gone."""
        if not self.failed:
            quiet_until = self._quiet_until()
            if quiet_until is not None and now >= quiet_until:
                self._ping_due = True
            if reason := self._failure(now, outputs):
                self._fail(reason, now, outputs)
        if self.stream is not None:
            self._write(self.stream, now, outputs)
        self._update_timer(now, outputs)

    def _failure(self, now: float, outputs: Outputs) -> str:
        if self.sender.overfull:
            return "too much waits for the other side"
        for at in (self._detection.ask_at, None if self._waiting_since is None else self._overdue_at):
            if at is not None and now >= at:
                break
        else:
            if not self._broken:
                return ""
        is_gone = self._judge(now, outputs)
        reason, self._broken = self._broken or "the other side does not answer", ""
        return reason if is_gone else ""

    def _judge(self, now: float, outputs: Outputs) -> bool:
        """Ask the detector, and probe if it wants that; return whether the peer is gone (SPEC G-26)."""
        detection, since = self._detection, self._waiting_since
        observed = Observed(
            protocol="TCP",
            now=now,
            arrived_at=self._arrived_at,
            waiting_since=since,
            is_refused=bool(self._broken),
            round_trip_s=self.sender.rtt_s,
        )
        judgement = detection.judge(observed, outputs.append)
        if since is not None:
            self._overdue_at = detection.overdue_at(since)
        if judgement == "probe" and self._pinged_at is None:
            self._ping_due = True
        return judgement == "gone"

    def _fail(self, reason: str, now: float, outputs: Outputs) -> None:
        self.failed = True
        self._ping_due = False
        self.drop_path(now, outputs)
        self.sender.abandon()
        outputs.append(ConnectionFailed(self.local_id, reason))

    def _write(self, stream: TcpStream, now: float, outputs: Outputs) -> None:
        pieces, self._pieces = self._pieces, []
        if not self.failed and (self._ack_due or self.receiver.grant_due):
            pieces.append(encode_ack(self.receiver.expected, self.receiver.grant()))
        if self._pong_due:
            pieces.append(encode(PONG))
        if self._ping_due:
            pieces.append(encode(PING))
            self._pinged_at = self._asked_at = now
        self._ack_due = self._pong_due = self._ping_due = False
        if not self.failed and (frames := self.sender.take_sendable(now)):
            self._counters.sent += len(frames)
            self._asked_at = now
            pieces += frames
        if pieces:
            outputs.append(stream.send(b"".join(pieces)))

    @property
    def _waits(self) -> bool:
        """Return whether this side waits for the peer: for an answer, or for a TCP connection if one is needed."""
        if self.stream is None:
            return self.target is not None or self._ping_due or not self.sender.all_confirmed
        return self._pinged_at is not None or self.sender.unacknowledged

    def _quiet_until(self) -> float | None:
        """Return when a PING is due: to keep the path alive, or to check a peer that grants nothing."""
        if self.stream is None or self._waits:
            return None
        quiet_s = self._config.ack_timeout_s / 4 if self.sender.blocked else self._config.keepalive_s
        return None if quiet_s is None else self._asked_at + quiet_s

    def _take_pong(self, now: float, outputs: Outputs) -> None:
        if self._pinged_at is None:
            return
        self.sender.sample(now - self._pinged_at)
        self._pinged_at = None
        self._progressed()
        if self.failed:
            outputs.append(ProbeAnswered(self.local_id))

    def _progressed(self) -> None:
        self._waiting_since = None
        self._pause_s = 0.0

    def _update_timer(self, now: float, outputs: Outputs) -> None:
        """Set the timer if it would fire too late; if it fires too early, nothing is due and it is set again."""
        if self.failed:
            return
        overdue_s = self._detection.overdue_s
        if not self._waits:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
            self._overdue_at = None if overdue_s is None else now + overdue_s
        overdue_at = None if self._waiting_since is None else self._overdue_at
        dial_at = self._dial_at if self.target and not (self.stream or self.attempt) else None
        due = [at for at in (overdue_at, self._detection.ask_at, dial_at, self._quiet_until()) if at is not None]
        if due and (self._timer_at is None or min(due) < self._timer_at):
            self._timer_at = min(due)
            outputs.append(SetTimer(self.local_id, self._timer_at))

    def close(self, now: float, outputs: Outputs) -> None:
        """Cancel the timer and close the TCP connections."""
        self.drop_path(now, outputs)
        if self._timer_at is not None:
            outputs.append(CancelTimer(self.local_id))


def _own_target(opened: OpenConnection) -> TcpTarget | None:
    given = opened.target
    if given is None:
        return None
    return TcpTarget("TLS" if given.transport == "TLS" else "TCP", given.address, given.fingerprint, given.server_name)
