"""The relay as a machine: inputs are commands of proxies, outputs are replies and ports (DESIGN 6.7; ``ng`` protocol).

::

    DatagramReceived("ng") ──▶ offer, answer: streams are created ──▶ OpenPort ... PortOpened ──▶ the reply, to "ng"
                               delete, idle timeout               ──▶ ClosePort

A command is answered after its ports are open. Datagrams of media go to :class:`~wanderbus.relay.stream.Side` directly,
for low latency; :meth:`Relay.step` accepts them too, with their port as the name of the socket.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from wanderbus.datachannel import DISCARD_PORT
from wanderbus.errors import RemoteProtocolError, SIPParseError
from wanderbus.limits import UDP_PAYLOAD_BYTES_MAX
from wanderbus.machine import (
    Address,
    ClockRead,
    DatagramReceived,
    Input,
    Output,
    RandomSource,
    SendDatagram,
    SetTimer,
    TimerFired,
)
from wanderbus.parameters.relay import RelayLimits
from wanderbus.relay import statistics
from wanderbus.relay.calls import DIALOGUES_MAX, Dialogue, RelayedCall
from wanderbus.relay.description import Description, Medium, read, rewritten
from wanderbus.relay.figures import Figures
from wanderbus.relay.interface import ClosePort, Counters, OpenPort, PortOpened, PortRefused
from wanderbus.relay.ng import Command, Fields, Unreadable, full, read_command, refused, write_reply
from wanderbus.relay.ports import PortPool
from wanderbus.relay.reply_cache import ReplyCache
from wanderbus.relay.stream import Side, joined
from wanderbus.relay.waiting_command import WaitingCommand

NG_SOCKET: Final = "ng"
NO_PORTS: Final = "Ran out of ports"
SDP_TOO_LONG: Final = "The SDP body is too long"

DESCRIPTION_BYTES_MAX: Final = UDP_PAYLOAD_BYTES_MAX // 2
"""Maximum size of a rewritten description, which may be much longer than the received one. A proxy must receive some
reply: it interprets a missing one as a failed relay."""

_SWEEP: Final = "sweep"
_SWEEP_EACH_S: Final = 5.0
_OPENINGS_MAX: Final = 16
"""Other ports to try in place of one that cannot be opened."""
_PORT_MAX: Final = 65_535
_TAGS: Final = ("from-tag", "to-tag", "via-branch")


class Relay:
    """The machine of a relay.

    :param address: the address that replaces those in descriptions
    :param ports: the ports that may be handed out
    :param proxies: the IP addresses that may send commands; any address if empty
    :param loopback: whether a party may be on the relay's own host, at 127.0.0.1 or ::1
    """

    def __init__(
        self,
        random: RandomSource,
        *,
        address: str,
        ports: Sequence[int],
        limits: RelayLimits | None = None,
        proxies: Iterable[str] = (),
        loopback: bool = False,
    ) -> None:
        self.address = address
        self.calls: dict[str, RelayedCall] = {}
        self.counters = Counters()
        self.figures = Figures()
        """Sums of the figures of streams that have ended."""
        self.sides: dict[str, Side] = {}
        """Sides by transport and number of their port, as in ``UDP 30000``."""
        self._limits = limits or RelayLimits()
        self._proxies = frozenset(proxies)
        self._loopback = loopback
        self._ports = PortPool(ports, random)
        self._replies = ReplyCache(self._limits.replies_max)
        self._waiting: list[WaitingCommand] = []
        self._wall_us = 0
        self._sweeping = False

    def step(self, inputs: Iterable[Input], now: float) -> list[Output]:
        """Process a batch of inputs at monotonic second ``now``."""
        outputs: list[Output] = []
        for given in inputs:
            match given:
                case DatagramReceived(socket=name):
                    if name == NG_SOCKET:
                        self._on_command(given, now, outputs)
                    else:
                        self._forward(given, now, outputs)
                case PortOpened(side=side, port=port) if port == side.port:
                    self._port_opened(side, now, outputs)
                case PortRefused(side=side, port=port) if port == side.port:
                    self._port_refused(side, now, outputs)
                case TimerFired():
                    self._sweep(now, outputs)
                case ClockRead(wall_us=wall_us):
                    self._wall_us = wall_us
        return outputs

    def _forward(self, given: DatagramReceived, now: float, outputs: list[Output]) -> None:
        side = self.sides.get(given.socket)
        if side is None or side.transport != "UDP":
            return
        destination = side.take(given.source, given.data, now)
        if destination is not None:
            outputs.append(SendDatagram(_name(side.other), destination, given.data))

    # Commands ---------------------------------------------------------------------------------------------------------

    def _on_command(self, given: DatagramReceived, now: float, outputs: list[Output]) -> None:
        if self._proxies and given.source[0] not in self._proxies:
            self.counters.strangers += 1
            return
        try:
            command = read_command(given.data)
        except Unreadable as error:
            self.counters.unreadable += 1
            reply = write_reply(error.cookie, refused(str(error)), json=error.json)
            outputs.append(SendDatagram(NG_SOCKET, given.source, reply))
            return
        except RemoteProtocolError:
            self.counters.unreadable += 1
            return
        if (cached := self._replies.find(given.source, command.cookie)) is not None:
            self.counters.repeated += 1
            outputs.append(SendDatagram(NG_SOCKET, given.source, cached))
        elif any((each.source, each.command.cookie) == (given.source, command.cookie) for each in self._waiting):
            self.counters.repeated += 1
        else:
            self.counters.commands += 1
            self._execute(command, given.source, now, outputs)
        if not self._sweeping:
            self._sweeping = True
            outputs.append(SetTimer(_SWEEP, now + _SWEEP_EACH_S))

    def _execute(self, command: Command, source: Address, now: float, outputs: list[Output]) -> None:
        match command.fields.get("command"):
            case "ping":
                reply: Fields | None = {"result": "pong"}
            case "offer" | "answer":
                reply = self._describe(command, source, now, outputs)
            case "delete":
                reply = self._delete(command, now, outputs)
            case "query":
                reply = self._query(command)
            case "list":
                reply = {"calls": statistics.first_of(self.calls, command.fields.get("limit")), "result": "ok"}
            case "statistics":
                reply = {"statistics": statistics.of_relay(self), "result": "ok"}
            case None:
                reply = refused('Dictionary contains no key "command"')
            case _:
                reply = refused("Unrecognized command")
        if reply is not None:
            self._answer(command, source, reply, now, outputs)

    def _answer(self, command: Command, source: Address, reply: Fields, now: float, outputs: list[Output]) -> None:
        written = write_reply(command.cookie, reply, json=command.json)
        if len(written) > UDP_PAYLOAD_BYTES_MAX:
            # For example the figures of a large call: an error reply is better than a datagram that cannot be sent.
            written = write_reply(command.cookie, {"result": reply["result"]}, json=command.json)
        self._replies.remember(source, command.cookie, written, now)
        outputs.append(SendDatagram(NG_SOCKET, source, written))

    def _query(self, command: Command) -> Fields:
        call = self.calls.get(command.text("call-id"))
        if call is not None:
            return {**statistics.of_call(call), "result": "ok"}
        return refused("Unknown call-id" if command.text("call-id") else "No call-id in message")

    def _describe(self, command: Command, source: Address, now: float, outputs: list[Output]) -> Fields | None:
        """Process an offer or an answer; return the reply, None while ports are being opened."""
        offers = command.fields["command"] == "offer"
        if (fault := command.fault()) is not None:
            return refused(fault)
        call_id, from_tag, to_tag, branch = (command.text(key) for key in ("call-id", *_TAGS))
        try:
            described = read(command.text("sdp"), command.source_ip)
        except SIPParseError:
            return refused("Failed to parse SDP")
        wanted = sum(medium.wanted for medium in described.media)
        if wanted > self._limits.media_max:
            outputs.append(statistics.limited("media_max", command.source_ip, "description refused"))
            return refused(f"More than {self._limits.media_max} media in one description")
        longest = rewritten(described.text, self.address, [_PORT_MAX] * len(described.media), origin=True)
        if len(longest.encode(errors="surrogateescape")) > DESCRIPTION_BYTES_MAX:
            return refused(SDP_TOO_LONG)
        call = self.calls.get(call_id)
        if offers:
            if call is None and (len(self.calls) >= self._limits.calls_max or len(self._ports) < 2 * wanted):
                self.counters.refused += 1
                outputs.append(statistics.limited("calls_max", command.source_ip, "call refused"))
                return full(command)
            call = call or self._new_call(call_id, now)
            dialogue = call.offered(from_tag, to_tag, branch)
            if dialogue is None:
                self.counters.refused += 1
                return refused(f"More than {DIALOGUES_MAX} dialogues in one call")
        else:
            dialogue = call.answered(from_tag, to_tag, branch) if call else None
        if call is None or dialogue is None:
            return refused("Unknown call-id")
        call.signalled_at = now
        speaker = from_tag if offers else to_tag
        return self._agree(command, source, dialogue, dialogue.caller == speaker, described, now, outputs)

    def _agree(
        self,
        command: Command,
        source: Address,
        dialogue: Dialogue,
        by_caller: bool,
        described: Description,
        now: float,
        outputs: list[Output],
    ) -> Fields | None:
        """Set up the streams for one side's description; return as :meth:`_describe`."""
        shown: list[Side | None] = []
        unopened: list[Side] = []
        for place, medium in enumerate(described.media):
            speaker = self._stream(dialogue, place, medium, by_caller, now, outputs)
            if speaker is not None:
                speaker.announce(medium)
                for side in (speaker, speaker.other):
                    if side.port and side.other.connects:
                        self._close_port(side, outputs)
                    elif not side.port and not side.other.connects:
                        unopened.append(side)
            shown.append(speaker.other if speaker else None)

        def reply() -> Fields:
            ports = [_shown_port(side) for side in shown]
            return {
                "sdp": rewritten(described.text, self.address, ports, origin=command.replaces_origin),
                "result": "ok",
            }

        if len(unopened) > len(self._ports):
            self.counters.refused += 1
            return refused(NO_PORTS)
        if not unopened:
            return reply()
        for side in unopened:
            self._open(side, outputs)
        self._waiting.append(WaitingCommand(command, source, unopened, _OPENINGS_MAX, reply))
        return None

    def _stream(
        self, dialogue: Dialogue, place: int, medium: Medium, by_caller: bool, now: float, outputs: list[Output]
    ) -> Side | None:
        """Return the speaker's side of the stream at ``place``, creating it if necessary; None if it is not in use."""
        streams = dialogue.streams
        streams += [None] * (place + 1 - len(streams))
        stream = streams[place]
        if stream is not None and not (medium.wanted and stream[0].transport == medium.transport):
            self._close(stream, now, outputs)
            stream = streams[place] = None
        if stream is None and medium.wanted:
            stream = joined(medium.transport, self._limits, loopback=self._loopback, now=now)
            streams[place] = stream
        return stream[0 if by_caller else 1] if stream else None

    def _delete(self, command: Command, now: float, outputs: list[Output]) -> Fields:
        call_id = command.text("call-id")
        if not call_id:
            return refused("No call-id in message")
        call = self.calls.get(call_id)
        named = [command.text(key) for key in _TAGS]
        report = statistics.of_call(call) if call else {}
        gone = call.ended(*named) if call else []
        if not gone:
            return {"warning": "Call-ID not found or tags didn't match", "result": "ok"}
        self._forget(call_id, gone, now, outputs)
        return {**report, "result": "ok"}

    # Ports and time ---------------------------------------------------------------------------------------------------

    def _open(self, side: Side, outputs: list[Output]) -> None:
        port = self._ports.take()
        assert port is not None, "the caller has checked the number of free ports"
        side.port = port
        self.sides[_name(side)] = side
        outputs.append(OpenPort(side, port))

    def _port_opened(self, side: Side, now: float, outputs: list[Output]) -> None:
        for waiting in self._waiting_for(side):
            waiting.sides.remove(side)
            if not waiting.sides:
                self._waiting.remove(waiting)
                self._answer(waiting.command, waiting.source, waiting.reply(), now, outputs)

    def _port_refused(self, side: Side, now: float, outputs: list[Output]) -> None:
        """Try another port, unless the attempts ran out."""
        self._release(side)
        for waiting in self._waiting_for(side):
            waiting.tries -= 1
            if waiting.tries and self._ports:
                self._open(side, outputs)
            else:
                self._waiting.remove(waiting)
                self._close_halves(waiting.sides, outputs)
                self.counters.refused += 1
                self._answer(waiting.command, waiting.source, refused(NO_PORTS), now, outputs)

    def _close_halves(self, sides: Iterable[Side], outputs: list[Output]) -> None:
        """Close the ports of streams whose other side cannot be opened."""
        for side in sides:
            if side.other.port:
                self._close_port(side.other, outputs)

    def _waiting_for(self, side: Side) -> list[WaitingCommand]:
        return [waiting for waiting in self._waiting if any(each is side for each in waiting.sides)]

    def _close(self, sides: Iterable[Side], now: float, outputs: list[Output]) -> None:
        """Close the ports of ``sides``, add up their figures, and answer the commands that wait for them."""
        for side in sides:
            outputs += statistics.limited_streams([side])
            self.figures = statistics.summed([self.figures, side.figures])
            for waiting in self._waiting_for(side):
                self._waiting.remove(waiting)
                self._answer(waiting.command, waiting.source, refused("Unknown call-id"), now, outputs)
            if side.port:
                self._close_port(side, outputs)

    def _close_port(self, side: Side, outputs: list[Output]) -> None:
        outputs.append(ClosePort(side, side.port))
        self._release(side)

    def _release(self, side: Side) -> None:
        del self.sides[_name(side)]
        self._ports.give_back(side.port)
        side.port = 0

    def _new_call(self, call_id: str, now: float) -> RelayedCall:
        self.counters.calls += 1
        call = self.calls[call_id] = RelayedCall(call_id, self._wall_us, now)
        return call

    def _forget(self, call_id: str, gone: Iterable[Dialogue], now: float, outputs: list[Output]) -> None:
        for dialogue in gone:
            self._close(dialogue.sides(), now, outputs)
        if not self.calls[call_id].dialogues:
            del self.calls[call_id]

    def _sweep(self, now: float, outputs: list[Output]) -> None:
        """Remove old replies, and calls after a timeout without datagrams."""
        self._replies.forget(now)
        outputs += statistics.limited_streams(self.sides.values())
        for call in list(self.calls.values()):
            if now - call.used_at() > self._limits.idle_s:
                self.counters.reclaimed += 1
                self._forget(call.call_id, call.ended("", "", ""), now, outputs)
        self._sweeping = bool(self.calls or self._replies)
        if self._sweeping:
            outputs.append(SetTimer(_SWEEP, now + _SWEEP_EACH_S))


def _name(side: Side) -> str:
    return f"{side.transport} {side.port}"


def _shown_port(side: Side | None) -> int:
    """Return the port for an ``m=`` line: of the relay, or the one that means active connecting, or 0 for no medium."""
    if side is None:
        return 0
    return side.port or DISCARD_PORT
